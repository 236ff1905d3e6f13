"""Bytes on disk become typed records here. No graph is executed, and nothing needs torch."""
