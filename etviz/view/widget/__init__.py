"""The view in a notebook."""
