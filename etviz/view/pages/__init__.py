"""HTML without a kernel."""
