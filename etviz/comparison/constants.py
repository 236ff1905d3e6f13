"""Constants of the `.pte` that differ from the reference's.

An instruction's argument names its constant. Delegates' are recognized by content: one differs if the `.pte` lacks it,
and has a similar or reordered constant that the reference lacks. Fixed grids, and biases as whole multiples of the
product of the input's and the weight's step, are XNNPACK's.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from etviz.artifacts.program.payload import Payload
from etviz.artifacts.program.xnnpack_payload import unpack
from etviz.errors import EtvizError
from etviz.evaluation.operator_rules import by_position
from etviz.graph.ir import Ref
from etviz.graph.labels import constant_names, row_name
from etviz.graph.quantize_ops import converted, grid_arguments, grid_of, is_conversion, is_dequantize, is_quantize
from etviz.graph.uses import Uses, item_of, only_moves
from etviz.pairing.matched_constants import VIEW, ends, equal_bytes, in_place, stored
from etviz.pipeline.xnnpack_values import PayloadValues
from etviz.tensors.blocks import dtype_name
from etviz.tensors.changes import describe_change, same_values
from etviz.upstream.xnnpack import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from etviz.artifacts.program.program import Program, TensorSpec
    from etviz.graph.ir import Graph, Input, Node
    from etviz.pairing.matched_constants import Bytes

    _Form = tuple[torch.Tensor, tuple[int, ...], Bytes]

_FOLDING: Final = ("convolution", "linear", "addmm", "mm")
_OPERANDS: Final = {"addmm": ("mat1", "mat2", "self")} | dict.fromkeys(
    ("convolution", "linear"), ("input", "weight", "bias")
)
_LAYOUTS: Final = {2: ((1, 0),), 3: ((0, 2, 1), (1, 2, 0)), 4: ((0, 2, 3, 1), (1, 2, 3, 0))}
_GROUPED: Final = (0, 2, 3, 4, 1)
"""Order of a transposed convolution's weight whose first axis is split into groups."""
_ALIKE: Final = 0.9
"""Maximum relative L2 error of two versions of one constant."""
_FEW_VALUES: Final = 8
"""Maximum number of different values of a constant whose other order says nothing."""
_FIRST: Final = 4096
"""Elements that most often have more: to find all values of a weight takes longer than a load."""
_START: Final = 64
SAME: Final = "same bytes"
_OTHER: Final = "not byte for byte"
"""The backend packs or folds it, or its numbers differ."""
_MOST_TRIALS: Final = 64
_SAME: Final = 1e-6  # a step is a product of two float32 scales, which three roundings put off by 1.8e-7 at most


@dataclass(frozen=True, slots=True)
class Difference:
    """A constant, or an activation's grid, of the reference that differs in the program.

    `rel_l2` is relative to the reference's L2 norm. `change` is a sentence (``row 17 of mlp.0.weight is ×−1``) or
    empty.
    """

    name: str
    instruction: int
    elements: int
    differing: int
    rel_l2: float
    max_abs: float
    change: str = ""
    is_grid: bool = False

    def __str__(self) -> str:
        if self.is_grid:
            return self.change
        share = (
            "every element" if self.differing == self.elements else f"{self.differing:,} of {self.elements:,} elements"
        )
        error = f", relative error {self.rel_l2:.3g}" if np.isfinite(self.rel_l2) else ""
        return f"{self.change or self.name} ({share}{error})"


@dataclass(frozen=True, slots=True)
class _Use:
    item: Input
    instruction: int
    inside: bool
    plain: bool
    argument: tuple[int, int | None] | None = None
    """Its place among the operator's arguments, and in a list of tensors there, if known."""
    readers: tuple[str, ...] = ()
    """The nodes that compute with it."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A convolution or linear layer on grids; `given` is its quantized input.

    `of_input` is None where it is chosen at run time. `of_weight` may be the constant that holds the step.
    """

    given: str
    weight: str
    bias: str
    of_input: float | None
    of_weight: float | str

    def steps(self, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
        scales: Any = weights.get(self.of_weight, ()) if isinstance(self.of_weight, str) else self.of_weight
        return torch.as_tensor(scales).detach().double()


class ComparingConstants:
    """Compares in a thread; `graph` has instructions and delegates' insides."""

    def __init__(
        self,
        program: Program,
        method: str,
        graph: Graph,
        weights: Mapping[str, torch.Tensor],
        same: Callable[[], None] | None = None,
    ) -> None:
        self._arguments = program, method, graph, weights
        self._same = same
        self._found: list[Difference] = []
        self._thread = threading.Thread(target=self._run, name="etviz-constants", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(EtvizError):  # a file that is damaged is named by whoever needs its values
            self._found = compare_constants(*self._arguments)
            if not self._found and self._same is not None:
                self._same()

    def unrelated(self) -> bool:
        _, _, graph, weights = self._arguments
        differences = {difference.name: difference for difference in self.result()}
        targets = {use.item.target for use in _uses(graph, -1) if use.plain and use.item.target in weights}
        names = constant_names(graph)
        told = [names[target] for target in targets if tells(weights[target])] if differences else []
        return bool(told) and all(name in differences and differences[name].rel_l2 > _ALIKE for name in told)

    def result(self) -> tuple[Difference, ...]:
        self._thread.join()
        return tuple(self._found)


def tells(tensor: torch.Tensor) -> bool:
    flat = tensor.reshape(-1)
    return any(part.unique().numel() > _FEW_VALUES for part in (flat[:_FIRST], flat))


GRIDS: Final = "quantization grids"


def kind_of(differences: Sequence[Difference]) -> str:
    return GRIDS if all(difference.is_grid for difference in differences) else "weights"


def differing(differences: Sequence[Difference]) -> str:
    told = [*dict.fromkeys(map(str, differences))]  # a value that two delegates read has one grid
    return f"{told[0]} and {len(told) - 1} more" if len(told) > 1 else "".join(told)


def compare_constants(
    program: Program, method: str, graph: Graph, weights: Mapping[str, torch.Tensor]
) -> list[Difference]:
    blobs = _Blobs(program, method, graph)
    missing: dict[str, _Use] = {}
    held = list[_Use]()
    alike: dict[tuple[int, bytes], set[str]] = {}
    differences, names = list[Difference](), constant_names(graph)
    for use in _uses(graph, -1):
        target = use.item.target
        tensor = in_place(weights, target) if target in weights else None
        if tensor is None or not tensor.numel():
            continue
        alike.setdefault(_look(tensor), set()).add(target)
        own = blobs.argument(use, tensor)
        if own is not None:
            if own is not tensor and all(names[target] != difference.name for difference in differences):
                differences.append(_difference(names[target], use.instruction, weights[target], own))
        elif blobs.take(tensor, anyhow=use.inside):
            held += [use] if use.inside and use.plain else []
        elif use.plain:
            missing.setdefault(target, use)
    sizes = Counter(_size(weights[target], anyhow=use.inside) for target, use in missing.items())
    for target, use in missing.items():
        tensor = weights[target]
        nearest = blobs.nearest(tensor, anyhow=use.inside)
        if nearest is None:
            nearest = blobs.left(tensor, sizes[_size(tensor, anyhow=use.inside)], anyhow=use.inside)
        if nearest is not None:
            differences.append(_difference(names[target], use.instruction, tensor, nearest))
    doubtful: dict[int, list[_Use]] = {}
    for use in held:
        if len(alike[_look(weights[use.item.target])]) > 1:
            doubtful.setdefault(use.instruction, []).append(use)
    differences += _inside_delegates(program, method, graph, weights, doubtful)
    return [*{(difference.instruction, difference.name): difference for difference in differences}.values()]


def _inside_delegates(
    program: Program,
    method: str,
    graph: Graph,
    weights: Mapping[str, torch.Tensor],
    doubtful: Mapping[int, Sequence[_Use]],
) -> list[Difference]:
    """`doubtful` constants equal others: contents do not tell them apart."""
    constants, grids, names = list[Difference](), list[Difference](), constant_names(graph)
    groups = _groups(graph)
    for node, inner, payload, given in _payloads(program, method, graph, names):
        quantized, unsure = any(map(is_conversion, inner.nodes)), doubtful.get(node.instruction, ())
        if not quantized and not unsure:
            continue
        with contextlib.suppress(EtvizError, ValueError, LookupError, OSError):  # of another version, or damaged
            values = PayloadValues(inner, unpack(Payload(payload, program.named)))
            for use in unsure:
                tensor = weights[use.item.target]
                read = [content for name in use.readers for content in values.constants(name)]
                own = _among(tensor, read, groups)
                if own is not None:
                    constants.append(_difference(names[use.item.target], node.instruction, tensor, own))
            if quantized:
                constants += _differing_layers(values, inner, node.instruction, weights, names)
                grids += _differing_grids(values, inner, node.instruction, given)
    return constants + grids


def _among(tensor: torch.Tensor, contents: Sequence[bytes], groups: Iterable[int]) -> torch.Tensor | None:
    """The only content that may be the tensor's, in its order, if it is another one."""
    fitting = [np.frombuffer(content, np.uint8) for content in contents if len(content) == _size(tensor, anyhow=True)]
    if len(fitting) != 1 or tensor.dtype.is_complex:
        return None
    forms = [*_layouts(tensor, groups), *_packed(tensor)]
    if any(equal_bytes(fitting[0], content) for _, _, content in forms):
        return None
    numbers = _numbers(fitting[0], tensor)
    like, order, _ = min(forms, key=lambda form: float(_finite(_numbers(form[2], tensor) - numbers).norm()))
    return _in_order(numbers, like, order)


def _look(tensor: torch.Tensor) -> tuple[int, bytes]:
    content = stored(tensor)
    return content.size, ends(content).tobytes()


def _payloads(
    program: Program, method: str, graph: Graph, names: Mapping[str, str]
) -> Iterator[tuple[Node, Graph, memoryview, dict[str, str]]]:
    """The last names a delegate's inputs: constants, and operators outside."""
    told = {placeholder.name: names[placeholder.target] for placeholder in graph.inputs if placeholder.target in names}
    made: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for branch in graph.branches(node):
            yield from _payloads(program, method, branch, names)
        inner, item = graph.inside(node), item_of(node)
        makers = {maker.name: maker for maker in inner.nodes}
        made[node.name] = [_maker(makers, out.name) or node if isinstance(out, Ref) else node for out in inner.outputs]
        maker = (made.get(item[0], [])[item[1] :] if item else made[node.name]) or [node]
        told[node.name] = told.get(converted(node), "") if is_conversion(node) else _label(maker[0])
        payload = program.payload(method, node.instruction) if inner.backend_id == BACKEND else None
        if payload is not None:
            given = zip(inner.user_inputs(), node.args, strict=False)
            read = {placeholder.name: told.get(leaf.name) for placeholder, leaf in given if isinstance(leaf, Ref)}
            yield node, inner, payload, {name: label for name, label in read.items() if label}


def _maker(makers: Mapping[str, Node], name: str) -> Node | None:
    while name in makers and is_conversion(makers[name]) and converted(makers[name]) in makers:
        name = converted(makers[name])
    return makers.get(name)


def _label(node: Node) -> str:
    return row_name("inner", node.target, node.origin, node.module)


def _differing_layers(
    values: PayloadValues, inner: Graph, instruction: int, weights: Mapping[str, torch.Tensor], names: Mapping[str, str]
) -> Iterator[Difference]:
    """Steps of weights, and biases: of static layers as multiples of steps, where other roundings are the same."""
    uses = Uses(inner)
    for node in inner.nodes:
        layer = _layer(uses, node)
        ran = values.filter_scales(node.name) if layer is not None else None
        expected = layer.steps(weights) if layer is not None else torch.empty(0)
        if layer is None or ran is None or ran[0].size != expected.numel():
            continue
        other = _finite(torch.from_numpy(ran[0].astype(np.float64))).reshape(expected.shape)
        kept = expected.to(getattr(torch, ran[1])).double()
        bias, in_file = weights.get(layer.bias), values.bias(node.name)
        if bias is not None and in_file is not None and in_file.size == bias.numel():
            numbers, plain = torch.from_numpy(in_file.astype(np.float64)), bias.detach().double().reshape(-1)
            if layer.of_input is None:
                same = torch.isclose(numbers, bias.detach().float().double().reshape(-1), 0.0, 0.0, equal_nan=True)
            else:
                step = ((values.grid(layer.given) or (layer.of_input,))[0] * other).reshape(-1)
                in_record = layer.of_input * expected.reshape(-1)
                same = _are_counts(numbers, plain / step) | _are_counts(numbers, plain / in_record)
                numbers = torch.where(same, plain, numbers * step)
            if not same.all():
                yield _difference(names[layer.bias], instruction, bias, numbers)
        other = torch.where((other - kept).abs() <= _SAME * kept, expected, other)
        if not torch.equal(other, expected):
            held, weight = layer.of_weight, names.get(layer.weight, "the weight")
            name = names[held] if isinstance(held, str) else f"the scale of {weight}"
            difference = _difference(name, instruction, expected, other.reshape(-1))
            counted = weight if isinstance(held, str) else ""
            if layer.of_input is not None:
                counted = names.get(layer.bias, counted)
            steps = f", in whose steps {counted} is counted" if counted else ""
            yield replace(difference, change=f"{difference.change or name}{steps}", is_grid=True)


def _are_counts(numbers: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    whole = exact.round().clamp(-(2.0**31), 2.0**31 - 1)
    return (numbers - whole).abs() <= 1 + _SAME * whole.abs()


def _differing_grids(
    values: PayloadValues, inner: Graph, instruction: int, given: Mapping[str, str]
) -> Iterator[Difference]:
    makers = {node.name: node for node in inner.nodes}
    for node in inner.nodes:
        grid, name = grid_of(node), node.name if is_quantize(node) else converted(node)
        ran = values.grid(name)
        if grid is None or ran is None or not isinstance(grid.scale, float):
            continue
        source = converted(makers[name]) if name in makers else name
        maker = makers.get(source)
        label = given.get(source, source) if maker is None else _label(maker)
        expected, other = (_finite(torch.tensor([scale], dtype=torch.float64)) for scale in (grid.scale, ran[0]))
        difference = _difference(f"the scale of {label}", instruction, expected, other)
        changes = [difference.change or f"{difference.name} differs"] if difference.rel_l2 > _SAME else []
        if ran[1] != grid.zero_point:
            changes.append(f"the zero point of {label} is {ran[1]} instead of {grid.zero_point}".replace("-", "−"))
        if changes:
            yield replace(difference, name=label, change=" and ".join(changes), is_grid=True)


def constants_of(
    graph: Graph,
    instruction: int,
    weights: Mapping[str, torch.Tensor],
    differing: Sequence[Difference],
    program: Program | None,
    method: str,
) -> list[dict[str, Any]]:
    blobs = _Blobs(program, method, graph) if program is not None else None
    names, differences = constant_names(graph), {difference.name: difference for difference in differing}
    uses = {use.item.target: use for use in _uses(graph, -1) if use.instruction == instruction}
    rows = []
    for target, use in uses.items():
        if target not in weights:
            continue
        tensor, name = weights[target], names[target]
        numbers = tensor.detach().abs().double() if tensor.dtype.is_complex else tensor.detach().double()
        known = tensor.numel() > 0
        if blobs is None:
            told = "there is no .pte"
        elif name in differences:
            told = str(differences[name])
        else:
            told = SAME if known and blobs.has(use, in_place(weights, target)) else _OTHER
        rows.append(
            {
                "name": name,
                "pte": told,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": tuple(tensor.shape),
                "min": float(numbers.min()) if known else np.nan,
                "max": float(numbers.max()) if known else np.nan,
                "rms": float(numbers.square().mean().sqrt()) if known else np.nan,
            }
        )
    return rows


def _difference(name: str, instruction: int, tensor: torch.Tensor, other: torch.Tensor) -> Difference:
    expected = _numbers(stored(tensor), tensor)
    one_sided, norm = expected.isfinite() != other.isfinite(), float(_finite(expected).norm())
    error = torch.where(one_sided, torch.inf, _finite(other) - _finite(expected))
    return Difference(
        name,
        instruction,
        tensor.numel(),
        int((error != 0).sum()),
        float(error.norm()) / norm if norm else np.inf,
        float(error.abs().max()),
        describe_change(name, expected.reshape(tensor.shape), other.reshape(tensor.shape)),
    )


def _uses(graph: Graph, instruction: int) -> Iterator[_Use]:
    uses = Uses(graph)
    computed = {placeholder.name for placeholder in graph.inputs if placeholder.kind != "constant"}
    for node in graph.nodes:
        if not computed.isdisjoint(node.reads()):
            computed.add(node.name)
    quantized = any(is_conversion(node) for node in graph.nodes)
    constants = {placeholder.name: placeholder for placeholder in graph.inputs if placeholder.kind == "constant"}
    for node in graph.nodes:
        at = node.instruction if node.instruction >= 0 else instruction
        for name in node.subgraphs:
            yield from _uses(graph.subgraphs[name], at)
        if node.target == VIEW and at < 0 and (viewed := constants.get(next(iter(node.reads()), ""))) is not None:
            constants[node.name] = viewed  # stored as a constant of the view's shape
        places = _places(node) if node.instruction >= 0 and not graph.backend_id else {}
        for name in dict.fromkeys(node.reads()):
            if name in constants and (at >= 0 or node.target == "delegate"):
                plain = _is_plain(uses, node, constants[name], computed)
                plain = plain and not (graph.backend_id and quantized and _is_bias(constants[name]))
                readers = tuple(_readers(uses, node)) if graph.backend_id else ()
                yield _Use(constants[name], at, bool(graph.backend_id), plain, places.get(name), readers)


def _readers(uses: Uses, node: Node) -> Iterator[str]:
    if not only_moves(node) and not is_dequantize(node):
        yield node.name
    else:
        for user in uses.users.get(node.name, ()):
            yield from _readers(uses, user)


def _places(node: Node) -> dict[str, tuple[int, int | None]]:
    args = node.args
    with contextlib.suppress(EtvizError):
        args = node.args if node.target == "delegate" else by_position(node.target, node.args, node.kwargs)[0]
    places: dict[str, tuple[int, int | None]] = {}
    for at, given in enumerate(args):
        for element, leaf in enumerate(given) if isinstance(given, (list, tuple)) else ((None, given),):
            if isinstance(leaf, Ref):
                places.setdefault(leaf.name, (at, element))
    return places


def _layer(uses: Uses, node: Node) -> _Layer | None:
    names = _OPERANDS.get(node.target.partition(".")[2].partition(".")[0], ())
    in_order = ("self", "mat1", "mat2") if "self" in names else names
    given = {**dict(zip(in_order, node.args, strict=False)), **node.kwargs}
    x, weight, bias = (given.get(argument) for argument in names) if names else (None, None, None)
    targets = {item.name: item.target for item in uses.graph.inputs if item.kind == "constant"}
    read, steps = list[str](), list[Any]()
    for leaf in (x, weight):
        maker = uses.nodes.get(leaf.name) if isinstance(leaf, Ref) else None
        while maker is not None and only_moves(maker):
            maker = uses.nodes.get(converted(maker))
        grid = grid_arguments(maker.target, maker.args, maker.kwargs) if maker and is_dequantize(maker) else None
        scale = grid.scale if grid is not None else None
        steps.append(targets.get(scale.name) if isinstance(scale, Ref) else scale)
        read.append(converted(maker) if maker is not None else "")
    if not isinstance(steps[1], (float, str)):
        return None
    of_input = steps[0] if isinstance(steps[0], float) else None
    bias_target = targets.get(bias.name, "") if isinstance(bias, Ref) else ""
    return _Layer(read[0], targets.get(read[1], ""), bias_target, of_input, steps[1])


def _is_plain(uses: Uses, node: Node, constant: Input, computed: set[str]) -> bool:
    if not uses.graph.backend_id:
        return True
    if is_dequantize(node):
        return converted(node) == constant.name
    kind = node.target.partition(".")[2].partition(".")[0]
    after = uses.users.get(node.name, [])
    if only_moves(node):
        return all(user.target.partition(".")[2].partition(".")[0] in _FOLDING for user in after)
    return kind in _FOLDING and node.name in computed and not any("batch_norm" in user.target for user in after)


def _is_bias(constant: Input) -> bool:
    return constant.meta is not None and len(constant.meta.shape) == 1 and constant.meta.dtype.startswith("float")


class _Blobs:
    def __init__(self, program: Program, method: str, graph: Graph) -> None:
        self._groups = _groups(graph)
        self._program, self._method = program, program.method(method)
        self._calls = {call.index: call for call in self._method.instructions}
        specs = [spec for value in self._method.values if (spec := value.tensor) is not None]
        datas = {_key(spec): data for spec in specs if (data := program.constant(spec)) is not None}
        self._datas = [np.frombuffer(data, np.uint8) for data in (*datas.values(), *program.named.values())]
        self._places = {key: at for at, key in enumerate(datas)}
        orders: dict[int | str, set[tuple[int, ...]]] = {}
        for spec in specs:
            orders.setdefault(_key(spec), set()).add(tuple(spec.dim_order))
        self._orders = [orders[key] for key in datas]
        """Dimension orders in which kernels read each constant."""
        self._by_size: dict[int, list[int]] = {}
        self._taken: set[int] = set()
        for at, data in enumerate(self._datas):
            self._by_size.setdefault(data.size, []).append(at)

    def argument(self, use: _Use, tensor: torch.Tensor) -> torch.Tensor | None:
        """The instruction's constant: `tensor`, other numbers (flat, float64, in its order), or None if unknown."""
        call = self._calls.get(use.instruction)
        if use.argument is None or call is None or use.argument[0] >= len(call.args) or tensor.dtype.is_complex:
            return None
        at, element = use.argument
        given = self._method.values[call.args[at]]
        if element is not None:
            listed = given.value if given.kind.endswith("tensor_list") else ()
            if element >= len(listed) or listed[element] is None:
                return None
            given = self._method.values[listed[element]]
        spec = given.tensor
        data = self._program.constant(spec) if spec is not None else None
        if spec is None or data is None or spec.dtype != dtype_name(tensor.dtype) or len(data) != tensor.nbytes:
            return None
        order = tuple(spec.dim_order)
        straight = order == tuple(range(len(order)))
        if not straight and spec.sizes != tuple(tensor.shape):
            return None
        self._taken.add(self._places[_key(spec)])
        order = () if straight else order
        content = np.frombuffer(data, np.uint8)
        if equal_bytes(content, stored(tensor, order)):
            return tensor
        return _in_order(_numbers(content, tensor), tensor, order)

    def has(self, use: _Use, tensor: torch.Tensor) -> bool:
        own = self.argument(use, tensor)
        return self.take(tensor, anyhow=use.inside) if own is None else own is tensor

    def take(self, tensor: torch.Tensor, *, anyhow: bool) -> bool:
        forms = _layouts(tensor, self._groups) if tensor.nbytes in self._by_size else iter(())
        for _, order, content in itertools.chain(forms, _packed(tensor) if anyhow else ()):
            candidates = self._by_size.get(content.size, ())
            start = content[:_START].tobytes()
            for at in candidates:
                data = self._datas[at]
                if not (anyhow or self._has_order(at, order)):
                    continue
                if data[:_START].tobytes() == start and equal_bytes(data, content):
                    self._taken.add(at)
                    return True
        return False

    def _has_order(self, at: int, order: tuple[int, ...]) -> bool:
        return not order or at >= len(self._orders) or order in self._orders[at]

    def left(self, tensor: torch.Tensor, missing: int, *, anyhow: bool) -> torch.Tensor | None:
        same = self._by_size.get(_size(tensor, anyhow=anyhow), [])
        free = [at for at in same if at not in self._taken]
        said = free and len(free) == missing and not tensor.dtype.is_complex
        if not said or not tells(tensor):
            return None
        same.remove(free[0])
        same.append(free[0])  # the next one is another
        return _numbers(self._datas[free[0]], tensor)

    def nearest(self, tensor: torch.Tensor, *, anyhow: bool) -> torch.Tensor | None:
        """The most similar or reordered constant that the reference lacks: flat, float64, in the tensor's order."""
        if tensor.dtype.is_complex:
            return None
        same = self._by_size.get(_size(tensor, anyhow=anyhow), ())
        free = [at for at in same if at not in self._taken][:_MOST_TRIALS]
        wanted = _finite(_numbers(stored(tensor), tensor))
        norm, best, nearest = float(wanted.norm()), _ALIKE, None
        for like, order, content in _layouts(tensor, self._groups) if free else ():
            expected = _finite(_numbers(content, tensor))
            for at in (at for at in free if anyhow or self._has_order(at, order)):
                numbers = _numbers(self._datas[at], tensor)
                rel = float((_finite(numbers) - expected).norm()) / norm if norm else np.inf
                if rel < best:
                    best, nearest = rel, _in_order(numbers, like, order)
        if nearest is None:
            several = tells(wanted)
            others = (_numbers(self._datas[at], tensor) for at in free if several)
            nearest = next((other for other in others if same_values(other.numpy(), wanted.numpy())), None)
        return nearest


def _key(spec: TensorSpec) -> int | str:
    return spec.name if spec.external else spec.data_index


def _groups(graph: Graph) -> set[int]:
    """Numbers of groups of transposed convolutions; XNNPACK has each group's outputs before its inputs."""
    counts = set[int]()
    for node in graph.nodes:
        if node.target in ("aten.convolution.default", "aten.conv_transpose2d.input"):
            args, _ = by_position(node.target, node.args, node.kwargs)
            counts.add(args[6] if "transpose" in node.target else args[8] if args[6] else 1)
        for name in node.subgraphs:
            counts |= _groups(graph.subgraphs[name])
    return counts


def _layouts(tensor: torch.Tensor, groups: Iterable[int]) -> Iterator[_Form]:
    yield tensor, (), stored(tensor)
    for order in _LAYOUTS.get(tensor.dim(), ()):
        yield tensor, order, stored(tensor, order)
    for count in groups if tensor.dim() == 4 else ():
        if count > 1 and tensor.shape[0] % count == 0:
            apart = tensor.unflatten(0, (count, -1))
            yield apart, _GROUPED, stored(apart, _GROUPED)


def _packed(tensor: torch.Tensor) -> Iterator[_Form]:
    """4-bit integers as XNNPACK stores them: plus 8, the even element in the low bits."""
    if _is_narrow(tensor):
        pairs = stored(tensor).reshape(-1, 2).view(np.int8).astype(np.int16) + 8
        yield tensor, (), (pairs[:, 0] | pairs[:, 1] << 4).astype(np.uint8)


def _size(tensor: torch.Tensor, *, anyhow: bool) -> int:
    return tensor.nbytes // 2 if anyhow and _is_narrow(tensor) else tensor.nbytes


def _is_narrow(tensor: torch.Tensor) -> bool:

    if tensor.dtype != torch.int8 or tensor.dim() != 2 or tensor.shape[-1] % 2:
        return False
    least, most = (int(value) for value in tensor.aminmax())
    return least >= -8 and most < 8


def _in_order(numbers: torch.Tensor, like: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    if not order:
        return numbers
    back = [order.index(axis) for axis in range(len(order))]
    return numbers.reshape([like.shape[axis] for axis in order]).permute(back).reshape(-1)


def _numbers(content: Bytes, like: torch.Tensor) -> torch.Tensor:
    if 2 * content.size == like.nbytes:  # numbers of four bits in pairs
        narrow = np.stack([content & 15, content >> 4], -1).reshape(-1).astype(np.int8) - 8
        return torch.from_numpy(narrow).double()
    return torch.from_numpy(content.copy()).view(like.dtype).double()


def _finite(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.nan_to_num(0.0, 0.0, 0.0)
