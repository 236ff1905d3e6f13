"""The artifacts that a command works on: named one by one, or found in a folder by their usual names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from etviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etviz.inspection import Inspection
    from etviz.loading.artifact_set import ArtifactSet

USUAL: Final = {
    "etdump": ("etdump.etdp", "etdump.bin", "*.etdp", "*.etdump"),
    "etrecord": ("etrecord.bin", "*etrecord*"),
    "debug_buffer": ("debug_buffer.bin", "debug_output.bin", "*debug*.bin"),
    "pte": ("model.pte", "*.pte", "*.bpte"),
    "record": ("model.etviz", "*.etviz"),
}
"""By kind, the names that ExecuTorch's tutorials, its runners and etviz use; the first that fits one file is taken."""

Source = Annotated[
    Path, typer.Argument(metavar="ETDUMP", help="An ETDump, or a folder with the artifacts under their usual names.")
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
ScaleOption = Annotated[str, typer.Option("--time-scale", help="Unit of the device's clock: ns, us, ms, s, cycles.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Paths by kind, None where there is no such file; `inputs` names files with the inputs of the run."""

    etdump: Path
    etrecord: Path | None = None
    debug_buffer: Path | None = None
    pte: Path | None = None
    record: Path | None = None
    inputs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """A short name for people."""
        return self.etdump.parent.name or str(self.etdump)

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
        return load(self.etdump, method=method, source_time_scale=time_scale, inputs=inputs, **self._others())


def find(source: Path, inputs: Sequence[str] | None = None, **given: Path | None) -> Artifacts:
    """The artifacts of a command: those that were named, and the others of a folder.

    Parameters
    ----------
    source
        An ETDump, or a folder.
    inputs
        Names of files with the inputs of the run.
    given
        Paths that options name; they decide over what is found.

    Raises
    ------
    UsageError
        If the folder has no ETDump, or several files that could be meant.
    """
    named = {kind: path for kind, path in given.items() if path is not None}
    if not source.is_dir():
        return replace(Artifacts(source, inputs=tuple(inputs or ())), **named)
    found = {kind: named.get(kind) or by_name(source, kind) for kind in USUAL}
    etdump = found.pop("etdump")
    if etdump is None:
        raise UsageError(f"{source}: there is no ETDump in this folder (etdump.etdp); name the file")
    return Artifacts(etdump, **found, inputs=tuple(inputs or ()))


def by_name(folder: Path, kind: str) -> Path | None:
    """The file of a kind in a folder, None if there is none."""
    for pattern in USUAL[kind]:
        fitting = sorted(path for path in folder.glob(pattern) if path.is_file())
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            names = ", ".join(path.name for path in fitting[:4])
            raise UsageError(f"{folder}: several files could be meant ({names}); name one with an option")
    return None
