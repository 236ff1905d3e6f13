"""Quantized weights, dequantized once for several evaluations of an instruction.

For one token, dequantizing a weight takes longer than using it.
"""

from __future__ import annotations

import math
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.artifacts.buffers import LARGE, Buffers
from etviz.evaluation.limits import nbytes
from etviz.graph.quantize_ops import DEQUANTIZE, conversion, grid_arguments, product_weights, unpacked_weights
from etviz.graph.uses import gives_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from etviz.graph.ir import Graph, Meta, Node
    from etviz.graph.quantize_ops import GridArguments

_KEPT: Final = 128 << 20
"""Maximum bytes of the last used values that are kept."""
_CACHED: Final = 4 << 20
"""Bytes of a weight that are dequantized at a time, to stay in the processor's cache."""
_ROWS: Final = 64
"""Rows per block, or a multiple: a product of these blocks has the bits of the whole product."""


def has_unpacked(graph: Graph) -> bool:
    return any(unpacked_weights(part) for part in (graph, *graph.subgraphs.values()))


def largest_value(graph: Graph) -> int | None:
    """Elements of the largest tensor that is no dequantized weight; None if a size is unknown."""
    parts = [(part, unpacked_weights(part)) for part in (graph, *graph.subgraphs.values())]
    nodes = (node for part, weights in parts for node in part.nodes if node.name not in weights)
    values = (node for node in nodes if not gives_number(node))
    sizes = [elements(meta) for node in values for meta in node.outputs]
    return None if None in sizes else max((size for size in sizes if size is not None), default=0)


def elements(meta: Meta | None) -> int | None:
    sizes = meta.sizes if meta is not None else None
    return math.prod(sizes) if sizes is not None else None


class Unpacked:
    """The last dequantized weights, each for the value that it was made from."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[Graph, frozenset[str]]] = {}
        self._streamed: dict[int, tuple[Graph, frozenset[str]]] = {}
        self._values: OrderedDict[int, tuple[Node, Any, weakref.ref[Any] | None]] = OrderedDict()
        self._size = 0
        self._buffers = Buffers.shared()  # kept for all of them while there are evaluations
        self._alive: dict[int, tuple[Graph, Node, weakref.ref[Any]]] = {}

    def holds(self, graph: Graph, node: Node) -> bool:
        if id(graph) not in self._names:
            self._names[id(graph)] = graph, unpacked_weights(graph)  # the graph is kept, so its id stays its own
        return node.name in self._names[id(graph)][1]

    def before(self, graph: Graph, node: Node) -> list[str]:
        """The dequantized weights that such a node rearranges, which may be the runtime's, or be substituted."""
        return [name for name in node.reads() if name in self._names[id(graph)][1]]

    def value(self, graph: Graph, node: Node, given: Sequence[Any], compute: Callable[[], Any]) -> Any:
        source = next((argument for argument in given if isinstance(argument, torch.Tensor)), None)
        source = source if self.before(graph, node) else None
        kept = self._values.get(id(node))
        if kept is not None and (kept[2] is None if source is None else kept[2] is not None and kept[2]() is source):
            self._values.move_to_end(id(node))
            return kept[1]
        if kept is not None:
            self._size -= nbytes(self._values.pop(id(node))[1])
        value = compute()
        self._alive = {key: entry for key, entry in self._alive.items() if entry[2]() is not None}
        self._alive[id(node)] = graph, node, weakref.ref(value)
        if nbytes(value) <= _KEPT:
            self._make_room(nbytes(value))
            self._values[id(node)] = node, value, None if source is None else weakref.ref(source)
            self._size += nbytes(value)
        return value

    def _make_room(self, size: int) -> None:
        while self._values and self._size + size > _KEPT:
            self._size -= nbytes(self._values.popitem(last=False)[1][1])

    def source(self, storage: int) -> tuple[Graph, Node] | None:
        for graph, node, reference in self._alive.values():
            value = reference()
            if value is not None and value.untyped_storage().data_ptr() == storage:
                return graph, node
        return None

    def streams(self, graph: Graph, node: Node) -> bool:
        if id(graph) not in self._streamed:
            self._streamed[id(graph)] = graph, product_weights(graph)  # as with `holds`
        return node.name in self._streamed[id(graph)][1]

    def dequantized(
        self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any], dtype: torch.dtype
    ) -> torch.Tensor | None:
        """In reused memory; None if `Quantized.of` returns None."""
        weight = Quantized.of(target, args, kwargs, dtype)
        if weight is None:
            return None
        self._make_room(math.prod(weight.shape) * dtype.itemsize)
        return weight.whole()


class Quantized:
    __slots__ = ("_blocks", "_norms", "_scale", "_x", "_zero", "dtype", "shape")

    def __init__(self, x: torch.Tensor, blocks: Sequence[int], scale: Any, zero: Any, dtype: torch.dtype) -> None:
        self.shape, self.dtype = x.shape, dtype
        self._x, self._blocks, self._scale, self._zero = x, blocks, scale, zero
        self._norms: torch.Tensor | None = None

    @classmethod
    def of(cls, target: str, args: Sequence[Any], kwargs: Mapping[str, Any], dtype: torch.dtype) -> Quantized | None:
        """None for other operators, small tensors, and types that operators treat specially."""
        grid = grid_arguments(target, args, kwargs) if conversion(target) == DEQUANTIZE else None
        x = args[0] if args else kwargs.get("input")
        if grid is None or not isinstance(x, torch.Tensor) or x.numel() < LARGE or not _plain(grid, x, dtype):
            return None
        blocks = grid.blocks(x.shape)
        if len(blocks) != x.ndim or any(block < 1 or size % block for size, block in zip(x.shape, blocks, strict=True)):
            return None
        numbers = [size // block for size, block in zip(x.shape, blocks, strict=True)]
        several = [v for v in (grid.scale, grid.zero_point) if isinstance(v, torch.Tensor) and v.numel() != 1]
        if any(v.numel() != math.prod(numbers) for v in several):
            return None

        def spread(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or value.numel() == 1:
                return value.item() if isinstance(value, torch.Tensor) else value
            return value.detach().to(dtype).reshape(numbers)

        zero = spread(grid.zero_point)
        shifted = bool(zero.any()) if isinstance(zero, torch.Tensor) else bool(zero)
        return cls(x, blocks, spread(grid.scale), zero if shifted else None, dtype)

    @property
    def has_rows(self) -> bool:
        """True for two axes whose first can be split anywhere."""
        return len(self.shape) == 2 and self._blocks[0] in (1, self.shape[0])

    @property
    def like(self) -> torch.Tensor:
        return torch.empty(1, dtype=self.dtype).expand(self.shape)

    def whole(self) -> torch.Tensor:
        """``(x − zero) · scale`` by blocks, with the operators' bits."""
        return self._fill(Buffers.shared().empty(self.shape, self.dtype), slice(None))

    def rows(self) -> Iterator[tuple[slice, torch.Tensor]]:
        count, width = self.shape
        number = max(_ROWS, _CACHED // (width * self.dtype.itemsize) // _ROWS * _ROWS)
        memory = Buffers.shared().empty((min(number, count), width), self.dtype)
        for first in range(0, count, number):
            rows = slice(first, min(first + number, count))
            yield rows, self._fill(memory[: rows.stop - first], rows)

    def norms(self) -> torch.Tensor:
        if self._norms is None:
            self._norms = torch.cat([torch.linalg.vector_norm(block, dim=1).square() for _, block in self.rows()])
        return self._norms

    def _fill(self, made: torch.Tensor, rows: slice) -> torch.Tensor:
        x, cut = self._x[rows], self._blocks[0] == 1
        blocks = (
            [*(self._blocks if cut else (made.shape[0], *self._blocks[1:]))] if rows != slice(None) else self._blocks
        )
        apart = made.view(
            [part for size, block in zip(made.shape, blocks, strict=True) for part in (size // block, block)]
        )

        def spread(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            value = value[rows] if cut else value
            return value.reshape([part for size in value.shape for part in (size, 1)])

        apart.copy_(x.reshape(apart.shape))
        if self._zero is not None:
            apart.sub_(spread(self._zero))
        apart.mul_(spread(self._scale))
        return made


def _plain(grid: GridArguments, x: torch.Tensor, dtype: torch.dtype) -> bool:
    """True for integers whose difference from the zero point is exact, and scales that are not rounded."""
    zeros = [torch.int32, torch.int64, torch.float32, dtype]
    if grid.granularity == "affine":  # the others subtract first, in the type of both
        zeros.append(torch.int8)
    fits = not isinstance(grid.zero_point, torch.Tensor) or grid.zero_point.dtype in zeros
    scale = isinstance(grid.scale, float) or (
        isinstance(grid.scale, torch.Tensor) and grid.scale.dtype in (torch.float32, dtype)
    )
    return fits and scale and x.dtype in (torch.int8, torch.uint8)
