"""The forms of a program from the float model to the run: evaluated by one engine, joined by operator, compared."""
