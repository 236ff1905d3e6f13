"""Constants in float64 while they are needed: all together would take twice the memory of the weights."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch

from etviz.artifacts.buffers import LARGE, Buffers
from etviz.artifacts.record.stored_tensors import NamedTensors
from etviz.evaluation.interpreter import weight_of
from etviz.tensors.finite import has_nonfinite

_KEPT: Final = 96 << 20
_COMPACT: Final = 1 << 16
"""Threshold in elements: autograd keeps larger tensors as float32."""
_SAVED_TWICE: Final = 6
"""Maximum number of saved tensors that are searched for an equal one."""


def widen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return [widen(item) for item in value]
    return value


class WideConstants(NamedTensors):
    """One method's constants in float64, by `Input.target`; `narrow` ones as they are.

    The last used ones, of at most `most` bytes, are kept.
    """

    def __init__(self, constants: Mapping[str, torch.Tensor], narrow: Container[str] = (), most: int = _KEPT) -> None:
        self._names = self._constants = constants
        self._most = most
        self._narrow = narrow
        self._kept: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self._buffers = Buffers.shared()  # kept while there are constants
        self._targets: dict[int, str] = {}
        self._bytes = 0

    def __getitem__(self, target: str) -> torch.Tensor:
        kept = self._kept.pop(target, None)
        if kept is not None:
            self._kept[target] = kept
            return kept[0]
        narrow = weight_of(self._constants, target)
        wide = self._widened(narrow) if target not in self._narrow else narrow
        if wide is not narrow and 0 < wide.nbytes <= self._most:
            self._keep(target, wide, narrow)
        return wide

    def _widened(self, narrow: torch.Tensor) -> torch.Tensor:
        if narrow.numel() < LARGE or not narrow.is_floating_point() or not narrow.is_contiguous():
            return widen(narrow)
        return self._buffers.empty(narrow.shape, torch.float64).copy_(narrow)

    def narrow(self, wide: Any) -> torch.Tensor | None:
        target = self._target(wide)
        if target is None:
            return None
        return _part(self._kept[target][1], wide.shape, wide.stride(), int(wide.storage_offset()))

    def narrow_again(self, wide: Any) -> Callable[[], torch.Tensor] | None:
        """Reads it then: backward passes need each weight much later."""
        target = self._target(wide)
        if target is None:
            return None
        size, stride, start = wide.shape, wide.stride(), int(wide.storage_offset())
        return lambda: _part(weight_of(self._constants, target), size, stride, start)

    def _target(self, wide: Any) -> str | None:
        target = self._targets.get(wide.untyped_storage().data_ptr()) if isinstance(wide, torch.Tensor) else None
        if target is None:
            return None
        kept, narrow = self._kept[target]
        return target if narrow.shape == kept.shape and narrow.stride() == kept.stride() else None

    def _keep(self, target: str, wide: torch.Tensor, narrow: torch.Tensor) -> None:
        self._bytes += wide.nbytes + narrow.nbytes
        while self._kept and self._bytes > self._most:
            dropped, dropped_narrow = self._kept.pop(next(iter(self._kept)))
            self._bytes -= dropped.nbytes + dropped_narrow.nbytes
            del self._targets[dropped.untyped_storage().data_ptr()]
        self._kept[target] = wide, narrow
        self._targets[wide.untyped_storage().data_ptr()] = target

    @contextmanager
    def compact(self, again: Callable[[int], Callable[[], torch.Tensor] | None] = lambda _: None) -> Generator[None]:
        """Let autograd keep constants by name, and other large tensors as float32: derivatives need no more.

        `again` returns a function that recomputes the tensor at an address.
        """
        last: deque[tuple[torch.Tensor, int, torch.Tensor]] = deque(maxlen=_SAVED_TWICE)

        def narrowed(tensor: torch.Tensor) -> torch.Tensor | None:
            """None where float32 would overflow; consecutive operators often save the same tensor."""
            for known, version, small in last:
                if known.is_set_to(tensor) and version == tensor._version:
                    return small
            small = tensor.float()
            if has_nonfinite(small) and bool((small.isinf() & tensor.isfinite()).any()):
                return None
            last.append((tensor.detach(), tensor._version, small))
            return small

        def pack(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
            if tensor.dtype != torch.float64 or tensor.numel() < _COMPACT:
                return lambda: tensor
            address = tensor.untyped_storage().data_ptr()
            target = self._targets.get(address)
            make = again(address) if target is None else partial(self.__getitem__, target)
            if make is not None:
                return partial(_view, make, tensor.shape, tensor.stride(), int(tensor.storage_offset()))
            small = narrowed(tensor)
            return small.double if small is not None else lambda: tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda make: make()):
            yield


def _part(narrow: torch.Tensor, size: Sequence[int], stride: Sequence[int], start: int) -> torch.Tensor:
    return narrow.as_strided(size, stride, narrow.storage_offset() + start)


def _view(make: Callable[[], torch.Tensor], size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    return make().as_strided(size, stride, offset)
