"""What upstream computes anew each time that a model is lowered, though nothing has changed: here once a process.

A third of the time that a small model takes to be lowered goes into the list of all operators that PyTorch can
decompose, a fifth into overriding each of them, a sixth into annotations of a function that is defined 6,000 times, a
tenth into copies of where nodes come from, and two seconds of each quantization into the export of XNNPACK's patterns
of convolutions. Of what remains, a sixth goes into code of graphs that nobody calls, an eighth into passes that trace a
graph again that none of them has changed, and half of a model with grids into one loop that compares sums. The
functions are upstream's own; only their results are kept, and neither annotations nor code that nobody reads are made.
"""

from __future__ import annotations
import __future__

import contextlib
import copy
import functools
import importlib
import inspect
import operator
import textwrap
from collections.abc import Callable, Generator, Mapping
from typing import Any

OPERATORS = "_collect_all_valid_cia_ops"
PATTERN = "_get_aten_graph_module_for_pattern"
DTYPES = "_check_tensor_args_matching_op_allowed_dtype"
SUMS = "torch.cumsum(self.histogram, dim=0)"


def keep_results() -> None:
    """Keep them from now on, in this process."""
    for name in ("torch.export.exported_program", "torch.export.decomp_utils"):
        _replace(name, OPERATORS, _once)
        _replace(name, "_get_decomp_for_cia", _once_a_kernel)
    _replace("torch.export.exported_program", "_override_composite_implicit_decomp", _once_an_operator)
    _replace("executorch.backends.xnnpack.quantizer.xnnpack_quantizer_utils", PATTERN, _once_a_pattern)
    importlib.import_module("torch.fx.traceback").NodeSource.__deepcopy__ = lambda source, memo: source
    _replace("torch.fx.graph_module", "GraphModule.recompile", _when_read)
    _replace("executorch.exir.pass_base", "ExportPass.call", _once_a_graph)
    _replace("executorch.exir.verification.verifier", DTYPES, _once_in_a_row)
    module = importlib.import_module("torch._ops")
    module.OperatorBase.py_impl = _without_annotations(module.OperatorBase.py_impl, vars(module))
    module = importlib.import_module("torchao.quantization.pt2e.observer")
    kind = module.HistogramObserver
    kind._non_linear_param_search = _with_numbers(kind._non_linear_param_search, vars(module))


def _replace(module: str, name: str, wrapped: Callable[[Any], Any]) -> None:
    *owners, name = name.split(".")
    place = functools.reduce(getattr, owners, importlib.import_module(module))
    setattr(place, name, wrapped(getattr(place, name)))


def _without_annotations(function: Callable[..., Any], names: dict[str, Any]) -> Callable[..., Any]:
    """The same, compiled so that annotations stay text."""
    return _compiled(function, textwrap.dedent(inspect.getsource(function)), names)


def _with_numbers(function: Callable[..., Any], names: dict[str, Any]) -> Callable[..., Any]:
    """The same, whose sums are an array of NumPy, as it compares thousands of them one by one."""
    source = textwrap.dedent(inspect.getsource(function))
    assert SUMS in source
    return _compiled(function, source.replace(SUMS, f"{SUMS}.numpy()"), names)


def _compiled(function: Callable[..., Any], source: str, names: dict[str, Any]) -> Callable[..., Any]:
    flag, made = __future__.annotations.compiler_flag, dict[str, Any]()
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


def _when_read(compile_now: Callable[[Any], object]) -> Callable[[Any], None]:
    """The same code of a graph, made when somebody calls or reads it: few of the graphs between two passes are."""
    module: Any = importlib.import_module("torch.fx.graph_module")
    texts = ("_code", "_lineno_map", "_prologue_start")
    for name in texts:
        setattr(module.GraphModule, name, _Unread(name, compile_now))

    def recompile(graph: Any) -> None:
        if isinstance(graph._graph._codegen, module._PyTreeCodeGen):
            info = graph._graph._codegen.pytree_info
            graph._in_spec, graph._out_spec = info.in_spec, info.out_spec
        for name in texts:
            vars(graph).pop(name, None)
        type(graph).forward = _Unread("forward", compile_now, graph)  # each graph has a class of its own

    return recompile


class _Unread:
    """An attribute that the code of a graph module has: reading it makes the code."""

    def __init__(self, name: str, compile_now: Callable[[Any], object], module: Any = None) -> None:
        self.name, self.compile_now, self.module = name, compile_now, module

    def __get__(self, module: Any, kind: type | None = None) -> Any:
        self.compile_now(module if self.module is None else self.module)
        return getattr(kind if module is None else module, self.name)


def _once_a_graph(trace: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The same graph for passes that only trace it again, as long as nobody has changed it since one did.

    A pass that overrides anything of how a graph is traced may give another one.
    """
    base = importlib.import_module("executorch.exir.pass_base")
    steps = ["_fx", *(name for name in dir(base.ExportPass) if not name.startswith("_") and name != "call")]
    traced: list[Any] = []

    @functools.cache
    def only_traces(kind: type) -> bool:
        return all(getattr(kind, name) is getattr(base.ExportPass, name) for name in steps)

    def call(tracer: Any, module: Any) -> Any:
        if not only_traces(type(tracer)):
            return trace(tracer, module)
        state = _state(module)
        if len(state) == len(traced) and all(map(operator.is_, state, traced)):
            return base.PassResult(module, True)
        result = trace(tracer, module)
        traced[:] = _state(result.graph_module)
        return result

    return call


def _once_in_a_row(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """The same for a graph that passed the last time, and that nobody has changed since."""
    passed: list[Any] = []

    def checked(module: Any) -> None:
        state = _state(module)
        if len(state) != len(passed) or not all(map(operator.is_, state, passed)):
            passed.clear()
            check(module)
            passed[:] = state

    return checked


def _state(module: Any) -> list[Any]:
    """What a graph consists of; arguments can't be changed, only be set. What a module holds may be anything."""
    state = [module]
    for node in module.graph.nodes:
        state += [node, node.op, node.target, node.args, node.kwargs, node.name, node.meta.get("val")]
        state += [object()] if node.op == "get_attr" else []
    return state


def _once_a_pattern(export: Callable[..., Any]) -> Callable[..., Any]:
    """The same for patterns that differ by what their function closes over; whoever gets one may change it."""
    kept: dict[tuple[Any, ...], Any] = {}

    def get(pattern: Any, inputs: tuple[Any, ...], *options: Any) -> Any:
        key = (*(cell.cell_contents for cell in pattern.fn.__closure__), *options)
        if key not in kept:
            kept[key] = export(pattern, inputs, *options)
        return copy.deepcopy(kept[key])

    return get
