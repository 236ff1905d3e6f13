"""How a program that keeps state is called: which input takes the tokens, which one the position, and in what order."""
