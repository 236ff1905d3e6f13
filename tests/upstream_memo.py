"""What upstream computes anew each time that a model is lowered, though nothing has changed: here once a process.

A third of the time that a small model takes to be lowered goes into the list of all operators that PyTorch can
decompose, a sixth into annotations of a function that is defined 6,000 times, and two seconds of each quantization into
the export of XNNPACK's patterns of convolutions. The functions are upstream's own; only their results are kept, and the
annotations are not evaluated.
"""

from __future__ import annotations
import __future__

import copy
import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

OPERATORS = "_collect_all_valid_cia_ops"
PATTERN = "_get_aten_graph_module_for_pattern"


def keep_results() -> None:
    """Keep them from now on, in this process."""
    for name in ("torch.export.exported_program", "torch.export.decomp_utils"):
        _replace(name, OPERATORS, _once)
    _replace("executorch.backends.xnnpack.quantizer.xnnpack_quantizer_utils", PATTERN, _once_a_pattern)
    module = importlib.import_module("torch._ops")
    module.OperatorBase.py_impl = _without_annotations(module.OperatorBase.py_impl, vars(module))


def _replace(module: str, name: str, wrapped: Callable[[Any], Any]) -> None:
    place = importlib.import_module(module)
    setattr(place, name, wrapped(getattr(place, name)))


def _without_annotations(function: Callable[..., Any], names: dict[str, Any]) -> Callable[..., Any]:
    """The same, compiled so that annotations stay text."""
    source, made = textwrap.dedent(inspect.getsource(function)), dict[str, Any]()
    flag = __future__.annotations.compiler_flag
    exec(compile(source, inspect.getsourcefile(function) or "", "exec", flags=flag, dont_inherit=True), names, made)
    return made[function.__name__]


def _once(collect: Callable[[], Any]) -> Callable[[], Any]:
    """The same as long as no library that is loaded brings further operators."""
    dispatcher: Any = importlib.import_module("torch._C")
    kept = functools.cache(lambda count: collect())
    return lambda: kept(len(dispatcher._dispatch_get_all_op_names()))


def _once_a_pattern(export: Callable[..., Any]) -> Callable[..., Any]:
    """The same for patterns that differ by what their function closes over; whoever gets one may change it."""
    kept: dict[tuple[Any, ...], Any] = {}

    def get(pattern: Any, inputs: tuple[Any, ...], *options: Any) -> Any:
        key = (*(cell.cell_contents for cell in pattern.fn.__closure__), *options)
        if key not in kept:
            kept[key] = export(pattern, inputs, *options)
        return copy.deepcopy(kept[key])

    return get
