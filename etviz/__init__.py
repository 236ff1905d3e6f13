"""etviz tells which operator broke a model's numerics on its way to ExecuTorch, and why."""

from etviz._version import __version__

__all__ = ["__version__"]
