"""Notices a debug buffer whose end is nothing but zeros: a copy that was cut short and filled up.

The buffer has no length of its own, so a copy that lost its end looks like a program whose last values are zero. Such
programs exist. What they can't have is a kernel that gives zeros where the same operator, computed again on what the
runtime had as inputs, gives something else; that of several instructions at the end tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from etviz.artifacts.debug_buffer import DebugBuffer
from etviz.artifacts.scalar_types import SCALAR_TYPES
from etviz.numerics.comparison import Comparison, Gap
from etviz.numerics.runtime_log import RuntimeLog

if TYPE_CHECKING:
    from etviz.artifacts.events import TensorRef

_TINY: Final = 1e-30
"""Values up to here may have been flushed to zero."""
_BLOCK: Final = 1 << 20


def blank_from(buffer: DebugBuffer, refs: Iterable[TensorRef]) -> int | None:
    """Byte from which on every logged tensor is all zeros; None if the last one is not, or is the only one that is."""
    logged = [ref for ref in refs if ref.offset >= 0 and ref.scalar_type in SCALAR_TYPES and ref.nbytes]
    start, count = None, 0
    for ref in sorted(logged, key=lambda ref: ref.offset, reverse=True):
        data = buffer.raw(ref)
        blocks = range(0, len(data), _BLOCK)
        if any(np.frombuffer(data[at : at + _BLOCK], np.uint8).any() for at in blocks):
            break
        start, count = ref.offset, count + 1
    return start if count > 1 else None


def drop_blank_tail(comparison: Comparison, log: RuntimeLog, start: int) -> str:
    """Take back the gaps of values that most likely were lost.

    Parameters
    ----------
    comparison
        Of one execution; changed in place.
    log
        What the runtime logged.
    start
        From `blank_from`.

    Returns
    -------
    str
        What to tell the user; empty if the zeros may well be the program's own.
    """
    tail = [gap for gap in comparison.gaps if log.first_byte(gap.instruction) >= start and not gap.total.qq]
    unexplained = {gap.instruction: gap.node.target for gap in tail if _should_not_be_zero(gap)}
    if not unexplained:
        return ""
    where = f"every value from byte {start} of the debug buffer to its end is zero"
    if len(unexplained) < 2 or all(target == "delegate" for target in unexplained.values()):
        return (
            f"{where[0].upper()}{where[1:]}, where the reference is not. If the file was copied, compare its checksum: "
            "a copy that was cut short looks like this."
        )
    lost = {id(gap) for gap in tail}
    comparison.gaps[:] = [gap for gap in comparison.gaps if id(gap) not in lost]
    reason = f"its value was lost: {where}"
    comparison.reasons.update({gap.instruction: reason for gap in tail})
    if log.first_output_byte() >= start:
        comparison.runtime_outputs = []
    return (
        f"The debug buffer was cut short: {where}, which the operators there can't have given. "
        f"{len({gap.instruction for gap in tail})} instructions are not compared; copy the file again."
    )


def _should_not_be_zero(gap: Gap) -> bool:
    """True if the operator gives something else on the runtime's own inputs."""
    return gap.introduced_sums is not None and gap.introduced_sums.max_r > _TINY
