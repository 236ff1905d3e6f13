"""Measures of two tensors and of their difference."""
