"""Values inside one delegate call.

Sources, in this order:

1. the backend logged them in the run itself, or the program was a probe;
2. an interpreter for the backend runs the delegate's part of the `.pte`;
3. the backend lowers the delegate's subgraph again, with inner values as outputs.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from etviz.artifacts.program.held import Held, held_operators, is_readable
from etviz.artifacts.program.program import read_program
from etviz.comparison.constants import Difference, differing, kind_of
from etviz.errors import UsageError
from etviz.explain.given_values import GivenValues
from etviz.graph.exposure import Exposure, expose
from etviz.graph.ir import Graph, Node, Ref
from etviz.graph.quantize_ops import conversion
from etviz.graph.uses import Uses, item_of, operators
from etviz.pipeline.interpreters import interpreter_of
from etviz.pipeline.relower import AloneRun, Piece, run_alone
from etviz.tensors.custom_metrics import CustomMetrics
from etviz.tensors.digest import same_bits
from etviz.tensors.sums import sums_of
from etviz.upstream.executorch import runs_here

Identifier = int | str
Preprocessing = Callable[[Identifier, Any], Any]
"""Takes a backend's identifier and the tensor that it logged, and returns it as the operator's value."""
_NO_HANDLES: Final = "the delegate map names no operator of this graph"


@dataclass(frozen=True, slots=True)
class Logged:
    """In the order of logging.

    `handles` maps identifiers, as text, to debug handles. If a probe returned the values (`probed`), `deviation` is the
    distance of its outputs from the program's, None if unknown.
    """

    values: Sequence[tuple[Identifier, Any]]
    handles: Mapping[str, Sequence[int]] = field(default_factory=dict)
    probed: bool = False
    deviation: float | None = 0.0


@dataclass(frozen=True, slots=True)
class ZoomSubject:
    """One delegate call that is zoomed into, with its runtime inputs and outputs.

    `fixed` are its constant inputs by position, as the reference has them; `constants` differ in the `.pte`.
    `unjudged` says why the reference's inputs of the call are not known. `handles` are as in `Logged`.
    """

    piece: Piece
    logged: Logged | None = None
    fixed: Mapping[int, torch.Tensor] = field(default_factory=dict)
    constants: Sequence[Difference] = ()
    unjudged: str = ""
    custom: CustomMetrics | None = None
    handles: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Any]:
        return [self.fixed.get(at, value) for at, value in enumerate(self.piece.inputs)]


@dataclass(frozen=True, slots=True)
class How:
    """`preprocessing` undoes the backend's change of a logged value: a layout, a quantization."""

    timeout: float | None = None
    progress: Callable[[int, int], None] | None = None
    cancel: threading.Event | None = None
    quiet: bool = False
    preprocessing: Preprocessing | None = None


@dataclass(slots=True)
class InnerValues(GivenValues):
    """The values of a delegate's operators in one execution, by number of `graph`; `reasons` say why one is None.

    `parts` has the number of the operator whose part
    another one is. `faithful` is True if the delegate's outputs equal the run's bit for bit, None if unknown.
    `deviation` is the largest absolute difference of the outputs from the run's, NaN if unknown. `implementation` is
    empty for the backend's kernels. If the run computed in another `precision`, the values are those of float32, and
    `faithful` is about the outputs in the run's.
    """

    graph: Graph
    reasons: dict[int, str]
    parts: dict[int, int]
    faithful: bool | None
    deviation: float
    message: str
    notes: tuple[str, ...] = ()
    logged: bool = False
    implementation: str = ""
    precision: str = ""


def inner_values(subject: ZoomSubject, how: How) -> InnerValues:
    """From the best available source.

    A `UsageError` if `preprocessing` fails or has no object, a `BackendRefusedError` if the backend can't lower or run
    the subgraph, an `ExecutionError` if the child process crashes, takes too long, or is cancelled.
    """
    if subject.logged is not None:
        return from_log(subject.piece, subject.logged, how.preprocessing)
    if how.preprocessing is not None:
        raise UsageError("preprocessing is for values that a backend logged inside its delegate; it logged none")
    held = _held(subject.piece)
    return from_run(subject.piece, subject.constants, how) if held is None else _only_read(subject, held)


def _held(piece: Piece) -> list[Held] | None:
    """None if the backend or its interpreter runs here, or its program can't be read."""
    backend = piece.graph.backend_id
    if piece.ran is None or interpreter_of(backend) is not None or not is_readable(backend) or runs_here(backend):
        return None
    payload = read_program(piece.ran.pte).payload(piece.ran.method, piece.ran.instruction)
    return None if payload is None else held_operators(backend, payload)


def _only_read(subject: ZoomSubject, held: Sequence[Held]) -> InnerValues:
    """The backend's operators; only the delegate's outputs are known values."""
    piece, backend = subject.piece, subject.piece.graph.backend_id
    graph = numbered(piece.graph, Exposure())
    by_instruction: dict[int, list[str]] = {}
    for node in operators(graph.nodes):
        numbers = {number for number, handles in subject.handles.items() if not {*handles}.isdisjoint(node.handles)}
        by_instruction[node.instruction] = [
            item.kind for item in held if item.is_of(node.name) or str(item.number) in numbers
        ]
    alone = "; its program has no operator for it alone" if any(by_instruction.values()) else ""
    reasons = {
        at: f"{backend} does not run here" + (f"; its program has {', '.join(kinds)} for it" if kinds else alone)
        for at, kinds in by_instruction.items()
    }
    counts = Counter(operator.kind for operator in held)
    named = ", ".join(f"{kind} × {count}" if count > 1 else kind for kind, count in counts.most_common())
    message = (
        f"{backend} does not run on this machine, so values inside are not known; load values that it logs inside, or "
        f"that a probe returns (etviz.probe). Its program has {len(held)} operators: {named}."
    )
    outputs = AloneRun(list(piece.outputs), {}, {}, None)
    return InnerValues(_by_operator(graph, outputs), list(piece.outputs), graph, reasons, {}, None, math.nan, message)


def from_run(piece: Piece, constants: Sequence[Difference], how: How) -> InnerValues:
    known = all(value is not None for value in piece.outputs)
    exposure = expose(piece.graph)
    run = run_alone(
        replace(piece, outputs=piece.outputs if known else []),
        exposure.candidates,
        timeout=how.timeout,
        progress=how.progress,
        cancel=how.cancel,
        quiet=how.quiet,
    )
    graph = numbered(piece.graph, exposure)
    numbers = {node.name: node.instruction for node in graph.nodes}
    backend = graph.backend_id
    reasons = {name: f"{backend} does not return it: {reason}" for name, reason in run.left_out.items()}
    faithful, deviation, message = _fidelity(piece, run, known, constants)
    notes: tuple[str, ...] = ()
    if piece.rounds > 1:
        notes += (f"It was executed {piece.rounds} times in a loop; these are the values of the last time.",)
    if missing := [name for name in run.left_out if name not in run.parts]:
        count, reason = len(missing), run.left_out[missing[0]]
        text = f"{backend} does not return {count} of {len(exposure.candidates)} inner values ({reason}); see coverage."
        notes += (text,)
    given = _by_operator(graph, run)
    uses = Uses(graph)
    owners = {uses.value(part)[0]: uses.value(owner)[0] for part, owner in run.parts.items()}
    owners |= {part: owners[owner] for part, owner in exposure.owners.items() if owner in owners}
    return InnerValues(
        given,
        list(run.outputs),
        graph,
        {numbers[name]: reason for name, reason in (reasons | exposure.hidden).items()},
        {numbers[part]: numbers[owner] for part, owner in (exposure.owners | owners).items()},
        faithful,
        deviation,
        message,
        notes,
        problems={
            number: "it is not returned" for number, returned in given.items() if any(item is None for item in returned)
        },
        implementation=run.implementation,
        precision=run.precision if faithful and deviation else "",
    )


def numbered(inner: Graph, exposure: Exposure) -> Graph:
    nodes: list[Node] = []
    origins = {node.name: node for node in inner.nodes}
    for node in inner.nodes:
        if item_of(node) is not None or node.target.startswith("py."):
            nodes.append(replace(node, instruction=-1))
            continue
        parts = [origins[name] for name in exposure.parts(node.name)]
        if parts:
            known = dict.fromkeys(p.origin for p in (*parts, node) if p.origin and not conversion(p.origin))
            node = replace(node, origin=", ".join(known), stack=parts[0].stack, module=parts[0].module)
        nodes.append(replace(node, instruction=len(nodes)))
    return replace(inner, nodes=nodes)


def _by_operator(graph: Graph, run: AloneRun) -> dict[int, list[Any]]:
    named = dict(run.values)
    named |= {out.name: value for out, value in zip(graph.outputs, run.outputs, strict=True) if isinstance(out, Ref)}
    uses, values = Uses(graph), dict[int, list[Any]]()
    for name, value in named.items():
        operator, output = uses.value(name)
        node = uses.nodes[operator]
        values.setdefault(node.instruction, [None] * max(len(node.outputs), 1))[output] = value
    return values


def _fidelity(
    piece: Piece, run: AloneRun, known: bool, constants: Sequence[Difference]
) -> tuple[bool | None, float, str]:
    if not known:
        return None, math.nan, "The run's output can't be read, so the zoomed delegate's can't be compared with it."
    if all(map(same_bits, run.outputs, piece.outputs)):
        return True, 0.0, "The zoomed delegate's output equals the run's bit for bit."
    deviation = _deviation(run.outputs, piece.outputs)
    plain = run.outputs if run.plain is None else run.plain
    same = all(map(same_bits, plain, piece.outputs))
    if run.precision and same:
        text = (
            f"{piece.graph.backend_id} computed the delegate in {run.precision}; so its output is the run's, bit for "
            f"bit. The values inside are those of the same program in float32, whose output is off by {deviation:.3g}."
        )
        return True, deviation, text
    if run.implementation:
        return False, deviation, _off_specification(piece, run, deviation)
    if constants and run.lowered:
        cause = f"the program that ran has other {kind_of(constants)} than the reference: {differing(constants)}"
    elif same:
        cause = f"returning the inner values changed how {piece.graph.backend_id} runs the operators"
    else:
        alone = _deviation(plain, piece.outputs)
        what = "lowered again" if run.lowered else "run again as it is"
        why = (
            "options or weights, or upstream lowers it otherwise alone"
            if run.lowered
            else "or its outputs were changed"
        )
        cause = (
            f"the delegate {what}, without returning inner values, differs by up to {alone:.3g}, too: "
            f"it ran on another machine or with another version, {why}"
        )
    return False, deviation, f"The zoomed delegate's output differs from the run's by up to {deviation:.3g}: {cause}."


def _off_specification(piece: Piece, run: AloneRun, deviation: float) -> str:
    text = (
        f"The device differs from the specification: its output is off by up to {deviation:.3g} from that of the "
        f"{run.implementation} on the same inputs"
    )
    interpreter = interpreter_of(piece.graph.backend_id)
    floats = any(value.is_floating_point() for value in (*run.outputs, *run.values.values()))
    if floats or interpreter is None or not interpreter.exact:
        return f"{text}. Operators inside are compared as the specification computes them."
    return (
        f"{text}. The specification leaves integers no freedom, so the device, its driver or its compiler is wrong, or "
        "the record is of another program."
    )


def _deviation(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    worst = 0.0
    for a, b in zip(outputs, expected, strict=True):
        if a.shape != b.shape:
            return math.inf
        sums = sums_of(b, a)
        worst = max(worst, math.inf if sums.mismatched else sums.max_d)
    return worst


@dataclass(frozen=True, slots=True)
class JoinedValues:
    """`parts` maps an operator without a value to the one that contains it; `strange` identifiers have no operator."""

    values: dict[str, tuple[Identifier, Any]]
    parts: dict[str, str]
    strange: tuple[Identifier, ...]


def join(graph: Graph, logged: Sequence[tuple[Identifier, Any]], handles: Mapping[str, Sequence[int]]) -> JoinedValues:
    """Join logged values, in the order of logging, to operators.

    Where a pass turned the operators {a, …} into {b, …}, each new one carries the debug handles of all old ones. So an
    identifier's value is that of the last operator with one of its handles, and the others are part of it. Identifiers
    that `handles` lacks may be operators' names.
    """
    nodes = list(operators(graph.nodes))
    named: dict[Identifier, list[Node]] = {node.name: [node] for node in nodes}
    values: dict[str, tuple[Identifier, Any]] = {}
    parts: dict[str, str] = {}
    strange: dict[Identifier, None] = {}
    for identifier, value in logged:
        carried = set(handles.get(str(identifier), ()))
        group = [node for node in nodes if not carried.isdisjoint(node.handles)] or named.get(identifier, [])
        if not group:
            strange[identifier] = None
            continue
        values[group[-1].name] = identifier, value
        parts |= {node.name: group[-1].name for node in group[:-1]}
    return JoinedValues(values, {name: owner for name, owner in parts.items() if name not in values}, tuple(strange))


def from_log(piece: Piece, logged: Logged, preprocessing: Preprocessing | None = None) -> InnerValues:
    graph = numbered(piece.graph, Exposure())
    backend = graph.backend_id
    joined = join(graph, logged.values, logged.handles)
    nodes = {node.name: node for node in graph.nodes}
    silent = f"{backend} {'returned' if logged.probed else 'logged'} no value for it"
    reasons = {node.instruction: silent for node in operators(graph.nodes) if node.instruction >= 0}
    given: dict[int, list[Any]] = {}
    for name, (identifier, value) in joined.values.items():
        stored = _prepared(identifier, value, preprocessing)
        if problem := _misfit(nodes[name], stored):
            reasons[nodes[name].instruction] = f"{backend} logged {problem} as {identifier!r}"
        else:
            given[nodes[name].instruction] = [stored]
    for part, owner in joined.parts.items():
        reasons[nodes[part].instruction] = f"it is part of {owner}: the backend runs them as one operator"
    notes: tuple[str, ...] = ()
    if joined.strange:
        named = ", ".join(repr(strange) for strange in joined.strange[:5])
        notes = (f"{backend} logged {len(joined.strange)} values ({named}) for which {_NO_HANDLES}.",)
    parts = {nodes[part].instruction: nodes[owner].instruction for part, owner in joined.parts.items()}
    fidelity = _fidelity_of_log(backend, logged)
    return InnerValues(given, list(piece.outputs), graph, reasons, parts, *fidelity, notes, logged=True)


def _fidelity_of_log(backend: str, logged: Logged) -> tuple[bool | None, float, str]:
    if not logged.probed:
        return True, 0.0, f"{backend} logged the inner values in the run itself."
    start = "The inner values come from probes, for which the delegate was lowered again"
    if logged.deviation is None:
        return None, math.nan, f"{start}; whether its outputs equal the program's is not known."
    if logged.deviation:
        return (
            False,
            logged.deviation,
            f"{start}; its outputs differ from the program's by up to {logged.deviation:.3g}.",
        )
    return True, 0.0, f"{start}; its outputs equal the program's bit for bit."


def _prepared(identifier: Identifier, value: Any, preprocessing: Preprocessing | None) -> Any:
    if preprocessing is None:
        return value
    try:
        result = preprocessing(identifier, value)
    except Exception as error:
        raise UsageError(f"preprocessing failed for {identifier!r}: {error}") from error
    if not isinstance(result, torch.Tensor):
        raise UsageError(f"preprocessing must return a tensor, found {type(result).__name__} for {identifier!r}")
    return result


def _misfit(node: Node, value: Any) -> str:
    meta = node.outputs[0] if len(node.outputs) == 1 else None
    if not isinstance(value, torch.Tensor):
        return "a value that can't be read"
    dtype, shape = str(value.dtype).removeprefix("torch."), tuple(value.shape)
    if meta is None:
        return "one tensor for an operator with several outputs"
    same = len(shape) == len(meta.shape) and all(
        not isinstance(size, int) or size == got for size, got in zip(meta.shape, shape, strict=True)
    )
    if dtype == meta.dtype and same:
        return ""
    return f"{dtype} {shape}, the operator returns {meta.dtype} {meta.shape}; preprocessing= can undo that,"
