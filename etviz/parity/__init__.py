"""Parity of a port: two eager models, matched by their parameters' values, and the first stage that differs."""
