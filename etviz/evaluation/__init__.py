"""Evaluates a program's graphs: reference values, values on the runtime's inputs, and their noise."""
