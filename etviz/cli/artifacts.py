"""The artifacts that a command works on: named one by one, or found in a folder by their usual names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etviz.artifacts.collection import collect, is_collection
from etviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etviz.inspection import Inspection
    from etviz.loading.artifact_set import ArtifactSet

Source = Annotated[
    Path, typer.Argument(metavar="ETDUMP", help="An ETDump; or a folder, zip, gzip or device's log with the artifacts.")
]
EtrecordOption = Annotated[Path | None, typer.Option("--etrecord", help="AOT graphs, weights and inputs.")]
DebugBufferOption = Annotated[Path | None, typer.Option("--debug-buffer", help="The tensors that the runtime logged.")]
PteOption = Annotated[Path | None, typer.Option("--pte", help="The program (.pte or .bpte).")]
RecordOption = Annotated[Path | None, typer.Option("--record", help="The record, for exact pairing.")]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="The run's inputs: .safetensors, .npz, .npy, .pt, a raw file (also as FILE:DTYPE:SHAPE), or a list of raw "
        "files (.txt). Repeat it for each execution, or for each input where a file holds one.",
    ),
]
MethodOption = Annotated[str | None, typer.Option("--method", help="The method, if the program has several.")]
ScaleOption = Annotated[str, typer.Option("--time-scale", help="The device's clock: ns, us, ms, s, cycles, auto.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Paths by kind, None where there is no such file; `inputs` names files with the inputs of the run.

    `cycles` and `keep_alive` are as in `Collection`.
    """

    etdump: Path
    etrecord: Path | None = None
    debug_buffer: Path | None = None
    pte: Path | None = None
    record: Path | None = None
    data: Path | None = None
    timing: Path | None = None
    inputs: tuple[str, ...] = ()
    cycles: bool = False
    keep_alive: Any = None

    @property
    def title(self) -> str:
        """A short name for people."""
        return self.etdump.parent.name or str(self.etdump)

    def files(self) -> list[Path]:
        """All that are there."""
        return [path for path in (self.etdump, *self._others().values(), self.timing) if path is not None]

    def open(self, *, checked: bool = True) -> ArtifactSet:
        """Open them; see `ArtifactSet.open`."""
        from etviz.loading.artifact_set import ArtifactSet

        return ArtifactSet.open(self.etdump, **self._others(), checked=checked)

    def _others(self) -> dict[str, Any]:
        return {
            "etrecord": self.etrecord,
            "debug_buffer": self.debug_buffer,
            "pte": self.pte,
            "record": self.record,
            "data": self.data,
        }

    def load(self, method: str | None = None, time_scale: str = "ns") -> Inspection:
        """Compare them.

        Raises
        ------
        EtvizError
            If a file is missing, damaged, or does not belong to the others.
        """
        from etviz.api import load

        inputs = list(self.inputs) or None
        scale = "cycles" if time_scale == "auto" and self.cycles else time_scale
        return load(
            self.etdump, method=method, source_time_scale=scale, inputs=inputs, timing=self.timing, **self._others()
        )


def find(source: Path, inputs: Sequence[str] | None = None, **given: Path | None) -> Artifacts:
    """The artifacts of a command: those that were named, and the others of a folder.

    Parameters
    ----------
    source
        An ETDump, or what `collect` takes.
    inputs
        Names of files with the inputs of the run.
    given
        Paths that options name; they decide over what is found.

    Raises
    ------
    UsageError
        If there is no ETDump, or several files could be meant.
    """
    named = {kind: path for kind, path in given.items() if path is not None}
    files = tuple(inputs or ())
    if not is_collection(source):
        return replace(Artifacts(source, inputs=files), **named)
    found = collect(source, named)
    paths: dict[str, Any] = found.paths | named
    if "etdump" not in paths:
        where = "this folder" if source.is_dir() else "this file"
        raise UsageError(f"{source}: there is no ETDump in {where} (etdump.etdp); name the file")
    return Artifacts(**paths, inputs=files, cycles=found.cycles, keep_alive=found.keep_alive)
