"""Whether a program is correct: what each of its instructions makes of the runtime's own inputs, against float64.

It knows nothing of etviz. The runtime's values come from a probe: the same lowered program with all of its values as
outputs, so neither ETDump nor debug buffer is asked, which can't hold every dtype. Each instruction, operator or
delegate, is evaluated in float64 on the inputs that the runtime gave it, and several times with the rounding errors of
its own precision; these say by how much a correct implementation may be off there.
"""

from __future__ import annotations

import copy
import importlib
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.delegate import executorch_call_delegate
from executorch.runtime import Runtime
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree

from tests.oracles import flat_inputs

Node: TypeAlias = Any
"""An `fx.Node`; what its arguments are depends on its target."""
Values: TypeAlias = dict[str, Any]
"""Results by the name of their node."""

LIMIT = 8.0
"""By how many times its noise an instruction of a correct program may be off."""
TRIALS = 4
UNIT = {torch.float64: 2.0**-24, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Half a unit in the last place of 1: the relative error of one rounding. What is float64 in a program is the scale of
a grid, computed in float32."""
STEP = 0.5
"""Share of a step by which a requantization of a correct program may differ: every one may round to the neighbour."""
TIE = 1e-3
"""The same where only what lies close to the middle of two steps may: what backends' arithmetic really does."""
ACCUMULATING = (
    *("mm", "bmm", "addmm", "linear", "convolution", "mean", "sum", "cumsum", "var", "avg_pool2d", "rms_norm"),
    *("_adaptive_avg_pool2d", "native_layer_norm", "native_group_norm", "_native_batch_norm_legit_no_training"),
)
"""Operators whose rounding errors follow the size of what they add up, not of the sum."""


@dataclass(frozen=True)
class Check:
    """A value and the node that made it: how far the runtime is off, and how far a correct one may be; both an RMS."""

    name: str
    node: str
    off: float
    noise: float

    @property
    def ratio(self) -> float:
        """Above `LIMIT` it is no rounding."""
        return self.off / self.noise if self.noise else (0.0 if self.off == 0 else math.inf)


@dataclass(frozen=True)
class Certificate:
    """Checks of every instruction on the runtime's inputs, and of every final output on the program's."""

    local: list[Check]
    outputs: list[Check]

    @property
    def worst(self) -> Check:
        """Of the instructions."""
        return max(self.local, key=lambda check: check.ratio)


def certify(
    program: ExportedProgram, inputs: tuple[Any, ...], *, executed: ExportedProgram | None = None, step: float = STEP
) -> Certificate:
    """Check a lowered program, as it was before `to_executorch()`.

    Parameters
    ----------
    program
        What is right.
    inputs
        Its inputs.
    executed
        What the runtime executes, if that is another program of the same structure.
    step
        Share of a step by which requantizations may differ.
    """
    program = copy.deepcopy(program)
    _read_everything(program)
    runtime = _probe(executed or program, inputs)
    constants = dict(zip(_placeholders(program), flat_inputs(program, inputs), strict=True))
    names = [spec.arg.name for spec in program.graph_signature.output_specs if spec.kind == OutputKind.USER_OUTPUT]
    kinds = [Arithmetic(None), *(Arithmetic(seed, step) for seed in range(TRIALS))]
    local = []
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            found = [_list(kind.call(program.graph_module, node, constants | runtime)) for kind in kinds]
            local += _checks(node, runtime, found)
    totals = [kind.run(program, list(constants.values())) for kind in kinds]
    outputs = [_compare(name, name, runtime[name], [t[name] for t in totals]) for name in names if name in runtime]
    return Certificate(local, outputs)


def _checks(node: Node, runtime: Values, found: list[list[Any]]) -> Iterator[Check]:
    users = {user.args[1]: user.name for user in node.users if user.target is operator.getitem}
    for index, name in (users or {0: node.name}).items():
        if name in runtime:
            yield _compare(name, node.name, runtime[name], [results[index] for results in found])


def _compare(name: str, node: str, runtime: Any, found: list[Any]) -> Check:
    exact, *noisy = (torch.as_tensor(value).double() for value in found)
    runtime = torch.as_tensor(runtime)
    unit = UNIT.get(runtime.dtype, 0.0)
    rounded = exact.to(runtime.dtype).double() if unit else exact
    runtime = runtime.double()
    finite = runtime.isfinite() & rounded.isfinite()
    if not torch.equal(runtime[~finite].nan_to_num(0.25), rounded[~finite].nan_to_num(0.25)):
        return Check(name, node, math.inf, 0.0)
    noise = math.sqrt(sum(_rms((other - exact)[finite]) ** 2 for other in noisy) / len(noisy))
    floor = unit * _rms(exact[finite]) if unit else 12**-0.5
    return Check(name, node, _rms((runtime - exact)[finite]), max(noise, floor))


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _placeholders(program: ExportedProgram) -> list[str]:
    return [node.name for node in program.graph.nodes if node.op == "placeholder"]


def _read_everything(program: ExportedProgram) -> None:
    """Give every result of every operator a reader, those included that nobody asks for."""
    for node in list(program.graph.nodes):
        values = node.meta.get("val")
        if node.op != "call_function" or not isinstance(values, (list, tuple)):
            continue
        read = {user.args[1] for user in node.users}
        with program.graph.inserting_after(node):
            for index in set(range(len(values))) - read:
                added = program.graph.call_function(operator.getitem, (node, index))
                added.meta = node.meta | {"val": values[index]}
    program.graph_module.recompile()


def _probe(program: ExportedProgram, inputs: tuple[Any, ...]) -> Values:
    """Every value of a lowered program, as the runtime computes it."""
    program = copy.deepcopy(program)
    _read_everything(program)
    output: Node = program.graph.output_node()
    results = list(output.args[0])
    names = [
        node.name
        for node in program.graph.nodes
        if node.op == "call_function"
        and isinstance(node.meta.get("val"), Tensor)
        and node.name not in program.graph_signature.user_outputs
    ]
    by_name = {node.name: node for node in program.graph.nodes}
    output.args = ([*results, *(by_name[name] for name in names)],)
    program.graph_signature.output_specs.extend(
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name), None) for name in names
    )
    signature = program.module_call_graph[0].signature
    assert signature is not None
    asked = [spec.arg.name for spec in program.graph_signature.output_specs if spec.kind == OutputKind.USER_OUTPUT]
    signature.outputs.extend(TensorArgument(name) for name in names)
    signature.out_spec = pytree.tree_structure(tuple(range(len(asked))))
    program.graph_module.recompile()
    edge = EdgeProgramManager(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    importlib.import_module("executorch.kernels.quantized")
    loaded = Runtime.get().load_program(edge.to_executorch().buffer)
    method: Any = loaded.load_method("forward")
    found = method.execute(pytree.tree_leaves(inputs))
    return {name: value.clone() for name, value in zip(asked, found, strict=True) if isinstance(value, Tensor)}


class Arithmetic:
    """Evaluates graphs in float64, exactly or with the rounding errors of the precision that they are written in.

    Parameters
    ----------
    seed
        Of the rounding errors; None for none.
    step
        Share of a step by which a value may be off before it is put on a grid.
    """

    def __init__(self, seed: int | None, step: float = STEP) -> None:
        self.step = step
        self.random = None if seed is None else torch.Generator().manual_seed(seed)

    def run(self, program: ExportedProgram, inputs: Sequence[Any]) -> Values:
        """Values of all nodes; `inputs` are those of the placeholders."""
        values: Values = dict(zip(_placeholders(program), inputs, strict=True))
        for node in program.graph.nodes:
            if node.op == "call_function":
                values[node.name] = self.call(program.graph_module, node, values)
        return values

    def call(self, module: torch.nn.Module, node: Node, values: Mapping[str, Any]) -> Any:
        """The result of one node."""
        args, kwargs = map_arg(
            (node.args, node.kwargs),
            lambda item: getattr(module, str(item.target)) if item.op == "get_attr" else _widened(values[item.name]),
        )
        if node.target is operator.getitem:
            return args[0][args[1]]
        if node.target is executorch_call_delegate:
            program = args[0].original_module
            found = self.run(program, flat_inputs(program, tuple(args[1:])))
            return [found[result.name] for result in program.graph.output_node().args[0]]
        if "quantize" in str(node.target) or "choose_qparams" in str(node.target):
            return self._quantize(node, args, kwargs)
        args, kwargs = map_aggregate((args, kwargs), _widened)
        exact = node.target(*args, **kwargs)
        return exact if self.random is None else self._round(node, args, kwargs, exact)

    def _round(self, node: Node, args: Any, kwargs: Any, exact: Any) -> Any:
        """Perturb what the operator had to round, and round it; what is representable stays.

        The sum of many numbers may be representable and its parts not, so these operators always see other inputs.
        """
        expected = _list(node.meta["val"])
        results = _list(exact)
        unit = UNIT.get(expected[0].dtype, 0.0)
        if unit and any(f"aten.{name}." in str(node.target) for name in ACCUMULATING):
            args, kwargs = map_aggregate((args, kwargs), lambda item: self._disturb(item, unit))
            results = _list(node.target(*args, **kwargs))
        rounded = [self._rounded(value, like.dtype) for value, like in zip(results, expected, strict=True)]
        return rounded if isinstance(exact, (list, tuple)) else rounded[0]

    def _rounded(self, value: Tensor, kind: torch.dtype) -> Tensor:
        """Only where a float64 result is no number of its own precision it is perturbed."""
        if kind not in UNIT:
            return value
        inexact = value.to(kind).to(value.dtype) != value
        return torch.where(inexact, self._disturb(value, UNIT[kind]), value).to(kind).to(value.dtype)

    def _quantize(self, node: Node, args: Any, kwargs: Any) -> Any:
        """Grids are computed in float32; the noise is a value on its way to the grid that is off by part of a step."""
        args, kwargs = map_aggregate((args, kwargs), _narrowed)
        if self.random is not None and any(name in str(node.target) for name in (".quantize_per", ".quantize_affine")):
            value = args[0]
            noise = torch.rand(value.shape, generator=self.random) * 2 - 1
            args = (value + noise * self.step * _steps(str(node.target), value, args), *args[1:])
        return map_aggregate(node.target(*args, **kwargs), _widened)

    def _disturb(self, value: Any, unit: float) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return value * (1 + unit * (torch.rand(value.shape, generator=self.random, dtype=value.dtype) * 2 - 1))


def _steps(target: str, value: Tensor, args: Any) -> Any:
    """The step of each element's grid, in a form that fits the tensor."""
    if "quantize_affine" in target:
        blocks, scale = args[1:3]
        scale = scale.reshape([size // block for size, block in zip(value.shape, blocks, strict=True)])
        for axis, block in enumerate(blocks):
            scale = scale.repeat_interleave(block, axis)
        return scale
    scale = args[1]
    if not isinstance(scale, Tensor) or scale.numel() == 1:
        return scale
    return scale.reshape([-1 if axis == args[3] else 1 for axis in range(value.dim())])


def _widened(value: Any) -> Any:
    """Tensors and dtypes of floating point become float64."""
    if isinstance(value, Tensor):
        return value.detach().double() if value.is_floating_point() else value.detach()
    return torch.float64 if isinstance(value, torch.dtype) and value in UNIT else value


def _narrowed(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value
