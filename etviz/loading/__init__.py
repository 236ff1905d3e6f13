"""From files to compared values."""
