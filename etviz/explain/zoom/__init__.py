"""zoom."""
