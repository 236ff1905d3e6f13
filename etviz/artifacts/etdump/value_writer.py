"""Puts values that came without an ETDump into the form of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from etviz.artifacts.etdump.events import DebugEvent, Layout, ProfileEvents, TensorRef
from etviz.artifacts.scalar_types import SCALAR_TYPES

_CODES: Final = {item.name: item.code for item in SCALAR_TYPES.values()}
ALIGNMENT: Final = 64
_SCALARS: Final = {bool: "bool", int: "int", float: "double"}


class ValueWriter:
    """Writes tensors into a debug buffer; without `readable`, it leaves out tensors of unknown memory order."""

    def __init__(self, path: Path, *, readable: bool = True, append: bool = False) -> None:
        self.path, self._readable = path, readable
        self._size = path.stat().st_size if append and path.exists() else 0

    def events(
        self,
        chain: int,
        instruction: int,
        values: Iterable[Any],
        *,
        inside: int | str | None = None,
        output: bool = False,
    ) -> Iterator[DebugEvent]:
        for value in values:
            kind, stored = self.value(value)
            yield DebugEvent(chain, instruction, inside, kind, stored, is_output=output)

    def value(self, value: Any) -> tuple[str, Any]:
        if isinstance(value, torch.Tensor):
            ref = self._tensor(value)
            return ("null", None) if ref is None else ("tensor", ref)
        if isinstance(value, (list, tuple)):
            refs = [self._tensor(item) for item in value]
            whole = tuple(ref for ref in refs if ref is not None)
            return ("tensor_list", whole) if len(whole) == len(refs) else ("null", None)
        return _SCALARS.get(type(value), "null"), value

    def _tensor(self, tensor: torch.Tensor) -> TensorRef | None:
        if not self._readable and sum(size > 1 for size in tensor.shape) > 1:
            return None
        plain = tensor.detach().cpu().contiguous()
        code = _CODES[str(tensor.dtype).removeprefix("torch.")]
        layout = Layout(code, tuple(plain.shape), tuple(plain.stride()))
        if not plain.numel():
            return TensorRef(layout, -1)
        padding = -self._size % ALIGNMENT
        with self.path.open("ab") as file:
            file.write(bytes(padding))
            plain.reshape(-1).view(torch.uint8).numpy().tofile(file)
        offset = self._size + padding
        self._size = offset + plain.nbytes
        return TensorRef(layout, offset)


def no_profile() -> ProfileEvents:
    whole, ticks = np.empty(0, np.int64), np.empty(0, np.uint64)
    text = np.empty(0, object)
    return ProfileEvents(
        name=text, chain=whole, instruction_id=whole, delegate_debug_id=text, metadata=text, start=ticks, end=ticks
    )
