"""The program that a study runs."""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from etviz.analysis.analysis import Analysis
from etviz.analysis.findings import program_file
from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.program.logged import debug_buffer_bytes
from etviz.artifacts.program.program import read_program
from etviz.artifacts.record.etrecord import ETRecord
from etviz.artifacts.record.record_file import read_record
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, UsageError
from etviz.graph.ir import Graph
from etviz.inspection import Inspection
from etviz.loading.artifact_set import ArtifactSet
from etviz.loading.load import read
from etviz.loading.paired import Paired, pair
from etviz.pipeline.device import RunFiles, ThisMachine, run_elsewhere
from etviz.pipeline.emulation import emulate, emulators
from etviz.pipeline.execute import ChildRun, execute
from etviz.pipeline.lower import lower

FILES: Final = {"pte": "model.pte", "record": "model.etviz", "etrecord": "etrecord.bin", "data": "model.ptd"}
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Subject:
    """One lowered program: absolute paths by kind; only the `.pte` is required.

    `runner` is a command as for `run_elsewhere`; `python` another environment's interpreter.
    """

    files: Mapping[str, str]
    method: str = "forward"
    title: str = ""
    runner: str = ""
    python: str = ""

    @property
    def pte(self) -> Path:
        return Path(self.files["pte"])

    @property
    def buffer_bytes(self) -> int:
        return debug_buffer_bytes(read_program(self.pte), self.method)

    def digests(self) -> dict[str, str]:
        return {kind: digest(path) for kind, path in self.files.items()}

    def graph(self) -> Graph:
        if "record" in self.files:
            graphs = read_record(self.files["record"]).graphs
            if self.method in graphs:
                return graphs[self.method]
            raise UsageError(f"the program has no method {self.method!r}; it has {', '.join(graphs)}")
        if "etrecord" in self.files:
            return ETRecord(self.files["etrecord"]).edge_graph(self.method)
        raise UsageError(
            f"{self.pte}: there is no reference, since neither a record (model.etviz) nor an ETRecord (etrecord.bin) "
            "lies beside the program; write one with etviz.record(), or give the model itself"
        )

    @property
    def emulators(self) -> tuple[str, ...]:
        known = not self.python and "record" in self.files and self.method == "forward"
        return emulators(self.pte) if known else ()

    def run(
        self,
        inputs: Sequence[Sequence[Any]],
        folder: Path,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> ChildRun | RunFiles:
        if self.runner:
            place, program, data = ThisMachine(folder), read_program(self.pte), self.files.get("data")
            return run_elsewhere(place, self.pte, program, self.method, inputs, self.runner, folder, timeout, data)
        if self.emulators:
            return self.emulate(inputs, folder, timeout)
        return self.execute(inputs, timeout, workdir=folder, cancel=cancel, passing=True)

    def emulate(self, inputs: Sequence[Sequence[Any]], folder: Path, timeout: float | None = None) -> ChildRun:
        data = self.files.get("data")
        return emulate(self.pte, self.files["record"], inputs, workdir=folder, timeout=timeout, data=data)

    def execute(self, inputs: Sequence[Sequence[Any]], timeout: float | None = None, **options: Any) -> ChildRun:
        data, python = self.files.get("data"), self.python
        return execute(self.pte, inputs, method=self.method, timeout=timeout, data=data, python=python, **options)

    def pair(self, run: ChildRun | RunFiles, base: Paired | None = None) -> Paired:
        if run.etdump is None:
            raise UsageError("the run wrote no ETDump")
        if base is None:
            files: dict[str, Any] = {kind: self.files.get(kind) for kind in FILES}
            artifacts = ArtifactSet.open(run.etdump, debug_buffer=run.debug_buffer, **files)
            paired = pair(artifacts, artifacts.method(self.method))
            artifacts.finish()
            return paired
        dump = (run.dump if isinstance(run, ChildRun) else None) or read_etdump(run.etdump)
        buffer = DebugBuffer(run.debug_buffer) if run.debug_buffer is not None else None
        if buffer is not None:
            buffer.require_whole(dump.tensor_refs())
        named = {**base.artifacts.named, "etdump": str(run.etdump)}
        if run.debug_buffer is not None:
            named["debug_buffer"] = str(run.debug_buffer)
        artifacts = replace(base.artifacts, named=named, dump=dump, buffer=buffer, checking=None)
        blocks = tuple((at, block) for at, block in enumerate(dump.blocks) if block.name == "Execute")
        return replace(base, artifacts=artifacts, executions=blocks)


def inspect_run(subject: Subject, values: Sequence[Any], what: str) -> Inspection:
    return inspect_runs(subject, [values], f"{subject.title or subject.pte.name}, {what}")


def inspect_runs(
    subject: Subject, runs: Sequence[Sequence[Any]], title: str, timeout: float | None = None
) -> Inspection:
    folder, given = Scratch(), [tuple(values) for values in runs]
    artifacts = subject.pair(subject.run(runs, Path(folder.name), timeout)).artifacts
    findings = read(artifacts, given, subject.method, 1e-6, ran_here=True, title=title, keep_alive=folder)
    return Inspection(Analysis(findings))


def subject_of(
    program: Any, example: Sequence[Any] | None, folder: Path, method: str | None, **lowering: Any
) -> Subject:
    """A model is lowered for `example` into `folder`."""
    given = {name: value for name, value in lowering.items() if value is not None}
    if isinstance(program, Subject):
        return _subject(program.files, method or program.method, program.title)
    if isinstance(program, Inspection):
        files = {kind: path for kind, path in program.analysis.findings.files.items() if kind in FILES}
        if "pte" not in files:
            raise UsageError("the Inspection was made without the program; give pte= to etviz.load")
        if program_file(program.analysis.findings) is None:
            problem = "the program was changed, replaced or removed since it was loaded"
            raise ArtifactError(files["pte"], problem, "load the artifacts again")
        _refuse(given)
        return _subject(files, method or program.analysis.findings.method, program.analysis.title)
    if hasattr(program, "__fspath__") or isinstance(program, str):
        _refuse(given)
        return _subject(_beside(Path(program)), method, Path(program).name)
    if example is None:
        raise UsageError("there is no input to lower the model with")
    lowered = lower(program, example, folder, **given)
    paths = {"pte": lowered.pte, "record": lowered.record, "etrecord": lowered.etrecord, "data": lowered.data}
    files = {kind: str(path) for kind, path in paths.items() if path is not None}
    return _subject(files, method, type(program).__name__)


def _refuse(lowering: Mapping[str, Any]) -> None:
    if lowering:
        raise UsageError(f"{', '.join(lowering)}: only a model can be lowered, and this program is lowered already")


def _beside(path: Path) -> dict[str, str]:
    pte = path / FILES["pte"] if path.is_dir() else path
    if not pte.is_file():
        raise ArtifactError(pte, "there is no such file", "name the .pte, or a folder that etviz.debug(workdir=) wrote")
    paths = {"pte": pte, "record": pte.with_suffix(".etviz"), "etrecord": pte.parent / FILES["etrecord"]}
    paths["data"] = pte.with_suffix(".ptd")
    return {kind: str(file.absolute()) for kind, file in paths.items() if file.is_file()}


def _subject(files: Mapping[str, str], method: str | None, title: str) -> Subject:
    names = [item.name for item in read_program(files["pte"]).methods]
    chosen = method or ("forward" if "forward" in names or len(names) != 1 else names[0])
    if chosen not in names:
        raise UsageError(f"the program has no method {chosen!r}; it has {', '.join(names)}")
    return Subject({kind: str(Path(path).absolute()) for kind, path in files.items()}, chosen, title)


def arguments_of(model: Any, sample: Sequence[Any]) -> tuple[Any, ...]:
    """An item may end with a label."""
    forward = getattr(model, "forward", None)
    try:
        kinds = [p.kind for p in inspect.signature(forward).parameters.values()] if forward is not None else []
    except (TypeError, ValueError):
        return tuple(sample)
    positional = sum(
        kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds
    )
    open_ended = not kinds or inspect.Parameter.VAR_POSITIONAL in kinds
    return tuple(sample) if open_ended or len(sample) != positional + 1 else tuple(sample[:-1])


def digest(path: str | Path) -> str:
    sha = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            while block := file.read(_BLOCK):
                sha.update(block)
    except OSError as error:
        raise ArtifactError(path, f"the file can't be read ({error.strerror})", "check its permissions") from error
    return sha.hexdigest()
