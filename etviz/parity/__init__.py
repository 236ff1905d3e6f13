"""Parity of a port: two eager models, matched by the values of their parameters, and the first stage that differs."""
