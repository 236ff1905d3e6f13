"""Values that the runtime logged twice: by the instruction that wrote them, and by who received them.

A delegate logs its inputs, and the method its outputs. In a debug buffer of another run, most of them differ.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from etviz.evaluation.replay import logged_outputs
from etviz.graph.ir import Graph, Node, Ref, refs
from etviz.graph.uses import Uses
from etviz.tensors.digest import octets, same_bits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etviz.evaluation.replay import Log

_MOST: Final = 32
_ELEMENTS: Final = 4096


class Overwritten(NamedTuple):
    """An instruction's value that was another one when a delegate read it, or, for -1, when the method returned it."""

    instruction: int
    reader: int
    place: int


_Pair = tuple[Overwritten, torch.Tensor, torch.Tensor]


class LoggedTwice:
    def __init__(self, graph: Graph) -> None:
        self._delegates = [node for node in graph.nodes if node.target == "delegate"]
        self._outputs = graph.outputs
        uses, self._makers = Uses(graph), dict[str, tuple[Node, int]]()
        for name in refs([*(node.args for node in self._delegates), graph.outputs]):
            operator, output = uses.value(name)
            if (maker := uses.nodes.get(operator)) is not None:
                self._makers[name] = maker, output

    def foreign_buffer(self, log: Log) -> str:
        same = different = 0
        for _, first, second in (pair for node in self._delegates for pair in self._given(log, node)):
            if _start(first) == _start(second):
                same += 1
            else:
                different += 1
            if max(2 * same, same + different) >= _MOST:  # the rest can't outweigh half of them
                break
        if different < 2 or different <= same:
            return ""
        return (
            f"The debug buffer is of another run: {different} of {same + different} values that the runtime logged "
            "twice are not the same in it; give the debug buffer that was written with this ETDump."
        )

    def overwritten(self, log: Log) -> Overwritten | None:
        """The first value that is not the same in all its elements."""
        given = (pair for node in self._delegates for pair in self._given(log, node))
        return next((at for at, first, second in chain(given, self._returned(log)) if _differ(first, second)), None)

    def received(self, log: Log, delegate: Node) -> dict[int, torch.Tensor]:
        """By place, the inputs of a delegate that are not what was written."""
        return {at.place: got for at, first, got in self._given(log, delegate) if _differ(first, got)}

    def _given(self, log: Log, delegate: Node) -> Iterator[_Pair]:
        values = log.values(delegate.instruction)
        if len(values) == len(delegate.args) + len(delegate.outputs):
            yield from self._pairs(log, delegate.instruction, delegate.args, values)

    def _returned(self, log: Log) -> Iterator[_Pair]:
        values = log.outputs()
        if len(values) == len(self._outputs):
            yield from self._pairs(log, -1, self._outputs, values)

    def _pairs(self, log: Log, reader: int, names: Sequence[Any], values: Sequence[Any]) -> Iterator[_Pair]:
        for place, (name, received) in enumerate(zip(names, values, strict=False)):
            maker, output = self._makers.get(name.name, (None, 0)) if isinstance(name, Ref) else (None, 0)
            written = (logged_outputs(log, maker) or []) if maker is not None else []
            if maker is None or len(written) != max(1, len(maker.outputs)) or written[output] is None:
                continue
            if isinstance(received, torch.Tensor):
                yield Overwritten(maker.instruction, reader, place), written[output], received


def _differ(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and not same_bits(first, second)


def _start(tensor: torch.Tensor) -> tuple[object, ...]:
    flat = tensor.detach().reshape(-1)[:_ELEMENTS]
    return flat.dtype, tensor.numel(), octets(flat).numpy().tobytes()
