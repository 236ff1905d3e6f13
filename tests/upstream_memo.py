"""What upstream computes anew each time that a model is lowered, though nothing has changed: here once a process.

A third of the time that a small model takes to be lowered goes into the list of all operators that PyTorch can
decompose, a fifth into overriding each of them, a sixth into annotations of a function that is defined 6,000 times, a
tenth into copies of where nodes come from, and two seconds of each quantization into the export of XNNPACK's patterns
of convolutions. The functions are upstream's own; only their results are kept, and the annotations are not evaluated.
"""

from __future__ import annotations
import __future__

import contextlib
import copy
import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable, Generator, Mapping
from types import CodeType
from typing import Any

OPERATORS = "_collect_all_valid_cia_ops"
PATTERN = "_get_aten_graph_module_for_pattern"


def keep_results() -> None:
    """Keep them from now on, in this process."""
    for name in ("torch.export.exported_program", "torch.export.decomp_utils"):
        _replace(name, OPERATORS, _once)
        _replace(name, "_get_decomp_for_cia", _once_a_kernel)
    _replace("torch.export.exported_program", "_override_composite_implicit_decomp", _once_an_operator)
    _replace("torch.fx.graph_module", "_exec_with_source", _once_a_text)
    _replace("executorch.backends.xnnpack.quantizer.xnnpack_quantizer_utils", PATTERN, _once_a_pattern)
    importlib.import_module("torch.fx.traceback").NodeSource.__deepcopy__ = lambda source, memo: source
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


def _once_a_kernel(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same function for an operator whose decomposition C++ holds."""
    kept, key = functools.cache(get), importlib.import_module("torch._C").DispatchKey.CompositeImplicitAutograd
    return lambda op: (get if key in op.py_kernels else kept)(op)


def _once_an_operator(override: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same kernels for an operator that has the same ones before, and the same decomposition."""
    fakes: Any = importlib.import_module("torch._subclasses.fake_impls")
    rules: dict[Any, Any] = fakes.op_implementations_dict
    kept: dict[Any, tuple[dict[Any, Any], dict[Any, Any], Any]] = {}

    @contextlib.contextmanager
    def overridden(wanted: Mapping[Any, Any]) -> Generator[None]:
        known = {op: kept[op, call] for op, call in wanted.items() if (op, call) in kept}
        known = {op: found for op, found in known.items() if found[0] == op.py_kernels}
        others = {op: call for op, call in wanted.items() if op not in known}
        before = {op: dict(op.py_kernels) for op in others if op not in rules}
        with override(others):
            kept.update(((op, others[op]), (old, dict(op.py_kernels), rules[op])) for op, old in before.items())
            for op, (_, kernels, rule) in known.items():
                _give(op, kernels)
                rules.setdefault(op, rule)
            try:
                yield
            finally:
                for op, (kernels, _, _) in known.items():
                    _give(op, kernels)
                    fakes._deregister_op_impl(op)

    return overridden


def _give(op: Any, kernels: Mapping[Any, Any]) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()


def _once_a_text(run: Callable[..., None]) -> Callable[..., None]:
    """The same code for the same text, under the name that the text has this time."""
    module: Any = importlib.import_module("torch.fx.graph_module")
    compiled = functools.lru_cache(1_000)(lambda text: compile(text, "", "exec", dont_inherit=True))

    def execute(text: str, names: dict[str, Any], fields: dict[str, Any] | None = None) -> None:
        exec(_named(compiled(text), module._loader.cache(text, names, fields)), names)

    return execute


def _named(code: CodeType, file: str) -> CodeType:
    inside = (_named(item, file) if isinstance(item, CodeType) else item for item in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(inside))


def _once_a_pattern(export: Callable[..., Any]) -> Callable[..., Any]:
    """The same for patterns that differ by what their function closes over; whoever gets one may change it."""
    kept: dict[tuple[Any, ...], Any] = {}

    def get(pattern: Any, inputs: tuple[Any, ...], *options: Any) -> Any:
        key = (*(cell.cell_contents for cell in pattern.fn.__closure__), *options)
        if key not in kept:
            kept[key] = export(pattern, inputs, *options)
        return copy.deepcopy(kept[key])

    return get
