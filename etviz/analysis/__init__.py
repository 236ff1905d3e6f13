"""Everything computed from one comparison."""
