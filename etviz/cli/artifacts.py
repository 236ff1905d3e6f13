"""The artifacts that a command works on."""

from __future__ import annotations

import functools
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import etviz
from etviz.artifacts.collection import collect, is_collection, programs
from etviz.cli.console import doing, err, plain_text
from etviz.errors import UsageError
from etviz.loading.artifact_set import ArtifactSet

if TYPE_CHECKING:
    from etviz.inspection import Inspection

_KIND: Final = inspect.Parameter.KEYWORD_ONLY

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MethodOption = Annotated[str | None, typer.Option("--method", help="The method, if the program has several.")]
ScaleOption = Annotated[str, typer.Option("--time-scale", help="The device's clock: ns, us, ms, s, cycles, auto.")]
TopOption = Annotated[int, typer.Option("--top", min=0, help="Number of rows; 0 prints all.")]
EtrecordOption = Annotated[Path | None, typer.Option("--etrecord", help="AOT graphs, weights and inputs.")]
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


def file_options(
    etdump: Annotated[
        Path,
        typer.Argument(metavar="ETDUMP", help="An ETDump; or a folder, zip, gzip or device's log with the artifacts."),
    ],
    etrecord: EtrecordOption = None,
    debug_buffer: Annotated[Path | None, typer.Option(help="The tensors that the runtime logged.")] = None,
    pte: Annotated[Path | None, typer.Option(help="The program (.pte or .bpte).")] = None,
    record: RecordOption = None,
    inputs: InputsOption = None,
    method: MethodOption = None,
    time_scale: ScaleOption = "ns",
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="A comparator of yours: one more column. Repeat it."),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="top1, top5, margin, kl, or MODULE:FUNCTION. Repeat it.")
    ] = None,
) -> Artifacts:
    named = {"etrecord": etrecord, "debug_buffer": debug_buffer, "pte": pte, "record": record}
    metrics = tuple(_of_the_user(name, "--metric") for name in metric or ())
    tasks = tuple(_of_the_user(name, "--task") if ":" in name else name for name in task or ())
    return replace(find(etdump, inputs, method, **named), time_scale=time_scale, metrics=metrics, tasks=tasks)


def _of_the_user(name: str, option: str) -> Any:
    """A class or function, from the environment or a file of the working folder."""
    if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")) or ":" not in name:
        raise UsageError(f"{option} must be MODULE:NAME, as in my_metrics:Flips, found {name!r}")
    sys.path.append(str(Path.cwd()))
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        advice = "the module must be installed, or a file of this folder"
        raise UsageError(f"{option} {name} can't be imported ({error}); {advice}") from error
    finally:
        sys.path.pop()


def expanded(
    command: Callable[..., None],
    parameter: str,
    make: Callable[..., Any],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[..., None]:
    """The command with the options of `make`, and `more`, in place of one parameter, which receives its result."""
    accepted = inspect.signature(command, eval_str=True).parameters
    named = {
        name: declared
        for name, declared in inspect.signature(make, eval_str=True).parameters.items()
        if declared.kind != declared.VAR_KEYWORD
    }
    options = named | {
        name: inspect.Parameter(name, _KIND, default=None, annotation=kind) for name, kind in more.items()
    }

    @functools.wraps(command)
    def called(**values: Any) -> None:
        command(**{parameter: make(**{name: values.pop(name) for name in options})}, **values)

    listed = [option for name in accepted for option in (options.values() if name == parameter else [accepted[name]])]
    vars(called)["__signature__"] = inspect.Signature([option.replace(kind=_KIND) for option in listed])
    return called


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Paths by kind; `source` is the ETDump, or its container, as named. `chosen` tells that `--method` was given."""

    etdump: Path
    source: Path = Path()
    etrecord: Path | None = None
    debug_buffer: Path | None = None
    pte: Path | None = None
    record: Path | None = None
    data: Path | None = None
    timing: Path | None = None
    inputs: tuple[str, ...] = ()
    method: str | None = None
    time_scale: str = "ns"
    cycles: bool = False
    keep_alive: Any = None
    metrics: tuple[Any, ...] = ()
    tasks: tuple[Any, ...] = ()
    program: str | None = None
    chosen: bool = False

    def open(self, *, checked: bool = True) -> ArtifactSet:
        return ArtifactSet.open(self.etdump, **self._others(), checked=checked)

    def _others(self) -> dict[str, Any]:
        return {kind: getattr(self, kind) for kind in ("etrecord", "debug_buffer", "pte", "record", "data")}

    @property
    def clock(self) -> str:
        return "cycles" if self.time_scale == "auto" and self.cycles else self.time_scale

    def load(self) -> Inspection:
        """One method or program, and a line about other programs of the folder."""
        inspection = self._load()
        if others := self._others_there():
            err.print(plain_text(f"{self.program} is shown; the folder has {', '.join(others)} too (--method)"))
        return inspection

    def load_all(self) -> dict[str, Inspection]:
        """The methods or programs that ran, by name; the one that was chosen."""
        if self.inputs and (others := self._others_there()):
            names = ", ".join(map(str, (self.program, *others)))
            raise UsageError(f"--inputs belong to one program; choose one of {names} with --method")
        first = self._load()
        found = {first.analysis.findings.shown_method: first}
        for name in first.methods if not self.chosen else ():
            if name not in found and (other := first.method(name)).analysis.tables.compared.runs:
                found[name] = other
        return found

    def _others_there(self) -> list[str]:
        several = programs(self.source) if self.program is not None and not self.chosen else None
        return [name for name in several or () if name != self.program]

    def _load(self) -> Inspection:
        with doing(f"comparing {self.source.name or self.etdump.name} with its reference"):
            named: dict[str, Any] = {"inputs": list(self.inputs) or None, "method": self.method, "timing": self.timing}
            named |= {"metrics": self.metrics or None, "task": list(self.tasks) or None}
            named["source_time_scale"] = self.clock
            if self.program is None or self.inputs:
                inspection = etviz.load(self.etdump, **named, **self._others())
            else:
                inspection = etviz.load(self.source, **named | {"method": self.program, "timing": None})
            _ = inspection.gaps
            return inspection


def find(
    source: Path, inputs: Sequence[str] | None = None, method: str | None = None, **given: Path | None
) -> Artifacts:
    """The `given` artifacts, and the others of a folder; `UsageError` without an ETDump, or if several files fit.

    Of a folder of several programs, `method` chooses one.
    """
    named = {kind: path for kind, path in given.items() if path is not None}
    files = tuple(inputs or ())
    if not is_collection(source):
        return replace(Artifacts(source, source, inputs=files, method=method, chosen=method is not None), **named)
    if several := programs(source):
        name = next(iter(several)) if method is None else method
        if name not in several:
            raise UsageError(f"--method must be one of {', '.join(several)}, found {name!r}")
        chosen: dict[str, Any] = several[name] | named
        return Artifacts(**chosen, source=source, inputs=files, program=name, chosen=method is not None)
    collection = collect(source, named)
    paths: dict[str, Any] = collection.paths | named
    if "etdump" not in paths:
        where = "this folder" if source.is_dir() else "this file"
        raise UsageError(f"{source}: there is no ETDump in {where} (etdump.etdp); name the file")
    more: dict[str, Any] = {"inputs": files, "method": method, "keep_alive": collection.keep_alive}
    more["chosen"] = method is not None
    return Artifacts(**paths, source=source, cycles=collection.cycles, **more)
