"""A graph of the files as torch's `ExportedProgram`: nothing is unpickled, evaluated or executed for it."""

from __future__ import annotations

import importlib
import operator
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.errors import PairingError
from etviz.evaluation.affine import AffineOperator
from etviz.evaluation.operator_rules import Operator, constant, resolve
from etviz.graph.admitted import is_admitted
from etviz.graph.inline import inline
from etviz.graph.ir import CONTROL, Graph, Ref, Tag
from etviz.upstream.operators import operator_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.export import ExportedProgram

    from etviz.graph.ir import Meta

_KINDS: Final = {"user": "USER_INPUT", "buffer": "BUFFER", "constant": "CONSTANT_TENSOR"}


def exported_program(graph: Graph, weights: Mapping[str, torch.Tensor]) -> ExportedProgram:
    """Delegates' operators replace their calls.

    Raises `PairingError` for dynamic sizes, branches, or an operator that is not registered here.
    """
    from torch._export.verifier import TrainingIRVerifier
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.export import ExportedProgram
    from torch.export.graph_signature import (
        ConstantArgument,
        ExportGraphSignature,
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
        TensorArgument,
    )

    flat = inline(graph).graph
    made, names, state, constants = torch.fx.Graph(), {}, {}, {}
    inputs: list[InputSpec] = []
    fake = FakeTensorMode()
    for placeholder in flat.inputs:
        node = names[placeholder.name] = made.placeholder(_plain(placeholder.name))
        tensor = weights[placeholder.target] if placeholder.kind != "user" else None
        node.meta["val"] = _value(fake, placeholder.meta) if tensor is None else fake.from_tensor(tensor)
        target = placeholder.target.rpartition("/")[2] or None if tensor is not None else None
        buffer = placeholder.kind == "buffer"
        if tensor is not None and target is not None:
            (state if buffer else constants)[target] = tensor.clone()  # mapped files are read-only
        kind = InputKind[_KINDS[placeholder.kind]]
        inputs.append(InputSpec(kind, TensorArgument(node.name), target, persistent=True if buffer else None))
    for source in flat.nodes:
        if source.target in CONTROL:
            raise PairingError(
                f"{source.name} is a branch or a loop, which etviz does not turn into an ExportedProgram"
            )
        args, kwargs = _filled(source.args, names), _filled(source.kwargs, names)
        function = _function(source.target)
        node = names[source.name] = made.call_function(function, tuple(args), kwargs, name=_plain(source.name))
        values = [_value(fake, meta) for meta in source.outputs]
        node.meta["val"] = values[0] if len(values) == 1 else values
        node.meta["stack_trace"] = source.stack or None
        node.meta["debug_handle"] = source.handles[0] if source.handles else 0
    mutated = [names[name] for name in flat.mutations.values()]
    results = [names[out.name] if isinstance(out, Ref) else out for out in flat.outputs]
    made.output((*mutated, *results))
    outputs = [
        OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(node.name), target.rpartition("/")[2])
        for node, target in zip(mutated, flat.mutations, strict=True)
    ]
    for result in results:
        is_node = isinstance(result, torch.fx.Node)
        argument = TensorArgument(result.name) if is_node else ConstantArgument("", result)
        outputs.append(OutputSpec(OutputKind.USER_OUTPUT, argument, None))
    return ExportedProgram(
        torch.nn.Module(),
        made,
        ExportGraphSignature(inputs, outputs),
        state,
        {},
        _calls(inputs, outputs),
        constants=constants,
        verifiers=[TrainingIRVerifier],
    )


def _calls(inputs: list[Any], outputs: list[Any]) -> list[Any]:
    import torch.utils._pytree as pytree
    from torch.export import ModuleCallEntry, ModuleCallSignature

    given = [spec.arg for spec in inputs if spec.kind.name == "USER_INPUT"]
    results = [spec.arg for spec in outputs if spec.kind.name == "USER_OUTPUT"]
    takes, gives = (pytree.tree_structure(tree) for tree in ((tuple(given), {}), tuple(results)))
    return [ModuleCallEntry("", ModuleCallSignature(given, results, takes, gives))]


def _function(target: str) -> Any:
    if target == "getitem":
        return operator.getitem
    library, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    in_place = name.endswith("_") and is_admitted(f"{library}.{name[:-1]}.{overload}")
    if library == "dim_order_ops":
        importlib.import_module("executorch.exir")  # registers them
    function = operator_of(target) if in_place or library == "dim_order_ops" else resolve(target)
    overload = function.overload if isinstance(function, Operator) else function
    return overload.overload if isinstance(overload, AffineOperator) else overload


def _plain(name: str) -> str:
    return name.replace("/", "_").replace(".", "_")


def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, Ref):
        return names[value.name]
    if isinstance(value, Tag):
        return constant(value.kind, value.value)
    if isinstance(value, (list, tuple)):
        return [_filled(item, names) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, names) for key, item in value.items()}
    return value


def _value(fake: Any, meta: Meta | None) -> Any:
    if meta is None:
        return None
    sizes = [size for size in meta.shape if isinstance(size, int)]
    if len(sizes) != len(meta.shape):
        raise PairingError("the graph has dynamic sizes, which etviz does not turn into an ExportedProgram")
    with fake:
        return torch.empty(sizes, dtype=getattr(torch, meta.dtype))
