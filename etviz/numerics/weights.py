"""The constants of a recorded program, from the ETRecord or from the record itself, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from etviz.artifacts.etrecord import ETRecord
from etviz.artifacts.record_file import REFERENCE, Record
from etviz.artifacts.stored_tensors import StoredTensors
from etviz.artifacts.torch_file import TensorFile
from etviz.errors import ArtifactError

if TYPE_CHECKING:
    import torch


class Weights(Mapping[str, "torch.Tensor"]):
    """Tensors by `Input.target`.

    Parameters
    ----------
    record
        Says where each constant is.
    etrecord
        Holds the weights that the record only refers to; None if it is not there: then asking for one of them raises
        `ArtifactError`.

    Raises
    ------
    ArtifactError
        If the record's own tensors are damaged.
    """

    def __init__(self, record: Record, record_path: str, etrecord: ETRecord | None) -> None:
        from safetensors.torch import load

        self._places = record.places
        self._extra = record.extra
        self._path = record_path
        self._etrecord = etrecord
        self._record = record
        self._files: dict[str, Mapping[str, torch.Tensor]] = {}
        try:
            self.own = load(record.own) if record.own else {}
        except Exception as error:
            raise ArtifactError(
                record_path, f"its constants can't be read ({error})", "write the record again"
            ) from error

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __getitem__(self, key: str) -> torch.Tensor:
        place = self._places[key]
        if not place.member:
            return self._get(self.own, place.name, self._path)
        if place.member == REFERENCE:
            return self._get(self._reference(), place.name, self._path)
        if self._etrecord is None:
            raise ArtifactError(
                self._path,
                f"the record refers to the weights {place.name} in the ETRecord, which was not given",
                "give the ETRecord that was written together with it (etrecord=)",
            )
        return self._get(self._file(place.member), place.name, self._etrecord.path)

    def inputs(self) -> tuple[Any, ...]:
        """The representative inputs that the record keeps, flat.

        Raises
        ------
        ArtifactError
            If one of them is not there.
        """
        kept = self._extra.get("inputs", ())
        return tuple(self._get(self.own, v["tensor"], self._path) if "tensor" in v else v["value"] for v in kept)

    def _reference(self) -> Mapping[str, torch.Tensor]:
        """Weights of the float reference; their checksum is compared when the first one is asked for."""
        if REFERENCE not in self._files:
            record = self._record
            self._files[REFERENCE] = StoredTensors(
                record.reference_weights, self._path, REFERENCE, record.reference_crc
            )
        return self._files[REFERENCE]

    def _file(self, member: str) -> Mapping[str, torch.Tensor]:
        if member not in self._files:
            etrecord = self._etrecord
            data = etrecord.member(member) if etrecord is not None else None
            if etrecord is None or data is None:
                raise ArtifactError(
                    etrecord.path if etrecord else self._path,
                    f"the ETRecord has no {member}, where the record expects weights: they are of different models",
                    "give the ETRecord that was written together with the record",
                )
            self._files[member] = TensorFile(data, etrecord.path, member)
        return self._files[member]

    @staticmethod
    def _get(table: Mapping[str, torch.Tensor], name: str, path: str) -> torch.Tensor:
        try:
            return table[name]
        except KeyError:
            raise ArtifactError(
                path, f"there are no weights named {name}: the files are of different models", "give matching files"
            ) from None
