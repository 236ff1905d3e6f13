"""Parity of a port with its original."""
