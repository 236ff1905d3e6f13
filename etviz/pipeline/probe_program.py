"""Probe programs: a program's `.pte`, changed so that inner values are ordinary outputs, which every runtime returns.

A probe lowers nothing again, so kernel calls and delegates' blobs are the shipped ones. Memory planning lets values
overwrite one another, so each returned value gets separate memory, within a budget. A probe's last output identifies it
and its program.
"""

from __future__ import annotations

import copy
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch.export import ExportedProgram
from tqdm.auto import tqdm

from etviz.artifacts.files import PathLike, make_folder, write_file
from etviz.artifacts.probes import FILE, MAGIC, ProbeEntry, ProbeTable, ProbeValue, write_table
from etviz.artifacts.program.logged import logged_by
from etviz.artifacts.program.program import Instruction, Method, Program, TensorSpec, read_program
from etviz.artifacts.record.checksum import checksum_of
from etviz.artifacts.record.etrecord import ETRecord
from etviz.artifacts.record.record_file import Record, read_record
from etviz.artifacts.record.weights import Aligned, Weights
from etviz.artifacts.scalar_types import ITEM_SIZES
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, UsageError
from etviz.graph.exposure import expose
from etviz.graph.ir import Graph
from etviz.graph.labels import inside_of
from etviz.graph.uses import operators
from etviz.pipeline.lower import lower
from etviz.pipeline.recipe import Recipe, lowering
from etviz.pipeline.relower import Piece, run_alone
from etviz.upstream.delegate_file import aligned
from etviz.upstream.program_file import ProgramFile

_Item = TypeVar("_Item")

_ALIGNMENT: Final = 64
_UNITS: Final = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_LARGEST_INPUT: Final = 1 << 30
_IN_BRANCH: Final = "it stands in a branch or a loop, which may run never or often"
_WRITTEN_AGAIN: Final = "another instruction writes over the same value"
_STATE: Final = "it writes into the program's state"
_UNPLANNED: Final = "its memory is not planned, so it can't outlive the run"


@dataclass(frozen=True)
class Probe:
    """A program whose ordinary outputs are inner values of another one.

    Attributes
    ----------
    values
        The inner values, after the `own` outputs of the unmodified program.
    outputs
        Number of all outputs: the program's own, the values, and a mark.
    nbytes
        Additional bytes of memory.
    model, record
        The unmodified program and its record.
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
        return self.path.parent


def probe(
    model_or_record: torch.nn.Module | ExportedProgram | PathLike,
    inputs: Sequence[Any] | None = None,
    *,
    recipe: Recipe | str | None = None,
    partitioner: Sequence[Any] | None = None,
    budget: int | str = "64MB",
    method: str | None = None,
    instructions: Iterable[int] | None = None,
    inside: Iterable[int] = (),
    workdir: PathLike | None = None,
) -> list[Probe]:
    """Make programs whose ordinary outputs are the values at a program's instruction boundaries, and inside delegates.

    Run the unmodified program and each probe on the same inputs, anywhere; give their outputs to `etviz.load`
    (``outputs=``, ``record=``).

    Parameters
    ----------
    model_or_record
        An eager `nn.Module` or an `ExportedProgram`, which is lowered; or a record (``model.etviz``), a `.pte`, or a
        folder with the two.
    inputs
        The model's arguments, to export and lower it.
    recipe, partitioner
        As for `etviz.debug`.
    budget
        Maximum additional memory of a probe: bytes, or a text such as ``"512KB"`` or ``"1GiB"``. A larger value gets a
        separate probe.
    instructions
        Only the values of these.
    inside
        Instructions of delegate calls: further probes return the values of the operators inside, if the backend returns
        them. The delegate is lowered again: its own outputs are compared with the other probes' bit for bit. This needs
        the record, the ETRecord if that has the weights, and the backend, installed here.
    workdir
        Folder for ``probe-0.pte``, …, ``probes.json``, a copy of the record, and the artifacts of a lowered model. By
        default the record's folder, or a temporary folder that lasts as long as the probes.

    Returns
    -------
    The probes, in program order. `Inspection.coverage` has the reason for instructions without one.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged, or can't be written.
    LoweringError
        If upstream refuses the model.
    """
    how = lowering(recipe, partitioner=partitioner, quantizer=None, calibration=None, strict=True)
    allowed = parse_size(budget)
    temporary = None
    if isinstance(model_or_record, (torch.nn.Module, ExportedProgram)):
        if inputs is None:
            raise UsageError("a model is exported and lowered on its inputs; give them as the second argument")
        temporary = None if workdir is not None else Scratch()
        folder = Path(temporary.name if temporary else workdir or "")
        lowered = lower(model_or_record, inputs, folder, **how)
        pte, record = lowered.pte, lowered.record
    else:
        if how["partitioner"] is not None or recipe is not None:
            raise UsageError("recipe and partitioner are for models; this program is lowered already")
        pte, record = _files(model_or_record)
        folder = Path(workdir) if workdir is not None else pte.parent
    maker = _Maker(pte, record, folder, method, allowed)
    made = maker.make(None if instructions is None else set(instructions), list(dict.fromkeys(inside)))
    return [replace(built, keep_alive=temporary) for built in made]


def parse_size(size: int | str) -> int:
    """Bytes of a size; `UsageError` if it is no positive size.

    Examples
    --------
    >>> parse_size("64MB"), parse_size("1 KiB"), parse_size(100)
    (64000000, 1024, 100)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    unit = _UNITS.get(match[2].lower()) if match else None
    count = int(float(match[1]) * unit) if match and unit else 0
    if count <= 0 or isinstance(size, bool):
        raise UsageError(f"budget must be a positive number of bytes, or such as '64MB', found {size!r}")
    return count


def _files(given: PathLike) -> tuple[Path, Path | None]:
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
    instruction: int
    index: int
    slot: int
    spec: TensorSpec

    @property
    def nbytes(self) -> int:
        return aligned(self.spec.nbytes, _ALIGNMENT)


class _Maker:
    def __init__(self, pte: Path, record: Path | None, folder: Path, method: str | None, budget: int) -> None:
        self.pte, self.record, self.folder, self.budget = pte, record, folder, budget
        program = read_program(pte)
        self.method = _method(program, method)
        self.checksum = checksum_of(pte)
        self.graph = _graph(read_record(record), self.method.name, self.checksum, record) if record else None
        self.nodes = self.graph.by_instruction() if self.graph is not None else {}

    def make(self, wanted: set[int] | None, inside: Sequence[int]) -> list[Probe]:
        chosen, missing = self._choose(wanted)
        costs = [(value, 0 if value.slot in self.method.outputs else value.nbytes) for value in chosen]
        groups = _packed(costs, self.budget)
        opened = [self._opened(instruction) for instruction in inside]
        if not groups and not opened:
            raise UsageError(f"{self.pte}: no instruction has a value that a probe could give out")
        make_folder(self.folder)
        source = ProgramFile.read(self.pte)
        aliases = _aliases(self.method, self._written)
        plain_outputs, entries, probes = len(self.method.outputs), [], []
        plans = [(group, None) for group in groups]
        for delegate in opened:
            boundary = self._choose({delegate.instruction})[0]
            left = self.budget - sum(chosen.nbytes for chosen in boundary)
            plans += [(boundary, part) for part in delegate.parts(max(left, 0))]
        for number, (group, part) in enumerate(tqdm(plans, desc="probe", leave=False, delay=1)):
            name = f"probe-{number}"
            entry, grown, content = self._build(name, number, group, copy.deepcopy(source), aliases, part)
            path = self.folder / f"{name}.pte"
            write_file(path, "a probe", content, through=False)
            entries.append(entry)
            probes.append(Probe(name, path, entry.values, plain_outputs, entry.outputs, grown, self.pte, self.record))
        table = ProbeTable("", self.method.name, self.checksum, plain_outputs, tuple(entries), missing)
        write_table(table, self.folder / FILE)
        if self.record is not None and self.record.resolve().parent != self.folder.resolve():
            write_file(self.folder / self.record.name, "the record", self.record.read_bytes(), through=False)
        return probes

    def _choose(self, wanted: set[int] | None) -> tuple[list[_Chosen], dict[int, str]]:
        writers: dict[int, int] = {}
        for instruction in self.method.instructions:
            for slot in self._written(instruction):
                writers[slot] = writers.get(slot, 0) + 1
        chosen, missing = [], {}
        for instruction in self.method.instructions:
            if wanted is not None and instruction.index not in wanted:
                continue
            for index, slot in enumerate(self._written(instruction)):
                spec = self.method.values[slot].tensor
                reason = ""
                if spec is None:
                    continue
                if instruction.index in self.method.nested:
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

    def _opened(self, instruction: int) -> _OpenedDelegate:
        node, graph = self.nodes.get(instruction), self.graph
        if graph is None or self.record is None:
            raise UsageError("values inside a delegate need the record (model.etviz) beside the program")
        calls = sorted(at for at, other in self.nodes.items() if other.target == "delegate")
        if node is None or node.target != "delegate":
            raise UsageError(f"inside must be instructions of delegate calls, found {instruction}; they are {calls}")
        etrecord = self.pte.parent / "etrecord.bin"
        opened = ETRecord(etrecord) if etrecord.is_file() else None
        weights = Weights(read_record(self.record), str(self.record), opened)
        inner = inside_of(graph, instruction)
        call = next(called for called in self.method.instructions if called.index == instruction)
        args = call.args[: len(call.args) - len(node.outputs)]
        specs = [self.method.values[slot].tensor for slot in args]
        given = [_example(spec, instruction) for spec in specs]
        return _OpenedDelegate(instruction, inner, Aligned(weights), given, len(node.outputs))

    def _written(self, instruction: Instruction) -> tuple[int, ...]:
        if instruction.kind == "delegate":
            node = self.nodes.get(instruction.index)
            count = len(node.outputs) if node is not None else len(instruction.outputs)
            return instruction.args[len(instruction.args) - count :]
        return tuple(t for value in logged_by(self.method, instruction) for t in self.method.tensors(value))

    def _build(
        self,
        name: str,
        number: int,
        group: Sequence[_Chosen],
        file: ProgramFile,
        aliases: dict[int, list[int]],
        part: _DelegatePart | None,
    ) -> tuple[ProbeEntry, int, bytes]:
        plan = file.plan(self.method.name)
        before = sum(plan.non_const_buffer_sizes)
        values = []
        for value in group:
            if value.slot in self.method.outputs:
                position = self.method.outputs.index(value.slot)
            else:
                file.keep(plan, [value.slot, *aliases.get(value.slot, ())], value.nbytes)
                position = len(plan.outputs)
                plan.outputs.append(value.slot)
            spec = value.spec
            dynamic = spec.dynamism != "static"
            values.append(
                ProbeValue(value.instruction, value.index, position, spec.dtype, spec.sizes, spec.dim_order, dynamic)
            )
        if part is not None:
            values += part.put_into(file, plan)
        mark = (MAGIC, int(self.checksum.rpartition(":")[2][:15], 16), number)
        plan.outputs.append(file.add_constant(plan, struct.pack("<3q", *mark), 3))
        entry = ProbeEntry(name, tuple(values), len(plan.outputs), mark)
        return entry, sum(plan.non_const_buffer_sizes) - before, file.content()


def _packed(costs: Iterable[tuple[_Item, int]], budget: int) -> list[list[_Item]]:
    groups: list[list[_Item]] = []
    used = 0
    for member, cost in costs:
        if not groups or (used + cost > budget and used):
            groups.append([])
            used = 0
        groups[-1].append(member)
        used += cost
    return groups


def _example(spec: TensorSpec | None, instruction: int) -> torch.Tensor:
    if spec is None or spec.dynamism != "static":
        raise UsageError(
            f"the inputs of the delegate call {instruction} are not tensors of fixed sizes, so no probe goes inside"
        )
    if spec.nbytes > _LARGEST_INPUT:
        raise UsageError(
            f"an input of the delegate call {instruction} has {spec.nbytes:,} bytes, so no probe goes inside; "
            f"at most {_LARGEST_INPUT:,} are made up"
        )
    order = spec.dim_order or tuple(range(len(spec.sizes)))
    lying = torch.zeros([spec.sizes[axis] for axis in order], dtype=getattr(torch, spec.dtype))
    return lying.permute([order.index(axis) for axis in range(len(order))])


@dataclass
class _OpenedDelegate:
    instruction: int
    inner: Graph
    constants: Mapping[str, torch.Tensor]
    inputs: list[torch.Tensor]
    own: int

    def parts(self, budget: int) -> list[_DelegatePart]:
        costs = [(name, self.sizes[name]) for name in expose(self.inner).candidates if name in self.sizes]
        groups = _packed(costs, budget)
        parts = [part for group in groups if (part := self._lowered(group)) is not None]
        if not parts:
            raise UsageError(
                f"{self.inner.backend_id} gives out no inner value of the delegate call {self.instruction}"
            )
        return parts

    @cached_property
    def sizes(self) -> dict[str, int]:
        sizes = {}
        for node in operators(self.inner.nodes):
            meta = node.outputs[0] if len(node.outputs) == 1 else None
            if meta is not None and meta.sizes is not None:
                nbytes = math.prod(meta.sizes) * ITEM_SIZES.get(meta.dtype, 8)
                sizes[node.name] = aligned(nbytes, _ALIGNMENT)
        return sizes

    def _lowered(self, names: Sequence[str]) -> _DelegatePart | None:
        piece = Piece(self.inner, self.constants, self.inputs, [])
        with Scratch() as folder:
            path = Path(folder) / "piece.pte"
            while names:
                run = run_alone(piece, names, keep_pte=path, label=f"inside {self.instruction}")
                if list(run.values) == list(names):
                    return _DelegatePart(
                        self, tuple(names), [run.values[name] for name in names], ProgramFile.read(path)
                    )
                names = list(run.values)
        return None


@dataclass
class _DelegatePart:
    of: _OpenedDelegate
    names: tuple[str, ...]
    values: list[torch.Tensor]
    piece: ProgramFile

    def put_into(self, file: ProgramFile, plan: Any) -> list[ProbeValue]:
        sizes = [self.of.sizes[name] for name in self.names]
        try:
            slots = file.replace_delegate(plan, self.of.instruction, self.of.own, self.piece, sizes)
        except ValueError as error:
            raise UsageError(f"no probe goes inside the delegate call {self.of.instruction}: {error}") from error
        values = []
        for name, slot, value in zip(self.names, slots, self.values, strict=True):
            tensor = plan.values[slot].val
            dtype = str(value.dtype).removeprefix("torch.")
            order = tuple(int(axis) for axis in tensor.dim_order)
            values.append(
                ProbeValue(self.of.instruction, 0, len(plan.outputs), dtype, tuple(value.shape), order, inside=name)
            )
            plan.outputs.append(slot)
        return values


def _method(program: Program, name: str | None) -> Method:
    if name is None and len(program.methods) != 1 and "forward" not in [method.name for method in program.methods]:
        known = ", ".join(method.name for method in program.methods)
        raise UsageError(f"the program has the methods {known}; say which with method=")
    return program.method(name or ("forward" if len(program.methods) != 1 else program.methods[0].name))


def _graph(record: Record, method: str, checksum: str, path: Path) -> Graph:
    if record.pte_checksum != checksum:
        raise ArtifactError(
            path,
            "the record belongs to another program than the .pte beside it (their checksums differ)",
            "write the record again with etviz.record()",
        )
    return record.graphs[method]


def _aliases(method: Method, written_by: Any) -> dict[int, list[int]]:
    """By value: other shapes of the same memory, views that the emitter left out."""
    specs = {at: value.tensor for at, value in enumerate(method.values)}
    written = {at for at, spec in specs.items() if spec and (spec.data_index > 0 or spec.external)}
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
