"""Probe programs: a program's own `.pte`, changed so that inner values are among its ordinary outputs.

Whatever runs a program gives its outputs: a release build without event tracer, Java, Swift, a browser, a
microcontroller. A probe is made from the `.pte` alone: nothing is exported or lowered again, so every kernel call and
every delegate's blob is the one that ships. Memory planning lets values overwrite one another, so each value that is to
survive until the end gets memory of its own, which costs that much more; a budget decides how many values one probe
gives out, and several probes cover a program.

The last output of a probe is a constant that says which probe of which program it is.
"""

from __future__ import annotations

import copy
import re
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tqdm.auto import tqdm

from etviz.artifacts.files import whole_file
from etviz.artifacts.probes import FILE, MAGIC, ProbeEntry, ProbeTable, ProbeValue, write_table
from etviz.artifacts.program.logged import logged_by
from etviz.artifacts.program.program import Method, Program, TensorSpec, read_program
from etviz.artifacts.record.checksum import checksum_of
from etviz.artifacts.record.record_file import Record, read_record
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, UsageError
from etviz.pipeline.lower import lower
from etviz.upstream.program_file import ProgramFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch
    from torch.export import ExportedProgram

    from etviz.artifacts.files import PathLike
    from etviz.artifacts.program.program import Instruction
    from etviz.graph.ir import Node

_ALIGNMENT: Final = 64
_UNITS: Final = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_IN_BRANCH: Final = "it stands in a branch or a loop, which may run never or often"
_WRITTEN_AGAIN: Final = "another instruction writes over the same value"
_STATE: Final = "it writes into the program's state"
_UNPLANNED: Final = "its memory is not planned, so it can't outlive the run"


@dataclass(frozen=True)
class Probe:
    """A program whose ordinary outputs are inner values of another one.

    Attributes
    ----------
    name
        What its outputs are to be called: ``probe-0``, ``probe-1``, …
    path
        The `.pte`.
    values
        What it gives out, after the program's own outputs.
    own
        How many outputs the unmodified program has: the first ones.
    outputs
        How many outputs the probe has: the program's own, the values, and a mark.
    nbytes
        Bytes of memory that it takes more than the unmodified program.
    model, record
        The unmodified program, and its record, beside which the table of the probes lies; the record is None where
        there is none.
    """

    name: str
    path: Path
    values: tuple[ProbeValue, ...]
    own: int
    outputs: int
    nbytes: int
    model: Path
    record: Path | None
    keep_alive: Any = field(default=None, repr=False, compare=False)

    @property
    def folder(self) -> Path:
        """Where the probes, their table, the program and its record are."""
        return self.path.parent


def probe(
    model_or_record: torch.nn.Module | ExportedProgram | PathLike,
    inputs: Sequence[Any] | None = None,
    *,
    partitioner: Sequence[Any] | None = None,
    budget: int | str = "64MB",
    method: str | None = None,
    instructions: Iterable[int] | None = None,
    workdir: PathLike | None = None,
) -> list[Probe]:
    """Make programs whose ordinary outputs are the values at a program's instruction boundaries.

    Run the unmodified program and each probe on the same inputs, anywhere; keep their outputs; and give them to
    `etviz.load` (``outputs=``, ``record=``).

    Parameters
    ----------
    model_or_record
        An eager `nn.Module` or an `ExportedProgram`, which is lowered; or a record (``model.etviz``), a `.pte`, or a
        folder with the two.
    inputs
        The model's arguments, to export and lower it.
    partitioner
        Partitioners of the backends to delegate to, if a model is lowered; None means portable kernels only.
    budget
        Memory that a probe may take more than the unmodified program: bytes, or such as ``"512KB"`` or ``"1GiB"``. A
        value that is larger by itself has a probe of its own.
    method
        The method, if there are several.
    instructions
        Only the values of these; by default of all.
    workdir
        Folder for ``probe-0.pte``, …, ``probes.json``, and, where a model is lowered, its artifacts; by default the
        record's folder, or a temporary one that lasts as long as the probes.

    Returns
    -------
    The probes, in program order. Instructions without one (in branches, writing into state) are named, with the
    reason, by `Inspection.coverage` of what they give.

    Raises
    ------
    UsageError
        If an argument makes no sense.
    ArtifactError
        If a file is missing, damaged, or can't be written.
    LoweringError
        If upstream refuses the model.
    """
    import torch
    from torch.export import ExportedProgram

    allowed = parse_size(budget)
    temporary = None
    if isinstance(model_or_record, (torch.nn.Module, ExportedProgram)):
        if inputs is None:
            raise UsageError("a model is exported and lowered on its inputs; give them as the second argument")
        temporary = None if workdir is not None else Scratch()
        folder = Path(temporary.name if temporary else workdir or "")
        lowered = lower(model_or_record, inputs, folder, partitioner=partitioner)
        pte, record = lowered.pte, lowered.record
    else:
        if partitioner is not None:
            raise UsageError("partitioner is for models; this program is lowered already")
        pte, record = _files(model_or_record)
        folder = Path(workdir) if workdir is not None else pte.parent
    made = _Maker(pte, record, folder, method, allowed).make(None if instructions is None else set(instructions))
    return [replace(item, keep_alive=temporary) for item in made]


def parse_size(size: int | str) -> int:
    """Bytes of a size such as ``"64MB"``.

    Examples
    --------
    >>> parse_size("64MB"), parse_size("1 KiB"), parse_size(100)
    (64000000, 1024, 100)

    Raises
    ------
    UsageError
        If it is no positive size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    unit = _UNITS.get(match[2].lower()) if match else None
    found = int(float(match[1]) * unit) if match and unit else 0
    if found <= 0 or isinstance(size, bool):
        raise UsageError(f"budget must be a positive number of bytes, or such as '64MB', found {size!r}")
    return found


def _files(given: PathLike) -> tuple[Path, Path | None]:
    """The `.pte` and the record that a path means."""
    try:
        path = Path(given)
    except TypeError:
        raise UsageError(
            f"model_or_record must be a model, or the path of a record or .pte, found {type(given).__name__}"
        ) from None
    path = path / "model.pte" if path.is_dir() else path
    record = path.with_suffix(".etviz")
    if path == record:
        path = path.with_suffix(".pte")
        if not path.is_file():
            raise ArtifactError(record, "there is no .pte beside the record", f"put the program there as {path.name}")
    return path, record if record.is_file() else None


@dataclass
class _Chosen:
    """A value that is to be given out: where it is logged, and its slot in the method's value table."""

    instruction: int
    index: int
    slot: int
    spec: TensorSpec

    @property
    def nbytes(self) -> int:
        return -(-self.spec.nbytes // _ALIGNMENT) * _ALIGNMENT


class _Maker:
    """Makes the probes of one method."""

    def __init__(self, pte: Path, record: Path | None, folder: Path, method: str | None, budget: int) -> None:
        self.pte, self.record, self.folder, self.budget = pte, record, folder, budget
        program = read_program(pte)
        self.method = _method(program, method)
        self.checksum = checksum_of(pte)
        self.nodes = _nodes(read_record(record), self.method.name, self.checksum, record) if record else {}

    def make(self, wanted: set[int] | None) -> list[Probe]:
        chosen, missing = self._choose(wanted)
        groups = self._groups(chosen)
        if not groups:
            raise UsageError(f"{self.pte}: no instruction has a value that a probe could give out")
        self.folder.mkdir(parents=True, exist_ok=True)
        source = ProgramFile.read(self.pte)
        aliases = _aliases(self.method, self._written)
        entries, probes = [], []
        for number, group in enumerate(tqdm(groups, desc="probe", leave=False, delay=1)):
            name = f"probe-{number}"
            entry, grown, content = self._build(name, number, group, copy.deepcopy(source), aliases)
            path = self.folder / f"{name}.pte"
            with whole_file(path, "a probe") as partial:
                partial.write_bytes(content)
            entries.append(entry)
            own = len(self.method.outputs)
            probes.append(Probe(name, path, entry.values, own, entry.outputs, grown, self.pte, self.record))
        own = len(self.method.outputs)
        table = ProbeTable("", self.method.name, self.checksum, own, tuple(entries), missing)
        write_table(table, self.folder / FILE)
        return probes

    def _choose(self, wanted: set[int] | None) -> tuple[list[_Chosen], dict[int, str]]:
        """What can be given out, in program order, and why the rest can't."""
        writers: dict[int, int] = {}
        for instruction in self.method.instructions:
            for slot in self._written(instruction):
                writers[slot] = writers.get(slot, 0) + 1
        sometimes = _conditional(self.method)
        chosen, missing = [], {}
        for instruction in self.method.instructions:
            if wanted is not None and instruction.index not in wanted:
                continue
            for index, slot in enumerate(self._written(instruction)):
                spec = self.method.values[slot].tensor
                reason = ""
                if spec is None:
                    continue
                if instruction.index in sometimes:
                    reason = _IN_BRANCH
                elif spec.data_index > 0 or spec.external or slot in self.method.inputs:
                    reason = _STATE
                elif writers[slot] > 1:
                    reason = _WRITTEN_AGAIN
                elif spec.memory is None and slot not in self.method.outputs:
                    reason = _UNPLANNED
                if reason:
                    missing[instruction.index] = f"no probe gives its value: {reason}"
                else:
                    chosen.append(_Chosen(instruction.index, index, slot, spec))
        return chosen, missing

    def _written(self, instruction: Instruction) -> tuple[int, ...]:
        """The tensors that a call makes and the runtime would log, in that order."""
        if instruction.kind == "delegate":
            node = self.nodes.get(instruction.index)
            count = len(node.outputs) if node is not None else len(instruction.outputs)
            return instruction.args[len(instruction.args) - count :]
        return tuple(t for value in logged_by(self.method, instruction) for t in self.method.tensors(value))

    def _groups(self, chosen: Sequence[_Chosen]) -> list[list[_Chosen]]:
        """As many values in each probe as the budget allows."""
        groups: list[list[_Chosen]] = []
        used = 0
        for item in chosen:
            cost = 0 if item.slot in self.method.outputs else item.nbytes
            if not groups or (used + cost > self.budget and used):
                groups.append([])
                used = 0
            groups[-1].append(item)
            used += cost
        return groups

    def _build(
        self, name: str, number: int, group: Sequence[_Chosen], file: ProgramFile, aliases: dict[int, list[int]]
    ) -> tuple[ProbeEntry, int, bytes]:
        """A probe's line of the table, the memory that it takes, and its content."""
        plan = file.plan(self.method.name)
        before = sum(plan.non_const_buffer_sizes)
        values = []
        for item in group:
            if item.slot in self.method.outputs:
                position = self.method.outputs.index(item.slot)
            else:
                file.keep(plan, [item.slot, *aliases.get(item.slot, ())], item.nbytes)
                position = len(plan.outputs)
                plan.outputs.append(item.slot)
            spec = item.spec
            dynamic = spec.dynamism != "static"
            values.append(
                ProbeValue(item.instruction, item.index, position, spec.dtype, spec.sizes, spec.dim_order, dynamic)
            )
        mark = (MAGIC, int(self.checksum.rpartition(":")[2][:15], 16), number)
        plan.outputs.append(file.add_constant(plan, struct.pack("<3q", *mark), 3))
        entry = ProbeEntry(name, tuple(values), len(plan.outputs), mark)
        return entry, sum(plan.non_const_buffer_sizes) - before, file.content()


def _method(program: Program, name: str | None) -> Method:
    if name is None and len(program.methods) != 1 and "forward" not in [item.name for item in program.methods]:
        known = ", ".join(item.name for item in program.methods)
        raise UsageError(f"the program has the methods {known}; say which with method=")
    return program.method(name or ("forward" if len(program.methods) != 1 else program.methods[0].name))


def _nodes(record: Record, method: str, checksum: str, path: Path) -> dict[int, Node]:
    """The recorded nodes by instruction."""
    if record.pte_checksum != checksum:
        raise ArtifactError(
            path,
            "the record belongs to another program than the .pte beside it (their checksums differ)",
            "write the record again with etviz.record()",
        )
    return {node.instruction: node for node in record.graphs[method].walk() if node.instruction >= 0}


def _conditional(method: Method) -> set[int]:
    """Instructions that a jump may skip or repeat."""
    found: set[int] = set()
    for item in method.instructions:
        if item.target is not None:
            found.update(range(*sorted((item.index, item.target))))
    return found


def _aliases(method: Method, written_by: Any) -> dict[int, list[int]]:
    """By value: those that are the same memory under another shape, a view that the emitter left out."""
    written = {at for at, value in enumerate(method.values) if value.tensor and _initialized(value.tensor)}
    written |= set(method.inputs)
    last: dict[tuple[int, int], int] = {}
    owners: dict[int, int] = {}
    for instruction in method.instructions:
        made = set(written_by(instruction))
        for slot in (t for value in instruction.args for t in method.tensors(value)):
            memory = _memory(method, slot)
            if slot not in written | made and slot not in owners and memory in last:
                owners[slot] = last[memory]
        for slot in made:
            written.add(slot)
            if (memory := _memory(method, slot)) is not None:
                last[memory] = slot
    for slot in method.outputs:
        memory = _memory(method, slot)
        if slot not in written and slot not in owners and memory in last:
            owners[slot] = last[memory]
    aliases: dict[int, list[int]] = {}
    for slot, owner in owners.items():
        aliases.setdefault(owner, []).append(slot)
    return aliases


def _memory(method: Method, slot: int) -> Any:
    spec = method.values[slot].tensor
    return spec.memory if spec is not None else None


def _initialized(spec: TensorSpec) -> bool:
    return spec.data_index > 0 or spec.external


__all__ = ["Probe", "ProbeValue", "parse_size", "probe"]
