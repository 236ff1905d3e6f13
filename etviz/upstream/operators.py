# pyright: reportPrivateUsage=false
"""Names, reads, writes and functional forms of operators.

Heavy modules are imported on demand: `import etviz` must not load torch.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from etviz.graph.inline import WRAPS, changes_nothing
from etviz.graph.language_operators import LANGUAGE_OPERATORS
from etviz.upstream.executorch import FxNode
from etviz.upstream.libraries import load_operator_library

if TYPE_CHECKING:
    import torch


def functional_overload(overload: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The functional form of an out variant; the overload itself if there is none.

    Both take the same arguments except `out`; more need a default (`full_like`'s dtype).
    """
    out = out_arguments(overload)
    if not out:
        return overload
    wanted = {a.name: str(a.type) for a in overload._schema.arguments if a.name not in out}
    loose = overload
    for name in overload.overloadpacket.overloads():
        candidate = getattr(overload.overloadpacket, name)
        if out_arguments(candidate):
            continue
        takes = {a.name: str(a.type) for a in candidate._schema.arguments}
        if takes == wanted:
            return candidate
        optional = {a.name for a in candidate._schema.arguments if a.has_default_value()}
        if wanted.items() <= takes.items() and takes.keys() - wanted.keys() <= optional:
            loose = candidate
    return loose


def out_arguments(overload: torch._ops.OpOverload) -> list[str]:
    return [a.name for a in overload._schema.arguments if a.kwarg_only and is_written(a)]


def takes_dtype(overload: torch._ops.OpOverload) -> bool:
    return any(a.name == "dtype" for a in overload._schema.arguments)


def is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def is_mutable(overload: torch._ops.OpOverload) -> bool:
    return any(is_written(a) for a in overload._schema.arguments)


def qualified_name(overload: torch._ops.OpOverload) -> str:
    namespace, name = overload._schema.name.split("::")
    return f"{namespace}.{name}.{overload._schema.overload_name or 'default'}"


def schema_of(overload: Any) -> Any:
    return overload._schema


def parsed_schema(target: str, arguments: str) -> Any:
    """From the text after the operator's name, in torch's notation."""
    import torch

    namespace, name, overload = target.split(".")
    return torch._C.parse_schema(f"{namespace}::{name}{'' if overload == 'default' else f'.{overload}'}{arguments}")


def operator_of(target: str) -> Any:
    """The overload of a name like ``aten.add.Tensor``; raises `AttributeError` with the reason."""
    import torch

    namespace, name, overload = target.split(".")
    missing = load_operator_library(namespace, name)
    if overload not in overloads_of(target):
        raise AttributeError(missing)
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def overloads_of(target: str) -> list[str]:
    """The registered overloads of an operator; its own one may not be among them."""
    import torch

    namespace, name, _ = target.split(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return packet.overloads() if packet is not None else []


def kernel_name(overload: torch._ops.OpOverload) -> str:
    schema = overload._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def python_operator(target: Any) -> str | None:
    """``py.add`` for `operator.add` and other operators on sizes."""
    import torch

    if getattr(operator, getattr(target, "__name__", ""), None) is target:
        return f"py.{target.__name__}"
    named = {torch.sym_max: "py.sym_max", torch.sym_min: "py.sym_min", torch.sym_not: "py.sym_not"}
    named |= {torch.sym_float: "py.sym_float", torch.sym_int: "py.sym_int"}
    named |= {max: "py.max", min: "py.min", round: "py.round"}
    return named.get(target) if callable(target) else None


def branches(node: FxNode) -> list[str]:
    import torch

    return [str(arg.target) for arg in node.args[1:3]] if node.target is torch.ops.higher_order.cond else []


def loop(node: FxNode) -> tuple[str, str, tuple[Any, Any, Any]] | None:
    """Kind, body, and (carries, rows, operands) of a loop."""
    import torch

    if node.target is torch.ops.higher_order.map_impl:
        body, rows, operands = node.args
        return "map", str(body.target), ((), rows, operands)
    if node.target is torch.ops.higher_order.scan:
        body, carries, rows, operands = node.args
        return "scan", str(body.target), (carries, rows, operands)
    return None


def higher_order(node: FxNode) -> str:
    return f"higher_order.{getattr(node.target, '__name__', '')}"


def wrapped(node: FxNode) -> tuple[str, Sequence[Any]] | None:
    """The graph, and its operands, of a call that only runs it under flags which change no value."""
    target = higher_order(node)
    if target not in WRAPS or not changes_nothing(target, node.args):
        return None
    at = next(at for at, argument in enumerate(node.args) if getattr(argument, "op", "") == "get_attr")
    return str(node.args[at].target), node.args[at + 1 :]


_COPY: Final = (("self", None), ("non_blocking", False), ("dim_order", None))
_LISTED: Final[Mapping[str, tuple[tuple[str, Any], ...]]] = {
    "dim_order_ops::_empty_dim_order.out": (("size", None), ("dim_order", None)),
    "dim_order_ops::_clone_dim_order.out": _COPY,
    "dim_order_ops::_to_dim_order_copy.out": _COPY,
    **dict.fromkeys(("et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out"), (("self", None),)),
}
"""The inputs of kernels, listed because the import of upstream's registries takes seconds."""


@functools.cache
def runtime_operator(kernel: str) -> tuple[str, tuple[tuple[str, Any], ...]] | None:
    """Functional operator of a kernel (``aten.add.Tensor`` for ``aten::add.out``); None if unregistered.

    With it come ``(name, default)`` of each input argument, in the program's order.
    """
    import torch

    namespace, _, rest = kernel.partition("::")
    name, _, overload_name = rest.partition(".")
    if kernel in _LISTED:
        return f"{namespace}.{name}.default", _LISTED[kernel]
    if (known := LANGUAGE_OPERATORS.get(f"{namespace}.{name}.default")) is not None:
        arguments = parsed_schema(f"{namespace}.{name}.default", known.schema).arguments
        return f"{namespace}.{name}.default", tuple((a.name, a.default_value) for a in arguments)
    load_operator_library(namespace, name)
    packet = getattr(getattr(torch.ops, namespace), name, None)
    overload = getattr(packet, overload_name or "default", None) or _without_out(packet, overload_name)
    if overload is None:
        return None
    written = set(out_arguments(overload))
    read = tuple((a.name, a.default_value) for a in overload._schema.arguments if a.name not in written)
    return qualified_name(functional_overload(overload)), read


def _without_out(packet: Any, overload_name: str) -> Any:
    wanted = overload_name.lower().removesuffix("out").rstrip("_") or "default"
    if packet is None or wanted == overload_name.lower():
        return None
    return next((getattr(packet, name) for name in packet.overloads() if name.lower() == wanted), None)


def edge_operator(target: str) -> Any:
    from executorch.exir.dialects._ops import ops

    namespace, name, overload = target.split(".")
    load_operator_library(namespace, name)
    return getattr(getattr(getattr(ops.edge, namespace), name), overload)


def in_order(target: Any, kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """By position, as upstream's passes expect; serialized graphs name all and omit defaults."""
    overload = operator_overload(target)
    if overload is None:
        return (), dict(kwargs)
    rest, args, missing = dict(kwargs), list[Any](), list[Any]()
    for argument in (a for a in overload._schema.arguments if not a.kwarg_only):
        if argument.name in rest:
            args += [*missing, rest.pop(argument.name)]
            missing = []
        else:
            missing.append(argument.default_value)
    return tuple(args), rest


def operator_overload(target: Any) -> torch._ops.OpOverload | None:
    import torch
    from executorch.exir.dialects.edge._ops import EdgeOpOverload

    if isinstance(target, EdgeOpOverload):
        return target._op
    return target if isinstance(target, torch._ops.OpOverload) else None


def register_quantized_operators() -> None:
    """Let undelegated quantize and dequantize be lowered to portable kernels."""
    importlib.import_module("executorch.kernels.quantized")
