"""The data of a report as one compressed blob; `js/kernel/container.ts` documents and reads its bytes."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from etviz.view.payload.wire import Answer

VERSION: Final = 1
_ALIGNMENT: Final = 8
_LEVEL: Final = 7


def packed(block: bytes) -> bytes:
    return gzip.compress(block, _LEVEL, mtime=0)


def laid_out(
    payload: Answer,
    tensors: Mapping[int, Answer],
    missing: Mapping[int, str],
    answers: Mapping[tuple[str, int], Answer],
) -> bytes:
    """The answers to all questions of a report, in one block.

    `missing` has reasons by row; `answers` the answers to other questions, by method and row. Reports of further
    methods are each the only buffer of an answer to ``method``.
    """
    held: list[bytes] = []

    def hold(buffers: list[bytes]) -> list[int]:
        held.extend(buffers)
        return list(range(len(held) - len(buffers), len(held)))

    header: dict[str, Any] = {"version": VERSION, "payload": payload[0], "payload_buffers": hold(payload[1])}
    header["tensors"] = {str(row): {"result": result, "buffers": hold(data)} for row, (result, data) in tensors.items()}
    header["missing"] = {str(row): reason for row, reason in missing.items()}
    header["answers"] = {
        f"{method}:{row}": {"result": result, "buffers": hold(data)}
        for (method, row), (result, data) in answers.items()
    }
    ends = {at: even for at, buffer in enumerate(held) if (even := evenly_spaced(buffer)) is not None}
    header["even"] = ends
    held = [b"" if at in ends else buffer for at, buffer in enumerate(held)]
    planes = {at: split for at, buffer in enumerate(held) if (split := in_planes(buffer)) is not None}
    header["planes"] = [*planes]
    held = [planes.get(at, buffer) for at, buffer in enumerate(held)]
    header["offsets"], end = [], 0
    for buffer in held:
        header["offsets"].append(end)
        end += len(buffer) + _room(len(buffer))
    header["lengths"] = [len(buffer) for buffer in held]
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode("ascii")
    text += b" " * _room(4 + len(text))
    parts = [struct.pack("<I", len(text)), text]
    for buffer in held:
        parts += [buffer, bytes(_room(len(buffer)))]
    return b"".join(parts)


def evenly_spaced(buffer: bytes) -> tuple[float, float, int] | None:
    """First, last and number of float64 values that follow from these, bit for bit, as edges of bins do."""
    if len(buffer) % 8 or len(buffer) < 4 * 8:
        return None
    values = np.frombuffer(buffer, "<f8")
    first, last, steps = float(values[0]), float(values[-1]), len(values) - 1
    with np.errstate(all="ignore"):
        again = first + np.arange(steps + 1) * ((last - first) / steps)
    again[-1] = last
    return (first, last, steps + 1) if np.isfinite([first, last]).all() and again.tobytes() == buffer else None


def in_planes(buffer: bytes) -> bytes | None:
    """The first bytes of all words of 8 bytes, then the second ones and so on; None where that compresses no better."""
    if len(buffer) % 8 or not buffer:
        return None
    planes = np.frombuffer(buffer, np.uint8).reshape(-1, 8).T.tobytes()
    return planes if len(zlib.compress(planes, 1)) < len(zlib.compress(buffer, 1)) else None


def _room(size: int) -> int:
    return -size % _ALIGNMENT
