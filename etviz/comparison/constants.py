"""Constants of the `.pte` that are not those of the reference: the best evidence that there can be.

Constants are told by their content. A weight that is nowhere in the `.pte`, beside a constant of the `.pte` that is
nowhere in the reference and is much like it, differs. What a backend makes of several constants (a batch norm in the
weights of a convolution, a bias as integers) can't be told so, and is left out.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etviz.errors import EtvizError
from etviz.graph.quantize_ops import converted, is_conversion, is_dequantize
from etviz.graph.uses import Uses, only_moves
from etviz.pairing.constants import equal_bytes, in_place, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

    from etviz.artifacts.program.program import Program
    from etviz.graph.ir import Graph, Input, Node
    from etviz.pairing.constants import Bytes

_FOLDING: Final = ("convolution", "linear", "addmm", "mm")
_LAYOUTS: Final = {2: ((1, 0),), 3: ((0, 2, 1),), 4: ((0, 2, 3, 1), (1, 2, 3, 0))}
"""Dimension orders, beside its own, in which a backend stores a constant of so many dimensions."""
_ALIKE: Final = 0.9
"""Relative L2 error up to which two constants are taken for two versions of one."""
_START: Final = 64
_MOST_TRIALS: Final = 64


@dataclass(frozen=True, slots=True)
class Difference:
    """A constant of the reference of which the program has another version.

    Attributes
    ----------
    name
        Its qualified name.
    instruction
        The first instruction that reads it.
    elements, differing
        Number of its elements, and of those that differ.
    rel_l2, max_abs
        L2 norm of the difference over that of the reference's, and the largest absolute difference.
    """

    name: str
    instruction: int
    elements: int
    differing: int
    rel_l2: float
    max_abs: float

    def __str__(self) -> str:
        share = (
            "every element" if self.differing == self.elements else f"{self.differing:,} of {self.elements:,} elements"
        )
        return f"{self.name} ({share}, relative error {self.rel_l2:.3g})"


@dataclass(frozen=True, slots=True)
class _Use:
    """A constant where it is read: by which instruction, and whether the program must hold it as it is."""

    item: Input
    instruction: int
    plain: bool


class ComparingConstants:
    """Compares in a thread of its own, while the program's values are compared.

    Parameters
    ----------
    program
        The `.pte`.
    method
        Name of the method.
    graph
        Of the method, with instructions and the insides of delegates.
    weights
        The reference's constants by `Input.target`.
    same
        Called where none differs.
    """

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

    def result(self) -> tuple[Difference, ...]:
        """Wait, and tell what differs."""
        self._thread.join()
        return tuple(self._found)


def differing(differences: Sequence[Difference]) -> str:
    """Which constants differ, in words."""
    if not differences:
        return ""
    rest = len(differences) - 1
    return f"{differences[0]}" + (f" and {rest} more" if rest else "")


def compare_constants(
    program: Program, method: str, graph: Graph, weights: Mapping[str, torch.Tensor]
) -> list[Difference]:
    """The constants that differ, in the order in which instructions read them."""
    blobs = _Blobs(program, method)
    missing: dict[str, _Use] = {}
    for use in _uses(graph, -1):
        target = use.item.target
        tensor = in_place(weights, target) if target in weights else None
        if tensor is None or not tensor.numel():
            continue
        if not blobs.take(tensor) and use.plain:
            missing.setdefault(target, use)
    found = []
    for target, use in missing.items():
        nearest = blobs.nearest(weights[target])
        if nearest is not None:
            found.append(Difference(target.rpartition("/")[2], use.instruction, weights[target].numel(), *nearest))
    return found


def _uses(graph: Graph, instruction: int) -> Iterator[_Use]:
    """The constants of a graph, and of its delegates and branches, in program order."""
    uses = Uses(graph)
    computed = {item.name for item in graph.inputs if item.kind != "constant"}
    for node in graph.nodes:
        if not computed.isdisjoint(node.reads()):
            computed.add(node.name)
    quantized = any(is_conversion(node) for node in graph.nodes)
    constants = {item.name: item for item in graph.inputs if item.kind == "constant"}
    for node in graph.nodes:
        at = node.instruction if node.instruction >= 0 else instruction
        for name in node.subgraphs:
            yield from _uses(graph.subgraphs[name], at)
        for name in dict.fromkeys(node.reads()):
            if name in constants and (at >= 0 or node.target == "delegate"):
                plain = _is_plain(uses, node, constants[name], computed)
                plain = plain and not (graph.backend_id and quantized and _is_bias(constants[name]))
                yield _Use(constants[name], at, plain)


def _is_plain(uses: Uses, node: Node, item: Input, computed: set[str]) -> bool:
    """True if a backend has no reason to store a constant as anything else than its elements."""
    if not uses.graph.backend_id:
        return True
    if is_dequantize(node):
        return converted(node) == item.name
    kind = node.target.partition(".")[2].partition(".")[0]
    after = uses.users.get(node.name, [])
    if only_moves(node):
        return all(user.target.partition(".")[2].partition(".")[0] in _FOLDING for user in after)
    return kind in _FOLDING and node.name in computed and not any("batch_norm" in user.target for user in after)


def _is_bias(item: Input) -> bool:
    return item.meta is not None and len(item.meta.shape) == 1 and item.meta.dtype.startswith("float")


class _Blobs:
    """The constants that a `.pte` holds, and which of them are the reference's."""

    def __init__(self, program: Program, method: str) -> None:
        specs = [value.tensor for value in program.method(method).values]
        datas = {spec.data_index: data for spec in specs if spec and (data := program.constant(spec)) is not None}
        self._datas = [np.frombuffer(data, np.uint8) for data in (*datas.values(), *program.named.values())]
        self._by_size: dict[int, list[int]] = {}
        self._taken: set[int] = set()
        for at, data in enumerate(self._datas):
            self._by_size.setdefault(data.size, []).append(at)

    def take(self, tensor: torch.Tensor) -> bool:
        """True if a tensor is among them, in one of its layouts."""
        candidates = self._by_size.get(tensor.nbytes, ())
        for content in _layouts(tensor) if candidates else ():
            start = content[:_START].tobytes()
            for at in candidates:
                data = self._datas[at]
                if data[:_START].tobytes() == start and equal_bytes(data, content):
                    self._taken.add(at)
                    return True
        return False

    def nearest(self, tensor: torch.Tensor) -> tuple[int, float, float] | None:
        """How far the most similar one that is not the reference's is off: elements, relative L2, largest error."""
        if tensor.dtype.is_complex:
            return None
        free = [at for at in self._by_size.get(tensor.nbytes, ()) if at not in self._taken][:_MOST_TRIALS]
        best: tuple[int, float, float] | None = None
        for content in _layouts(tensor) if free else ():
            expected = _numbers(content, tensor)
            norm = float(expected.norm())
            for at in free:
                error = _numbers(self._datas[at], tensor) - expected
                rel = float(error.norm()) / norm if norm else np.inf
                if rel < (best[1] if best else _ALIKE):
                    best = int((error != 0).sum()), rel, float(error.abs().max())
        return best


def _layouts(tensor: torch.Tensor) -> Iterator[Bytes]:
    yield stored(tensor)
    for order in _LAYOUTS.get(tensor.dim(), ()):
        yield stored(tensor, order)


def _numbers(content: Bytes, like: torch.Tensor) -> torch.Tensor:
    """Bytes as finite numbers in float64."""
    import torch

    return torch.from_numpy(content.copy()).view(like.dtype).double().nan_to_num(0.0, 0.0, 0.0)
