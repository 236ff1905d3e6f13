"""Detects a debug buffer of another run: values that the runtime logged twice differ in it.

A delegate logs its inputs; other instructions logged most of them as outputs before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etviz.evaluation.replay import logged_outputs
from etviz.graph.ir import Graph, Node, Ref
from etviz.graph.uses import Uses
from etviz.tensors.digest import octets

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from etviz.evaluation.replay import Log

_MOST: Final = 32
_ELEMENTS: Final = 4096


class LoggedTwice:
    """Finds the values that an instruction logs as its output, and a delegate as its input."""

    def __init__(self, graph: Graph) -> None:
        self._delegates = [node for node in graph.nodes if node.target == "delegate"]
        uses = Uses(graph) if self._delegates else None
        changed = {placeholder.name for placeholder in graph.inputs if placeholder.kind == "buffer"}
        self._makers: dict[str, tuple[Node, int]] = {}
        for node in self._delegates:
            for name in (argument.name for argument in node.args if isinstance(argument, Ref)):
                operator, output = uses.value(name) if uses is not None else ("", 0)
                maker = uses.nodes.get(operator) if uses is not None else None
                if maker is not None and operator not in changed:
                    self._makers[name] = maker, output

    def foreign_buffer(self, log: Log) -> str:
        same = different = 0
        for first, second in self._pairs(log):
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

    def _pairs(self, log: Log) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for node in self._delegates:
            values = log.values(node.instruction)
            if len(values) != len(node.args) + len(node.outputs):
                continue
            for argument, got in zip(node.args, values, strict=False):
                maker, output = self._makers.get(argument.name, (None, 0)) if isinstance(argument, Ref) else (None, 0)
                given = (logged_outputs(log, maker) or []) if maker is not None else []
                if output < len(given) and given[output] is not None and got is not None:
                    yield given[output], got


def _start(tensor: torch.Tensor) -> tuple[object, ...]:
    flat = tensor.detach().reshape(-1)[:_ELEMENTS]
    return flat.dtype, tensor.numel(), octets(flat).numpy().tobytes()
