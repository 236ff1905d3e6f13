"""The tokens of language models."""
