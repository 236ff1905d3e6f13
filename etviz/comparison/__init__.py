"""Compares a run's values with their reference."""
