"""Zooms into delegates, and cuts out parts that can run alone."""
