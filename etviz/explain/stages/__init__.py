"""The forms of a program from the float model to the run, compared."""
