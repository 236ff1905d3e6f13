"""Whether an execution in an ETDump is one of a given method, as far as its profiling events tell.

They name the kernel of an instruction (``native_call_add.out``), or say that it calls a kernel or a delegate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from etviz.artifacts.etdump.etdump import RunBlock
    from etviz.artifacts.program.program import Method
    from etviz.artifacts.record.etrecord import ETRecord
    from etviz.graph.ir import Graph

DELEGATE: Final = ""
_KERNEL: Final = "native_call_"


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of a method: by instruction the kernel (``add.out``), `DELEGATE`, or None for a kernel of unknown name.

    `complete` tells that no other instruction makes a call.
    """

    kernels: dict[int, str | None] = field(default_factory=dict)
    complete: bool = False


def calls_of_program(method: Method) -> Calls:
    """The calls that a `.pte` has."""
    calls = (i for i in method.instructions if i.kind in ("kernel", "delegate"))
    return Calls({i.index: DELEGATE if i.kind == "delegate" else _short(str(i.operator)) for i in calls}, complete=True)


def calls_of_graph(graph: Graph) -> Calls:
    """The calls that a recorded graph has."""
    nodes = (node for node in graph.walk() if node.instruction >= 0)
    return Calls({n.instruction: DELEGATE if n.target == "delegate" else _short(n.kernel) or None for n in nodes})


def calls_of_etrecord(etrecord: ETRecord, method: str) -> Calls:
    """The calls that an ETRecord tells of: delegates, and kernels without their names."""
    kernels: dict[int, str | None] = dict.fromkeys(etrecord.debug_handles(method))
    return Calls(kernels | dict.fromkeys(etrecord.backends(method), DELEGATE))


def misfit(block: RunBlock, calls: Calls) -> str:
    """The first event that contradicts a method's calls, in words; empty if none does."""
    events = block.profile
    columns = (events.name.tolist(), events.instruction_id.tolist(), events.chain.tolist())
    for name, instruction, chain in zip(*columns, strict=True):
        if not name or chain < 0 or not (name.startswith(_KERNEL) or name == "DELEGATE_CALL"):
            continue
        call = name.removeprefix(_KERNEL) if name.startswith(_KERNEL) else DELEGATE
        if instruction not in calls.kernels:
            if calls.complete:
                return f"instruction {instruction} calls {_text(call)} in the one and nothing in the other"
            continue
        expected = calls.kernels[instruction]
        if call != expected and not (expected is None and call):
            return f"instruction {instruction} calls {_text(call)} in the one and {_text(expected)} in the other"
    return ""


def _text(call: str | None) -> str:
    return "a delegate" if call == DELEGATE else call or "a kernel"


def _short(operator: str) -> str:
    return operator.partition("::")[2]
