"""Reads artifacts, without torch or executing a graph; `ArtifactError` if one is missing, damaged or unwritable."""
