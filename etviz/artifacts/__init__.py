"""Reads artifacts into typed records. Executes no graph and needs no torch.

Readers raise `ArtifactError` for files that are missing, empty, damaged or of another kind or version; writers, for
files that can't be written.
"""
