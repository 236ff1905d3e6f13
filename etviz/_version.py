"""The version of etviz, the only place that states it (the build reads it from here)."""

__version__ = "0.1.0"
