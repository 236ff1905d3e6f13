"""The program: a `.pte`, alone or in a bundle."""
