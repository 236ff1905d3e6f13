"""A debug buffer that is not the ETDump's own: values that the runtime logged twice are not the same there.

A delegate logs its inputs, and most of them are outputs that other instructions logged before. In the buffer of another
run or program, the two places hold different bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etviz.evaluation.replay import logged_outputs
from etviz.graph.ir import Graph, Ref
from etviz.graph.uses import Uses

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from etviz.evaluation.replay import Log

_MOST: Final = 32
"""Values that are looked at."""
_ELEMENTS: Final = 4096
"""Elements of each."""


def foreign_buffer(graph: Graph, log: Log) -> str:
    """What is to be said of the debug buffer if most values that were logged twice differ, else nothing."""
    same = different = 0
    for first, second in _pairs(graph, log):
        if _start(first) == _start(second):
            same += 1
        else:
            different += 1
        if same + different == _MOST:
            break
    if different < 2 or different <= same:
        return ""
    return (
        f"The debug buffer is of another run: {different} of {same + different} values that the runtime logged twice "
        "are not the same in it. Give the debug buffer that was written with this ETDump; the gaps mean nothing."
    )


def _pairs(graph: Graph, log: Log) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What an instruction gave, and what a delegate that reads it got."""
    uses = Uses(graph)
    changed = {item.name for item in graph.inputs if item.kind == "buffer"}
    for node in graph.nodes:
        values = log.values(node.instruction) if node.target == "delegate" else []
        if len(values) != len(node.args) + len(node.outputs):
            continue
        for argument, got in zip(node.args, values, strict=False):
            operator, output = uses.value(argument.name) if isinstance(argument, Ref) else ("", 0)
            maker = uses.nodes.get(operator)
            if maker is None or operator in changed:
                continue
            given = logged_outputs(log, maker) or []
            if output < len(given) and given[output] is not None and got is not None:
                yield given[output], got


def _start(tensor: torch.Tensor) -> tuple[object, ...]:
    """Dtype and the first elements, bit for bit."""
    import torch

    flat = tensor.detach().reshape(-1)[:_ELEMENTS].contiguous()
    return flat.dtype, tensor.numel(), flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
