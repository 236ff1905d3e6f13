"""How a program that keeps state is called: its inputs for tokens and position, and the order of calls."""
