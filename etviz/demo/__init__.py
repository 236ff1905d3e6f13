"""A real model from training to the verdict."""
