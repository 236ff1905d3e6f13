"""How a program that keeps state is called."""
