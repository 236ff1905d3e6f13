"""A language model's tokens: reference and runtime at every position."""
