"""Ratios between etviz and the upstream Inspector, measured on the same files in one run: ``python -m benchmarks``."""
