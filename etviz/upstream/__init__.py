"""Access to private names of executorch. An upgrade of executorch changes this folder only."""
