"""Outputs alone: the final ones of a run, or the outputs of probes, which are inner values.

Number, shapes, dtypes and a probe's mark are checked; then they become an ETDump and a debug buffer.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.analysis.profile import scale_factor
from etviz.artifacts.etdump.etdump import DebugEvent, ETDump, RunBlock
from etviz.artifacts.etdump.value_writer import ValueWriter, no_profile
from etviz.artifacts.files import path_of
from etviz.artifacts.probes import MODEL, ProbeEntry, ProbeTable, find_table
from etviz.artifacts.program.raw_values import read_number, read_tensor
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, UsageError
from etviz.graph.ir import Graph, Meta, Node, Ref
from etviz.graph.uses import Uses
from etviz.loading.artifact_set import ArtifactSet
from etviz.loading.load import read
from etviz.loading.paired import HANDLES, pair
from etviz.tensors.digest import same_bits

if TYPE_CHECKING:
    from etviz.analysis.findings import Findings
    from etviz.artifacts.files import PathLike

_NAME: Final = re.compile(r"(?:(?P<name>.+?)-)??(?:(?P<execution>\d+)-)?(?P<output>\d+)\.(?:bin|raw)")
_UNKNOWN: Final = "a raw file does not tell its shape, and the program has a dynamic one here; give a tensor instead"
_LISTED: Final = 20
_MADE: Final = ("etdump", "debug_buffer")
"""Files that nobody gave, so that no doubt is about them."""
_ONLY_FINAL: Final = "Only the final outputs were given, so no instruction is compared; etviz.probe gives inner values."


@dataclass(frozen=True, slots=True)
class _ExpectedOutput:
    dtype: str | None
    shape: tuple[int | str, ...] | None
    order: tuple[int, ...] = ()


@dataclass(slots=True)
class _GivenExecution:
    outputs: list[Any]
    values: dict[tuple[int, int], Any] = field(default_factory=dict)
    inside: dict[int, dict[str, Any]] = field(default_factory=dict)


def no_etdump() -> ETDump:
    return ETDump("outputs", (), [], made=True)


def outputs_findings(
    outputs: Any,
    *,
    etrecord: PathLike | None,
    pte: PathLike | None,
    record: PathLike | None,
    data: PathLike | None = None,
    inputs: Any,
    method: str | None,
    introduced: bool = True,
    metrics: Iterable[Any] | None = None,
) -> Findings:
    """See `etviz.load`; `UsageError` if the outputs do not fit this program or probe."""
    folder = path_of(outputs, "the folder of outputs") if isinstance(outputs, (str, os.PathLike)) else None
    if folder is not None and not Path(folder).is_dir():
        raise ArtifactError(folder, "there is no such folder", "give the folder with the raw outputs")
    if etrecord is None and record is None:
        raise UsageError("outputs= is compared with a reference; give record= or etrecord=")
    files: dict[str, Any] = {"etrecord": etrecord, "pte": pte, "record": record, "data": data}
    artifacts = ArtifactSet.open(no_etdump(), **files, checked=False)
    table = find_table(folder, record, pte)
    if method is None and table is not None:
        method = table.method
    chosen = artifacts.method(method)
    paired = pair(artifacts, chosen)
    graph = paired.graph
    reference = paired.edge if paired.pairing == HANDLES and paired.edge is not None else graph
    expected = _expected_outputs(reference, artifacts, chosen)
    if table is not None:
        _check_table(table, artifacts, record, len(expected))
    given = _GivenOutputs(outputs, table, expected)
    executions = given.executions()
    candidates = artifacts.inputs(inputs, chosen)
    kept = Scratch()
    writer = ValueWriter(Path(kept.name) / "debug_buffer.bin")
    blocks = []
    for at, execution in enumerate(executions):
        known = candidates[at % len(candidates)] if candidates else []
        blocks.append(RunBlock("Execute", None, no_profile(), tuple(_events(graph, execution, known, writer))))
    dump = ETDump(kept.name, tuple(blocks), [], made=True)
    buffer = writer.path if writer.path.exists() else None
    opened = ArtifactSet.open(dump, debug_buffer=buffer, **files)
    opened = replace(opened, named={kind: path for kind, path in opened.named.items() if kind not in _MADE})
    missing = dict(table.missing) if given.probed and table is not None else {}
    notes = given.notes if given.probed else [_ONLY_FINAL]
    findings = read(
        opened,
        inputs,
        chosen,
        scale_factor("ns"),
        introduced=introduced,
        metrics=metrics,
        notes=tuple(notes),
        remarks=missing | given.remarks,
        title=Path(pte or record or etrecord or "outputs").name,
        keep_alive=kept,
    )
    return replace(findings, inside_of_probes=given.inside)


def _check_table(table: ProbeTable, artifacts: ArtifactSet, record: PathLike | None, outputs: int) -> None:
    if table.own != outputs:
        problem = f"these are the probes of a program with {table.own:,} outputs; this one has {outputs}"
        raise ArtifactError(table.path, problem, "give the record beside which the probes were made")
    if artifacts.record is not None and artifacts.record.pte_checksum != table.pte_checksum:
        raise ArtifactError(
            table.path,
            f"these are the probes of another program than {record} records (their checksums differ)",
            "give the record beside which the probes were made",
        )


def _expected_outputs(graph: Graph, artifacts: ArtifactSet, method: str) -> list[_ExpectedOutput]:
    if artifacts.program is not None:
        plan = artifacts.program.method(method)
        expected = []
        for slot in plan.outputs:
            spec = plan.values[slot].tensor
            if spec is None:
                expected.append(_ExpectedOutput(plan.values[slot].kind, None))
            else:
                shape = spec.sizes if spec.dynamism == "static" else tuple("?" for _ in spec.sizes)
                expected.append(_ExpectedOutput(spec.dtype, shape, spec.dim_order))
        return expected
    uses, outputs = Uses(graph), []
    for out in graph.outputs:
        meta: Meta | None = None
        if isinstance(out, Ref):
            name, index = uses.value(out.name)
            node = uses.nodes.get(name)
            metas = node.outputs if node is not None else ()
            meta = metas[index] if index < len(metas) else None
            if node is None:
                meta = next((placeholder.meta for placeholder in graph.inputs if placeholder.name == out.name), None)
        outputs.append(_ExpectedOutput(meta.dtype, meta.shape) if meta is not None else _ExpectedOutput(None, None))
    return outputs


class _GivenOutputs:
    """The argument ``outputs=``, by probe and execution.

    `inside` has the largest deviation of outputs by probed delegate call; None if they are not known.
    """

    def __init__(self, outputs: Any, table: ProbeTable | None, expected: list[_ExpectedOutput]) -> None:
        self._table, self._expected = table, expected
        self.notes: list[str] = []
        self.remarks: dict[int, str] = {}
        self.inside: dict[int, float | None] = {}
        self._by_name = self._named(outputs)
        self.probed = set(self._by_name) != {MODEL}

    def _named(self, outputs: Any) -> dict[str, list[list[Any]]]:
        if isinstance(outputs, (str, os.PathLike)):
            return self._folder(Path(outputs))
        if isinstance(outputs, Mapping):
            self._check_names(outputs)
            return {str(name): _executions(items) for name, items in outputs.items()}
        if not isinstance(outputs, (list, tuple)) or not outputs:
            raise UsageError("outputs must be a list of tensors or raw files, a dict of lists by probe, or a folder")
        probes = self._table.probes if self._table is not None else ()
        listed = all(isinstance(item, (list, tuple)) for item in outputs)
        if listed and probes and len(outputs) in (len(probes), len(probes) + 1):
            names = [MODEL, *(probe.name for probe in probes)][-len(outputs) :]
            if all(len(item) == self._count(name) for name, item in zip(names, outputs, strict=True)):
                return {name: _executions(item) for name, item in zip(names, outputs, strict=True)}
        return {MODEL: _executions(outputs)}

    def _folder(self, folder: Path) -> dict[str, list[list[Any]]]:
        if not folder.is_dir():
            raise ArtifactError(folder, "there is no such folder with outputs", "name the folder with the raw files")
        by_method: dict[str, dict[int, dict[int, Path]]] = {}
        known = {MODEL, *self._table.by_name} if self._table is not None else set[str]()
        for path in sorted(folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            output = int(match["output"]) if match else 0
            for name, execution in _whose(match) if match else ():
                if name in known:
                    by_method.setdefault(name, {}).setdefault(execution, {})[output] = path
        if not by_method:
            by_method = _other_files(folder)
        if not by_method:
            raise ArtifactError(
                folder, "there are no raw outputs (such as probe-0-0.bin)", "give the runner's --outputs FOLDER/probe-0"
            )
        return {name: [_in_order(name, files) for _, files in sorted(runs.items())] for name, runs in by_method.items()}

    def _check_names(self, outputs: Mapping[Any, Any]) -> None:
        if self._table is None:
            raise UsageError("outputs by name belong to probes, and there is no probes.json beside the record")
        known = {MODEL: None, **self._table.by_name}
        unknown = [name for name in outputs if name not in known]
        if unknown or not outputs:
            listed = (", ".join(map(str, itertools.islice(names, _LISTED))) for names in (map(repr, unknown), known))
            raise UsageError("there is no probe {}; known are {}".format(*listed))

    def _count(self, name: str) -> int:
        entry = self._table.by_name.get(name) if self._table is not None else None
        return entry.outputs if entry is not None else len(self._expected)

    def executions(self) -> list[_GivenExecution]:
        counts = {name: len(runs) for name, runs in self._by_name.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise UsageError(f"every probe must have run as often as the others; executions given: {told}")
        return [self._execution(run) for run in range(next(iter(counts.values())))]

    def _execution(self, run: int) -> _GivenExecution:
        finals = self._by_name.get(MODEL)
        final = None
        if finals is not None:
            final = self._read(MODEL, finals[run], self._expected)
        execution = _GivenExecution([])
        deviations: dict[str, float] = {}
        table = self._table
        entries = [entry for entry in table.probes if entry.name in self._by_name] if table is not None else []
        for entry in sorted(entries, key=lambda entry: any(value.inside for value in entry.values)):
            name, runs = entry.name, self._by_name[entry.name]
            values = self._read(name, runs[run], self._probe_outputs(entry))
            _check_mark(entry, values[-1])
            outputs = values[: len(self._expected)]
            if final is None:
                final = outputs
            deviations[name] = _deviation(outputs, final)
            opened = {value.instruction for value in entry.values if value.inside}
            for value in entry.values:
                given = values[value.position]
                place = value.instruction, value.index
                if value.inside:
                    execution.inside.setdefault(value.instruction, {})[value.inside] = given
                elif value.instruction in opened:
                    self._hold(value.instruction, deviations[name], given, execution.values.get(place))
                else:
                    execution.values[place] = given
                if deviations[name] and not opened:
                    self.remarks[value.instruction] = f"{name}'s own outputs differ from the program's: not faithful"
        execution.outputs = final or []
        self._tell(deviations, known=finals is not None)
        return execution

    def _hold(self, instruction: int, deviation: float, value: Any, other: Any) -> None:
        before = self.inside.get(instruction, 0.0)
        known = other is not None and before is not None
        worst = max(before or 0.0, deviation, _deviation([value], [other])) if known else None
        self.inside[instruction] = worst

    def _probe_outputs(self, entry: ProbeEntry) -> list[_ExpectedOutput]:
        expected = [*self._expected, *[_ExpectedOutput(None, None)] * (entry.outputs - len(self._expected))]
        for value in entry.values:
            shape: tuple[int | str, ...] = tuple("?" for _ in value.shape) if value.dynamic else value.shape
            expected[value.position] = _ExpectedOutput(value.dtype, shape, value.order)
        expected[-1] = _ExpectedOutput("int64", (len(entry.mark),))
        return expected

    def _read(self, name: str, values: Sequence[Any], expected: Sequence[_ExpectedOutput]) -> list[Any]:
        whose = "the program" if name == MODEL else name
        if len(values) != len(expected):
            raise UsageError(f"{whose} gives {len(expected)} outputs, {len(values)} were given")
        return [
            _checked(f"output {at} of {whose}", value, wanted)
            for at, (value, wanted) in enumerate(zip(values, expected, strict=True))
        ]

    def _tell(self, deviations: Mapping[str, float], *, known: bool) -> None:
        if not deviations:
            return
        off = {name: value for name, value in deviations.items() if value}
        others = "the unmodified program's" if known else "each other's"
        for name, value in off.items():
            self._note(
                f"{name}'s own outputs differ from {others} by up to {value:.3g}: giving out inner values changed what "
                "it computes, so its rows show another program."
            )
        if not off:
            whose = "The probes' own outputs are" if len(deviations) > 1 else "The probe's own outputs are"
            what = f"{others} bit for bit"
            tail = "" if known else "; give the unmodified program's as 'model' to know that they are faithful"
            self._note(f"{whose} {what}{tail}.")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _whose(match: re.Match[str]) -> Iterator[tuple[str, int]]:
    name, execution = match["name"] or "", match["execution"]
    if name:
        yield name, int(execution or 0)
    if execution is not None:
        yield (f"{name}-{execution}" if name else execution), 0


def _executions(items: Any) -> list[list[Any]]:
    if not isinstance(items, (list, tuple)) or not items:
        raise UsageError("the outputs of a program must be a list of tensors, numbers or raw files")
    if all(isinstance(item, (list, tuple)) for item in items):
        return [list(item) for item in items]
    return [list(items)]


def _other_files(folder: Path) -> dict[str, dict[int, dict[int, Path]]]:
    by_name: dict[str | None, dict[int, dict[int, Path]]] = {}
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match and path.is_file():
            runs = by_name.setdefault(match["name"], {})
            runs.setdefault(int(match["execution"] or 0), {})[int(match["output"])] = path
    if len(by_name) > 1:
        names = ", ".join(sorted(map(str, by_name)))
        raise ArtifactError(folder, f"outputs of several programs lie here ({names})", "give one program's as a list")
    return {MODEL: next(iter(by_name.values()))} if by_name else {}


def _in_order(name: str, files: Mapping[int, Path]) -> list[Path]:
    if sorted(files) != list(range(len(files))):
        last = max(files)
        gone = next(at for at in range(last) if at not in files)
        raise ArtifactError(files[last], f"output {gone} of {name} is missing beside it", "copy all of its outputs")
    return [files[at] for at in range(len(files))]


def _checked(what: str, value: Any, expected: _ExpectedOutput) -> Any:
    if isinstance(value, (str, os.PathLike)):
        return _read_file(what, value, expected)
    if hasattr(value, "__array__") and not isinstance(value, torch.Tensor):
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            raise UsageError(f"{what} must be an array of numbers, found {type(value).__name__}") from None
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise UsageError(f"{what} must be a dense tensor with its values")
        value = value.detach().cpu()
        dtype = str(value.dtype).removeprefix("torch.")
        if expected.dtype is not None and expected.shape is not None and not _fits(value, dtype, expected):
            raise UsageError(
                f"{what} is {dtype} {tuple(value.shape)}, and must be {expected.dtype} {_shape(expected.shape)}: "
                "these are outputs of something else"
            )
        return value
    if value is not None and not isinstance(value, (bool, int, float)):
        raise UsageError(f"{what} must be a tensor, a number or a raw file, found {type(value).__name__}")
    return value


def _fits(value: torch.Tensor, dtype: str, expected: _ExpectedOutput) -> bool:
    shape = expected.shape or ()
    same = all(not isinstance(size, int) or size == got for size, got in zip(shape, value.shape, strict=False))
    return dtype == expected.dtype and len(shape) == value.dim() and same


def _read_file(what: str, path: PathLike, expected: _ExpectedOutput) -> Any:
    if expected.dtype in ("int", "double", "bool") and expected.shape is None:
        return read_number(path, expected.dtype)
    if expected.dtype is None or expected.shape is None:
        raise ArtifactError(path, f"{what} can't be read: its dtype and shape are not known", "give pte= too")
    sizes = [size for size in expected.shape if isinstance(size, int)]
    if len(sizes) != len(expected.shape):
        raise ArtifactError(path, f"{what} can't be read", _UNKNOWN)
    return read_tensor(path, expected.dtype, sizes, expected.order)


def _is_static_view(node: Node) -> bool:
    meta = node.outputs[0] if node.outputs else None
    return node.target == "aten.view_copy.default" and meta is not None and all(isinstance(n, int) for n in meta.shape)


def _shape(shape: Sequence[int | str]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def _check_mark(entry: ProbeEntry, mark: Any) -> None:
    numbers = [*mark.tolist()] if isinstance(mark, torch.Tensor) else []
    if tuple(numbers) == entry.mark:
        return
    if tuple(numbers[:2]) == entry.mark[:2]:
        raise UsageError(f"what was given as {entry.name} are the outputs of probe-{numbers[2]}")
    if tuple(numbers[:1]) == entry.mark[:1]:
        raise UsageError(f"what was given as {entry.name} are the outputs of a probe of another program")
    raise UsageError(f"what was given as {entry.name} does not end with its mark: these are outputs of something else")


def _deviation(outputs: Sequence[Any], final: Sequence[Any]) -> float:
    worst = 0.0
    for a, b in zip(outputs, final, strict=True):
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            worst = worst if a == b else math.inf
        elif a.shape != b.shape or a.dtype != b.dtype:
            return math.inf
        elif not same_bits(a, b):
            error = (a.to(torch.float64) - b.to(torch.float64)).abs()
            worst = max(worst, float(error.nan_to_num(math.inf).max()), 5e-324)
    return worst


def _events(
    graph: Graph, execution: _GivenExecution, inputs: Sequence[Any], writer: ValueWriter
) -> Iterable[DebugEvent]:
    uses = Uses(graph)
    users = dict(zip((placeholder.name for placeholder in graph.user_inputs()), inputs, strict=False))
    numbers = {node.name: node.instruction for node in graph.walk()}

    def known(argument: Any) -> Any:
        if not isinstance(argument, Ref):
            return argument if isinstance(argument, (int, float)) else None
        if argument.name in users:
            return users[argument.name]
        name, index = uses.value(argument.name)
        node = uses.nodes.get(name)
        if node is not None and node.instruction < 0 and _is_static_view(node):  # the emitter left it out
            base = known(node.args[0])
            return base.reshape(node.outputs[0].shape) if base is not None and node.outputs[0] is not None else None
        return execution.values.get((numbers.get(name, -1), index))

    counts: dict[int, int] = {}
    for instruction, index in execution.values:
        counts[instruction] = max(counts.get(instruction, 0), index + 1)
    for node in graph.walk():
        count = counts.pop(node.instruction, 0) if node.instruction >= 0 else 0
        if not count:
            continue
        count = max(count, len(node.outputs))
        values = [execution.values.get((node.instruction, index)) for index in range(count)]
        if node.kernel == "delegate" or node.target == "delegate":
            values = [*map(known, node.args), *values]
        for name, value in execution.inside.get(node.instruction, {}).items():
            yield from writer.events(0, node.instruction, [value], inside=name)
        yield from writer.events(0, node.instruction, values)
    yield from writer.events(-1, 0, execution.outputs, output=True)
