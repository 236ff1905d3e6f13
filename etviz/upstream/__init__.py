"""The only folder that touches private names of executorch, so that an upgrade is one of this folder."""
