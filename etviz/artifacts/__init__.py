"""Reads artifacts into typed records. Executes no graph and needs no torch.

Readers raise `ArtifactError` for a file that is missing, empty, of another kind or version, truncated or damaged, and
writers for a file that can't be written.
"""
