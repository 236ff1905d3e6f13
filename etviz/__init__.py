"""etviz tells which operator broke a model's numerics on its way to ExecuTorch, and why.

>>> inspection = etviz.debug(model, example_inputs, partitioner=[XnnpackPartitioner()])  # doctest: +SKIP
>>> inspection  # the widget  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from etviz import errors
from etviz._version import __version__

if TYPE_CHECKING:
    from etviz.adopting import from_inspector
    from etviz.comparing import Comparison, compare
    from etviz.debugging import debug
    from etviz.inspection import Inspection
    from etviz.numerics.metrics import METRICS as metrics  # noqa: N811 - its public name
    from etviz.opening import load
    from etviz.pipeline.record import record
    from etviz.settings import options

_LAZY = {
    "Comparison": ("etviz.comparing", "Comparison"),
    "compare": ("etviz.comparing", "compare"),
    "Inspection": ("etviz.inspection", "Inspection"),
    "from_inspector": ("etviz.adopting", "from_inspector"),
    "debug": ("etviz.debugging", "debug"),
    "load": ("etviz.opening", "load"),
    "metrics": ("etviz.numerics.metrics", "METRICS"),
    "options": ("etviz.settings", "options"),
    "record": ("etviz.pipeline.record", "record"),
}

__all__ = [
    "Comparison",
    "Inspection",
    "__version__",
    "compare",
    "debug",
    "errors",
    "from_inspector",
    "load",
    "metrics",
    "options",
    "record",
]


def __getattr__(name: str) -> Any:
    """Load the public names when they are used: `import etviz` itself takes no torch and no executorch."""
    if name not in _LAZY:
        raise AttributeError(f"module 'etviz' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
