"""Constants in float64 while they are needed: the last used ones are kept, so that one step widens each once.

All of them together would take twice the memory of the weights. What autograd would keep of a constant for the
backward pass is its name instead, and where in it the saved view lies; of a weight that is dequantized, its node.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.nonfinite import has_nonfinite
from etviz.evaluation.interpreter import weight_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import torch

KEPT: Final = 96 << 20
"""Bytes of widened constants that are kept."""
_COMPACT: Final = 1 << 16
"""Elements from which autograd keeps a tensor as float32."""


def widen(value: Any) -> Any:
    """`value` with its floating tensors as float64; other values as they are."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return [widen(item) for item in value]
    return value


class WideConstants(Mapping[str, "torch.Tensor"]):
    """The constants of one method in float64, by `Input.target`; `narrow` ones as they are."""

    def __init__(self, constants: Mapping[str, torch.Tensor], narrow: Container[str] = ()) -> None:
        self._constants = constants
        self._narrow = narrow
        self._kept: dict[str, torch.Tensor] = {}
        self._targets: dict[int, str] = {}
        self._bytes = 0

    def __getitem__(self, target: str) -> torch.Tensor:
        """A constant, widened if it is floating."""
        kept = self._kept.pop(target, None)
        if kept is not None:
            self._kept[target] = kept
            return kept
        narrow = weight_of(self._constants, target)
        wide = widen(narrow) if target not in self._narrow else narrow
        if wide is not narrow and 0 < wide.nbytes <= KEPT:
            self._keep(target, wide)
        return wide

    def __iter__(self) -> Iterator[str]:
        return iter(self._constants)

    def __len__(self) -> int:
        return len(self._constants)

    def __contains__(self, target: object) -> bool:
        return target in self._constants

    def _keep(self, target: str, wide: torch.Tensor) -> None:
        """Keep a constant that is a copy of its own; those that were used longest ago make room."""
        self._bytes += wide.nbytes
        while self._kept and self._bytes > KEPT:
            dropped = self._kept.pop(next(iter(self._kept)))
            self._bytes -= dropped.nbytes
            del self._targets[dropped.untyped_storage().data_ptr()]
        self._kept[target] = wide
        self._targets[wide.untyped_storage().data_ptr()] = target

    @contextmanager
    def compact(self, again: Callable[[int], Callable[[], torch.Tensor] | None] = lambda _: None) -> Generator[None]:
        """Let autograd keep constants by name, and other large tensors as float32: derivatives need no more.

        `again` gives what computes the tensor at an address once more, None where that is not known.
        """
        import torch

        def pack(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
            if tensor.dtype != torch.float64 or tensor.numel() < _COMPACT:
                return lambda: tensor
            address = tensor.untyped_storage().data_ptr()
            target = self._targets.get(address)
            make = again(address) if target is None else partial(self.__getitem__, target)
            if make is not None:
                return partial(_view, make, tensor.shape, tensor.stride(), int(tensor.storage_offset()))
            small = tensor.float()
            if has_nonfinite(small) and bool((small.isinf() & tensor.isfinite()).any()):
                return lambda: tensor
            return small.double

        def unpack(make: Callable[[], torch.Tensor]) -> torch.Tensor:
            return make()

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield


def _view(make: Callable[[], torch.Tensor], size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    return make().as_strided(size, stride, offset)
