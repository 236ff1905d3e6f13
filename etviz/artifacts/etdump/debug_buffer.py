"""The debug buffer: raw tensors that an ETDump refers to.

It has no header, length or checksum, and the Python bindings write it at full capacity.
"""

from __future__ import annotations

import itertools
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from etviz.artifacts.etdump.events import Layout, TensorRef
from etviz.artifacts.files import PathLike, Residency, check_unchanged, looks_like, open_artifact, wrong_kind
from etviz.artifacts.scalar_types import SCALAR_TYPES, torch_dtype
from etviz.errors import ArtifactError

if TYPE_CHECKING:
    import torch


_ADVICE: Final = "give the debug buffer that was written together with this ETDump, copied whole"
_BLOCK: Final = 1 << 20
_MOST_ELEMENTS: Final = 1 << 58


_MOST_TIMES: Final = 8
"""Maximum number of references to the same bytes: several runs may write to one place."""
_SPARE: Final = 64 << 20
_ALIGNMENTS: Final = tuple(1 << power for power in range(13))


class DebugBuffer:
    """Mapped read-only."""

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)
        self._data = memoryview(open_artifact(path, "a debug buffer", _ADVICE))
        self._residency = Residency(self._data)
        self._checked: dict[int, Layout] = {}
        self._dtypes: dict[int, torch.dtype] = {}
        head = bytes(self._data[:64])
        kind = looks_like(head)
        if kind and any(mark in kind for mark in ("ETDump", ".pte", ".bpte", "zip")):
            raise wrong_kind(path, head, "a debug buffer", _ADVICE)

    @property
    def size(self) -> int:
        return len(self._data)

    @property
    def data(self) -> memoryview:
        """`ArtifactError` if the file changed since it was opened."""
        check_unchanged(self._data)
        return self._data

    def check(self) -> None:
        check_unchanged(self._data)

    def raw(self, ref: TensorRef) -> memoryview:
        """Bytes in memory order; `ArtifactError` if they can't be in this file."""
        nbytes = self._checked_size(ref)
        return self.data[ref.offset : ref.offset + nbytes] if nbytes else self.data[:0]

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        import torch

        size, layout = self._checked_size(ref), ref.layout
        dtype = self._dtypes.get(layout.scalar_type)
        if dtype is None:
            dtype = torch_dtype(layout.dtype)
            if dtype is None:
                raise ArtifactError(self.path, f"a tensor has the dtype {layout.dtype}, which torch can't read")
            self._dtypes[layout.scalar_type] = dtype
        if not size:
            return torch.empty(layout.sizes, dtype=dtype)
        check_unchanged(self._data)
        self._residency.add(size)
        if ref.offset % dtype.itemsize:
            aligned = self._whole[ref.offset : ref.offset + size].clone()
            return aligned.view(dtype).as_strided(layout.sizes, layout.strides)
        return self._part(dtype, layout.sizes, layout.strides, ref.offset, size // dtype.itemsize)

    def place(self, tensor: torch.Tensor) -> int | None:
        at = tensor.data_ptr() - self._whole.data_ptr()
        return at if 0 <= at < self.size else None

    def view(self, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
        check_unchanged(self._data)
        count = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        return self._part(dtype, shape, strides, offset, count)

    def _part(
        self, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int, count: int
    ) -> torch.Tensor:
        """In a storage of its own: torch's ``slice_scatter`` and its kind copy a tensor's whole storage."""
        import torch

        _ = self._whole
        return torch.frombuffer(self._data, dtype=dtype, count=count, offset=offset).as_strided(shape, strides)

    @cached_property
    def _whole(self) -> torch.Tensor:
        import torch

        with warnings.catch_warnings():  # torch warns once
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            return torch.frombuffer(self._data, dtype=torch.uint8)

    def used(self, refs: Iterable[TensorRef]) -> int:
        return max((ref.offset + size for ref in refs if (size := self._checked_size(ref))), default=0)

    def require_whole(self, refs: Iterable[TensorRef]) -> None:
        """`ArtifactError` unless each tensor of a known type lies in the file, which may be of another run."""
        named = 0
        for ref in refs:
            if ref.layout.nbytes and ref.offset >= 0:
                named += self._checked_size(ref)
        if named > _MOST_TIMES * self.size + _SPARE:
            problem = (
                f"the ETDump's tensors take {named:,} bytes of a debug buffer that has {self.size:,}: they overlap"
            )
            raise ArtifactError(self.path, problem, "write both files again", found=named, expected=self.size)

    def require_apart(self, refs: Iterable[TensorRef]) -> None:
        """`ArtifactError` if two tensors of one execution share a byte."""
        placed = (
            (ref.offset, ref.offset + ref.layout.nbytes, ref) for ref in refs if ref.layout.nbytes and ref.offset >= 0
        )
        for (_, end, first), (start, _, second) in itertools.pairwise(sorted(placed, key=itemgetter(0))):
            if start < end:
                raise self._impossible(second, f"overlaps the one at offset {first.offset} of the same execution")

    def is_blank(self, refs: Iterable[TensorRef]) -> bool:
        read = 0
        for start, end in sorted({(ref.offset, ref.offset + self._checked_size(ref)) for ref in refs}):
            for at in range(max(start, read), end, _BLOCK):
                if np.frombuffer(self.data[at : min(at + _BLOCK, end)], np.uint8).any():
                    return False
            read = max(read, end)
        return read > 0

    def _checked_size(self, ref: TensorRef) -> int:
        layout = ref.layout
        if id(layout) not in self._checked:  # where it is kept, so its id stays its own
            self._check_layout(ref, layout)
            self._checked[id(layout)] = layout
        size = layout.nbytes
        if size and not 0 <= ref.offset <= self.size - size:
            raise self._outside(ref, layout)
        return size

    def _check_layout(self, ref: TensorRef, layout: Layout) -> None:
        if layout.scalar_type not in SCALAR_TYPES:
            raise self._impossible(ref, f"has the scalar type {layout.dtype}")
        if min(layout.sizes, default=0) < 0 or not all(0 <= stride <= _MOST_ELEMENTS for stride in layout.strides):
            raise self._impossible(ref, f"has sizes {layout.sizes} and strides {layout.strides}")
        if math.prod(max(size, 1) for size in layout.sizes) > _MOST_ELEMENTS:
            raise self._impossible(ref, f"has sizes {layout.sizes}")
        if not layout.numel:
            return
        if not 0 <= ref.offset <= self.size - layout.nbytes:
            raise self._outside(ref, layout)
        if len(layout.strides) != len(layout.sizes) or _span(layout) != layout.numel:
            raise self._impossible(ref, f"has strides {layout.strides} that do not fit its sizes {layout.sizes}")

    def _outside(self, ref: TensorRef, layout: Layout) -> ArtifactError:
        if ref.offset < 0:
            return self._impossible(ref, "was described but not logged")
        end = ref.offset + layout.nbytes
        problem = (
            f"the debug buffer has {self.size} bytes but the tensor of sizes {layout.sizes} at offset "
            f"{ref.offset} needs {layout.nbytes}: it is truncated, or from another run"
        )
        return ArtifactError(self.path, problem, _ADVICE, where=ref.offset, found=self.size, expected=end)

    def _impossible(self, ref: TensorRef, problem: str) -> ArtifactError:
        text = f"the ETDump's tensor at offset {ref.offset} {problem}"
        return ArtifactError(self.path, text, "write both files again", where=ref.offset, found=ref)


def first_misplaced(refs: Iterable[TensorRef]) -> int | None:
    """The first offset that breaks the runtime's alignment, relative to the end of the value before."""
    placed = [ref for ref in refs if ref.offset >= 0]
    if not all(ref.layout.scalar_type in SCALAR_TYPES for ref in placed) or len(placed) < 2:
        return None
    places = [(ref.offset, ref.offset + ref.layout.nbytes) for ref in placed]
    start, last = places[0][0], 0
    for alignment in _ALIGNMENTS:
        steps = enumerate(itertools.pairwise(places), 1)
        wrong = (at for at, ((_, end), (begin, _)) in steps if start - (start - end) // alignment * alignment != begin)
        at = next(wrong, 0)
        if not at:
            return None
        last = max(last, at)
    return places[last][0]


def _span(layout: Layout) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(layout.sizes, layout.strides, strict=True))
