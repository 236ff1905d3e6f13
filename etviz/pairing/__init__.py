"""Pairs runtime values with reference values."""
