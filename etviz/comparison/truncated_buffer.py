"""Detects a debug buffer whose end is all zeros: a copy that was truncated and padded.

In a truncated copy, several instructions at the end give zeros although their operators,
computed again on the runtime's inputs, do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etviz.artifacts.etdump.debug_buffer import DebugBuffer
    from etviz.artifacts.etdump.events import TensorRef
    from etviz.artifacts.etdump.runtime_log import RuntimeLog
    from etviz.comparison.gap import ExecutionGaps, Gap

_TINY: Final = 1e-30
"""Threshold of values that may have been flushed to zero."""
_PARTLY: Final = 16
"""Zero bytes at the end of a value before the lost ones that make it doubtful."""
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BlankTail:
    """`start`: first byte of the tensors that are all zero; `edge`: start of the tensor before, if it ends in zeros."""

    start: int
    edge: int

    def reaches(self, offsets: Iterable[int]) -> bool:
        return any(offset >= self.start for offset in offsets)


def blank_tail(buffer: DebugBuffer, refs: Iterable[TensorRef]) -> BlankTail | None:
    """The end of a debug buffer where two or more logged tensors are all zeros."""
    logged = [ref for ref in refs if ref.offset >= 0 and ref.layout.nbytes]
    start, edge, count = 0, -1, 0
    for ref in sorted(logged, key=lambda ref: ref.offset, reverse=True):
        data = buffer.raw(ref)
        blocks = range(0, len(data), _BLOCK)
        if any(np.frombuffer(data[at : at + _BLOCK], np.uint8).any() for at in blocks):
            edge = -1 if any(data[-_PARTLY:]) else ref.offset
            break
        start, count = ref.offset, count + 1
    return BlankTail(start, edge) if count > 1 else None


def drop_blank_tail(comparison: ExecutionGaps, log: RuntimeLog, blank: BlankTail) -> str:
    """Remove the gaps of values that were most likely lost; returns a note, empty if the zeros may be the program's."""
    tail = [g for g in comparison.gaps if not g.total.qq and blank.reaches(log.offsets(g.instruction))]
    unexplained = {gap.instruction: gap.node.target for gap in tail if _should_not_be_zero(gap)}
    if not unexplained:
        return ""
    where = f"every value from byte {blank.start} of the debug buffer to its end is zero"
    if len(unexplained) < 2 or all(target == "delegate" for target in unexplained.values()):
        return (
            f"{where[0].upper()}{where[1:]}, where the reference is not. If the file was copied, compare its checksum: "
            "a copy that was cut short looks like this."
        )
    tail += [g for g in comparison.gaps if blank.edge in log.offsets(g.instruction) and g.total.qq]
    lost = {id(gap) for gap in tail}
    comparison.gaps[:] = [gap for gap in comparison.gaps if id(gap) not in lost]
    reason = f"its value was lost: {where}"
    comparison.reasons.update({gap.instruction: reason for gap in tail})
    if blank.reaches(log.output_offsets()) or blank.edge in log.output_offsets():
        comparison.runtime_outputs = []
    return (
        f"The debug buffer was cut short: {where}, which the operators there can't have given. "
        f"{len({gap.instruction for gap in tail})} instructions are not compared; copy the file again."
    )


def _should_not_be_zero(gap: Gap) -> bool:
    return gap.introduced_sums is not None and gap.introduced_sums.max_r > _TINY
