"""Reads artifacts into typed records. Executes no graph and needs no torch.

Files that are missing, damaged or of another kind or version, or can't be written, raise `ArtifactError`.
"""
