"""Reads artifacts into typed records. Executes no graph and needs no torch."""
