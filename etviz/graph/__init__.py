"""The program: its tree, its delegation, its source."""
