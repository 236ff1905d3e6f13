"""Latency of instructions and of operators inside delegates, from the ETDump's profiling events.

Durations are ``end − start`` in the device's clock; `source_time_scale` says what its unit is. Everything is shown in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from etviz.artifacts.etdump import RunBlock
from etviz.errors import UsageError

TO_MS: Final = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "cycles": 1.0}
"""Factor from each time scale to milliseconds; cycles stay cycles."""
_CALLS: Final = ("OPERATOR_CALL", "DELEGATE_CALL")


def scale_factor(source_time_scale: str) -> float:
    """Milliseconds of one unit.

    Raises
    ------
    UsageError
        If the name is none of ``ns, us, ms, s, cycles``.
    """
    if source_time_scale not in TO_MS:
        raise UsageError(f"source_time_scale must be one of {', '.join(TO_MS)}, found {source_time_scale!r}")
    return TO_MS[source_time_scale]


def instruction_latency(blocks: Iterable[RunBlock], factor: float) -> dict[int, float]:
    """Mean latency of each instruction over all blocks, in milliseconds."""
    samples: dict[int, list[float]] = {}
    for block in blocks:
        profile = block.profile
        rows = np.flatnonzero(np.isin(profile.name.astype(str), _CALLS) & (profile.chain >= 0))
        times = (profile.end[rows].astype(np.int64) - profile.start[rows].astype(np.int64)).astype(float) * factor
        for instruction, time in zip(profile.instruction_id[rows].tolist(), times.tolist(), strict=True):
            samples.setdefault(instruction, []).append(time)
    return {instruction: float(np.mean(times)) for instruction, times in samples.items()}
