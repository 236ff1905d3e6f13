"""Shares of an output's error by instruction."""
