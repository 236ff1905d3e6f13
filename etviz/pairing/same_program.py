"""Tells whether an execution in an ETDump belongs to a method, from its events.

Profiling events name an instruction's kernel (``native_call_add.out``) or its kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from etviz.artifacts.etdump.etdump import Layout, RunBlock
from etviz.artifacts.program.logged import logged_by
from etviz.artifacts.program.program import Instruction, Method, dense_strides
from etviz.artifacts.record.etrecord import ETRecord
from etviz.graph.ir import Graph, Node, Ref
from etviz.graph.state_threading import written_by

DELEGATE: Final = ""
_KERNEL: Final = "native_call_"
_CALLS: Final = ("OPERATOR_CALL", "DELEGATE_CALL")
_OUTPUTS: Final = -1


class ValueForm(NamedTuple):
    """A logged tensor as the program states it.

    A dtype is empty, and a size None, if it is free; `bounds` marks upper bounds. `order` has dimensions from outermost
    to innermost in memory.
    """

    dtype: str
    sizes: tuple[int | None, ...]
    bounds: bool = False
    order: tuple[int, ...] | None = None

    def difference(self, layout: Layout | None) -> str:
        if layout is None:
            return "no tensor in the one and one in the other"
        if self.dtype and layout.dtype != self.dtype:
            return f"{layout.dtype} in the one and {self.dtype} in the other"
        pairs = zip(layout.sizes, self.sizes, strict=False)
        fits = (mine is None or size == mine or (self.bounds and 0 <= size < mine) for size, mine in pairs)
        if len(layout.sizes) != len(self.sizes) or not all(fits):
            text = str(tuple("?" if size is None else size for size in self.sizes)).replace("'", "")
            return f"sizes {layout.sizes} in the one and {'at most ' if self.bounds else ''}{text} in the other"
        if self.order is not None and layout.strides != (expected := dense_strides(layout.sizes, self.order)):
            return f"strides {layout.strides} in the one and {expected} in the other"
        return ""


@dataclass(frozen=True, slots=True)
class Calls:
    """By instruction: the kernel (``add.out``), `DELEGATE`, or None if unknown.

    `complete`: no other instruction makes a call. `straight`: each execution makes all of these, and calls no other
    delegate. `values` describes logged values and outputs, None for non-tensors.
    """

    kernels: dict[int, str | None] = field(default_factory=dict)
    complete: bool = False
    straight: bool = False
    values: dict[int, tuple[ValueForm | None, ...]] = field(default_factory=dict)


def calls_of_program(method: Method) -> Calls:
    calls = [i for i in method.instructions if i.kind in ("kernel", "delegate")]
    kernels: dict[int, str | None] = {
        i.index: DELEGATE if i.kind == "delegate" else _short(str(i.operator)) for i in calls
    }
    values = {i.index: tuple(_forms(method, i)) for i in calls}
    outputs = tuple(form for form in _forms(method) if form)
    straight = all(i.kind != "jump" for i in method.instructions)
    return Calls(kernels, complete=True, straight=straight, values=values | {_OUTPUTS: outputs})


def _forms(method: Method, call: Instruction | None = None) -> Iterator[ValueForm | None]:
    values = method.outputs if call is None else logged_by(method, call)
    for tensor in (tensor for value in values for tensor in method.tensors(value) or (value,)):
        spec = method.values[tensor].tensor
        if spec is None:
            yield None
            continue
        order = spec.dim_order if sorted(spec.dim_order) == list(range(len(spec.sizes))) else None
        sizes = spec.sizes if spec.dynamism != "dynamic_unbound" else (None,) * len(spec.sizes)
        yield ValueForm(spec.dtype, sizes, spec.dynamism != "static", order)


def calls_of_graph(graph: Graph) -> Calls:
    nodes = [node for node in graph.walk() if node.instruction >= 0]
    kernels = {n.instruction: DELEGATE if n.target == "delegate" else _short(n.kernel) or None for n in nodes}
    values = {n.instruction: (None,) * (len(n.args) if n.target == "delegate" else 0) + _own(n) for n in nodes}
    straight = all(node.target == "delegate" for node in graph.nodes if node.subgraphs)
    return Calls(kernels, straight=straight, values=values)


def _own(node: Node) -> tuple[ValueForm | None, ...]:
    """A call's logged results. A call that only writes logs an empty tensor."""
    forms = tuple(_form(meta.dtype, meta.shape) if meta is not None else None for meta in node.outputs)
    written = len(written_by(node)[1])
    return forms if not written else forms[: len(forms) - written] or (None,)


def _form(dtype: str, shape: Sequence[int | str]) -> ValueForm:
    return ValueForm(dtype, tuple(size if isinstance(size, int) else None for size in shape))


def calls_of_etrecord(etrecord: ETRecord, method: str) -> Calls:
    """Upstream wrote both maps for the emitted program. A later pass may change values, but no sizes of outputs."""
    graph = etrecord.edge_graph(method)
    kernels: dict[int, str | None] = dict.fromkeys(etrecord.debug_handles(method))
    kernels |= dict.fromkeys(etrecord.backends(method), DELEGATE)
    metas = {item.name: item.meta for item in graph.inputs} | {n.name: n.outputs[0] for n in graph.nodes if n.outputs}
    results = [metas.get(out.name) for out in graph.outputs if isinstance(out, Ref)]
    outputs = tuple(_form("", meta.shape) if meta is not None else None for meta in results)
    straight = not graph.subgraphs and etrecord.has_member("delegate_map")
    return Calls(kernels, straight=straight, values={_OUTPUTS: outputs})


def outline(block: RunBlock) -> tuple[list[Any], ...]:
    events = block.profile
    values = [
        (e.is_output, e.chain, e.instruction_id, e.delegate_debug_id, [ref.layout for ref in e.tensors])
        for e in block.debug
    ]
    return events.name.tolist(), events.instruction_id.tolist(), events.chain.tolist(), values


def misfit(block: RunBlock, calls: Calls) -> str:
    """The first event that contradicts the calls, or empty."""
    for name, chain, instruction in block.profile.rows():
        if not name or chain < 0 or not (name.startswith(_KERNEL) or name == "DELEGATE_CALL"):
            continue
        call = name.removeprefix(_KERNEL).rpartition("::")[2] if name.startswith(_KERNEL) else DELEGATE
        if instruction not in calls.kernels:
            if calls.complete or (calls.straight and call == DELEGATE):
                return f"instruction {instruction} calls {_text(call)} in the one and nothing in the other"
            continue
        expected = calls.kernels[instruction]
        if call != expected and not (expected is None and call):
            return f"instruction {instruction} calls {_text(call)} in the one and {_text(expected)} in the other"
    return ""


def skipped(block: RunBlock, calls: Calls) -> str:
    """The first call that the execution left out, though it made a later one, or empty."""
    calls_made = ((name or "", at) for name, chain, at in block.profile.rows() if chain >= 0)
    called = {at for name, at in calls_made if name in _CALLS or name.startswith(_KERNEL)}
    ended = any(event.is_output for event in block.debug)
    left = [at for at in calls.kernels.keys() - called if ended or at < max(called, default=-1)]
    if not calls.straight or not called or not left:
        return ""
    return f"instruction {min(left)} calls nothing in the one and {_text(calls.kernels[min(left)])} in the other"


def contradiction(block: RunBlock, calls: Calls) -> str:
    logged: dict[int, list[Layout | None]] = {}
    for event in block.debug:
        if event.is_output or (event.chain >= 0 and event.delegate_debug_id is None):
            place = _OUTPUTS if event.is_output else event.instruction_id
            logged.setdefault(place, []).extend([ref.layout for ref in event.tensors] or [None])
    for place, layouts in logged.items():
        forms = calls.values.get(place, ())
        if place == _OUTPUTS and not calls.complete and len(layouts) != len(forms):
            continue  # a later pass may add outputs
        whole = bool(forms) and len(layouts) % len(forms) == 0  # else the dump is damaged, and some are missing
        for at, layout in enumerate(layouts if forms else ()):
            candidates = (forms[at % len(forms)],) if whole else forms
            differences = [form.difference(layout) if form else "" for form in candidates]
            if all(differences):
                who = "an output" if place == _OUTPUTS else f"instruction {place}"
                return f"{who} gives {differences[0]}"
    return ""


def _text(call: str | None) -> str:
    return "a delegate" if call == DELEGATE else call or "a kernel"


def _short(operator: str) -> str:
    return operator.partition("::")[2]
