"""The data that a view receives."""
