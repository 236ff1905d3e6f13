"""The constants of a recorded program, from the ETRecord or from the record itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.record.etrecord import ETRecord
from etviz.artifacts.record.record_file import Record
from etviz.artifacts.record.stored_tensors import NamedTensors
from etviz.artifacts.record.torch_file import TensorFile
from etviz.errors import ArtifactError

if TYPE_CHECKING:
    import torch


class Weights(NamedTensors):
    """Tensors by `Input.target`; those in an ETRecord that is not given raise `ArtifactError`."""

    def __init__(self, record: Record, record_path: str, etrecord: ETRecord | None) -> None:
        self._record = record
        self._names = record.places
        self._path = record_path
        self._etrecord = etrecord

    def __getitem__(self, key: str) -> torch.Tensor:
        table, name, path = self._where(key)
        return self._get(table, name, path)

    def in_place(self, key: str) -> torch.Tensor:
        table, name, path = self._where(key)
        return table.in_place(name) if isinstance(table, TensorFile) and name in table else self._get(table, name, path)

    def _where(self, key: str) -> tuple[Mapping[str, torch.Tensor], str, str]:
        place = self._record.places[key]
        if not place.member:
            return self._record.tensors, place.name, self._path
        if self._etrecord is None:
            raise ArtifactError(
                self._path,
                f"the record refers to the weights {place.name} in the ETRecord, which was not given",
                "give the ETRecord that was written together with it (etrecord=)",
            )
        return self._file(place.member), place.name, self._etrecord.path

    def inputs(self) -> tuple[Any, ...]:
        kept, tensors = self._record.extra.get("inputs", ()), self._record.tensors
        return tuple(self._get(tensors, v["tensor"], self._path) if "tensor" in v else v["value"] for v in kept)

    def _file(self, member: str) -> TensorFile:
        etrecord = self._etrecord
        file = etrecord.tensors(member) if etrecord is not None else None
        if file is None:
            raise ArtifactError(
                etrecord.path if etrecord else self._path,
                f"the ETRecord has no {member}, where the record expects weights: they are of different models",
                "give the ETRecord that was written together with the record",
            )
        return file

    @staticmethod
    def _get(table: Mapping[str, torch.Tensor], name: str, path: str) -> torch.Tensor:
        try:
            return table[name]
        except KeyError:
            raise ArtifactError(
                path, f"there are no weights named {name}: the files are of different models", "give matching files"
            ) from None


class _Over(NamedTensors):
    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._names = self.inner = tensors


class CachedTensors(_Over):
    LIMIT: Final = 256 << 20

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__(tensors)
        self._held: dict[str, torch.Tensor] = {}
        self._nbytes = 0

    def __getitem__(self, key: str) -> torch.Tensor:
        tensor = self._held.get(key)
        if tensor is None:
            tensor = self.inner[key]
            if self._nbytes + tensor.nbytes <= self.LIMIT:
                self._held[key] = tensor
                self._nbytes += tensor.nbytes
        return tensor


class Aligned(_Over):
    """The same tensors at multiples of `BOUNDARY`; unaligned ones are copied on each access.

    A matrix product may round differently at other addresses; aligned, equal numbers give equal bits.
    """

    BOUNDARY: Final = 64

    def __getitem__(self, key: str) -> torch.Tensor:
        tensor = self.inner[key]
        return tensor.clone() if tensor.data_ptr() % self.BOUNDARY else tensor
