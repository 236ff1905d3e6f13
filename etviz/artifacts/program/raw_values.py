"""A program's inputs and outputs as runners keep them: one file per value, raw bytes in memory order.

Plain numbers are int64, float64 or one byte (bool). There is no header, so the length is checked.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from etviz.artifacts.files import PathLike, looks_like, open_artifact
from etviz.artifacts.program.program import Method
from etviz.artifacts.scalar_types import READ_TYPES
from etviz.errors import ArtifactError

_ADVICE: Final = "give the raw file that the runner wrote, copied whole"
_MOST_ELEMENTS: Final = 1 << 58
_NUMBERS: Final = {"int": np.dtype("<i8"), "double": np.dtype("<f8"), "bool": np.dtype("?")}


def raw_bytes(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        order = memory_order(value)
        return value.detach().cpu().permute(order).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "double"
    return np.array([value], _NUMBERS[kind]).tobytes()


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    if tensor.is_contiguous():
        return tuple(range(tensor.dim()))
    return tuple(sorted(range(tensor.dim()), key=lambda d: (-tensor.stride(d), -tensor.shape[d], d)))


def write_inputs(folder: Path, values: Sequence[Any], method: Method | None = None, prefix: str = "input") -> list[str]:
    """Returns names as a runner takes them, with ``:`` and the shape if it is dynamic."""
    named = []
    for at, value in enumerate(values):
        path = folder / f"{prefix}-{at}.bin"
        spec = method.values[method.inputs[at]].tensor if method is not None and at < len(method.inputs) else None
        name = str(path)
        if isinstance(value, torch.Tensor) and spec is not None:
            value = value.detach().permute(spec.dim_order).contiguous() if len(spec.dim_order) == value.dim() else value
            if spec.dynamism != "static":
                shape = [value.shape[spec.dim_order.index(d)] for d in range(value.dim())]
                name += ":" + "x".join(map(str, shape))
        path.write_bytes(raw_bytes(value))
        named.append(name)
    return named


def read_tensor(path: PathLike, dtype: str, sizes: Sequence[int], order: Sequence[int] = ()) -> torch.Tensor:
    """`order` lists dimensions from outermost to innermost in memory, contiguous if empty."""
    known = READ_TYPES.get(dtype)
    if known is None:
        raise ArtifactError(path, f"a tensor of the dtype {dtype} can't be read from a raw file", "name another dtype")
    if math.prod(max(size, 1) for size in sizes) > _MOST_ELEMENTS:
        raise ArtifactError(path, f"no tensor has the shape {tuple(sizes)}", "name the shape of the value in it")
    data = _read(path, math.prod(sizes) * known.itemsize, f"a tensor of {dtype} {tuple(sizes)}")
    if not data:
        return torch.empty(tuple(sizes), dtype=getattr(torch, dtype))
    flat = torch.frombuffer(data, dtype=torch.uint8).view(getattr(torch, dtype))
    order = tuple(order) if len(order) == len(sizes) else tuple(range(len(sizes)))
    return flat.reshape([sizes[d] for d in order]).permute([order.index(d) for d in range(len(order))])


def read_number(path: PathLike, kind: str) -> int | float | bool:
    dtype = _NUMBERS[kind]
    return np.frombuffer(_read(path, dtype.itemsize, f"one number ({kind})"), dtype)[0].item()


def _read(path: PathLike, nbytes: int, what: str) -> bytearray:
    with contextlib.suppress(OSError, ValueError):
        if nbytes == 0 and stat.S_ISREG((status := os.stat(path)).st_mode) and not status.st_size:  # noqa: PTH116 - of each value
            return bytearray()
    with open_artifact(path, "a raw value", _ADVICE) as data:
        if len(data) != nbytes:
            kind = looks_like(data[:64])
            problem = f"the file has {len(data)} bytes, {what} has {nbytes}"
            if kind and kind != "a file of zeros":
                problem += f"; it looks like {kind}"
            raise ArtifactError(os.fspath(path), problem, _ADVICE, found=len(data), expected=nbytes)
        return bytearray(data)
