"""Every kind of program that users bring, each compared with an independent computation."""
