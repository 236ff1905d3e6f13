# pyright: reportPrivateUsage=false
"""A `.pte` whose delegate calls become inputs, and an ETDump with these calls.

The calls' outputs get separate memory. Each call becomes a jump to the next instruction, so instructions keep their
numbers.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from etviz.errors import UsageError

EMULATED: Final = "emulated"
_ALIGNMENT: Final = 64
_LOW: Final = 32
_NO_TIME: Final = 1 << 40
"""Start of an event that ends at 0: its duration is unknown, since no device made the call."""
_WIDEST: Final = 16
"""Bytes of the largest element: complex128."""


@dataclass(frozen=True, slots=True)
class DelegateCall:
    instruction: int
    backend_id: str
    values: tuple[int, ...]


class DelegateFree:
    """A program without its delegates, except of backends for which `stays` is true.

    `UsageError` for delegate calls in branches or loops.
    """

    def __init__(self, content: bytes, method: str, stays: Callable[[str], bool]) -> None:
        from executorch.exir._serialize._program import deserialize_pte_binary

        self._file: Any = deserialize_pte_binary(content)
        self._file.program.execution_plan = [p for p in self._file.program.execution_plan if p.name == method]
        plan = self._plan(self._file)
        (chain,) = plan.chains
        self.calls: list[DelegateCall] = []
        jumps = False
        for at, instruction in enumerate(chain.instructions):
            args = instruction.instr_args
            jumps |= type(args).__name__ == "JumpFalseCall"
            if type(args).__name__ == "DelegateCall":
                backend = plan.delegates[args.delegate_index].id
                if not stays(backend):
                    self.calls.append(DelegateCall(at, backend, tuple(args.args)))
        if self.calls and jumps:
            raise UsageError(
                "runner='emulated' takes no program with delegates beside branches or loops; run it on the device"
            )

    @staticmethod
    def _plan(file: Any) -> Any:
        return file.program.execution_plan[0]

    def program(self, outputs: Mapping[int, int], stop: DelegateCall | None = None, count: int = 0) -> bytes:
        """The `.pte` without delegates; it ends before `stop` and returns the `count` values that this call reads.

        `outputs` has the number of each call's outputs, which are inputs after the method's, in program order.
        """
        from executorch.exir._serialize._program import serialize_pte_binary
        from executorch.exir.schema import Bool, EValue, Instruction, JumpFalseCall

        file = copy.copy(self._file)
        file.program = copy.deepcopy(self._file.program)
        plan = self._plan(file)
        instructions = plan.chains[0].instructions
        condition = len(plan.values)
        plan.values.append(EValue(Bool(False)))
        for call in self.calls:
            jump = JumpFalseCall(cond_value_index=condition, destination_instruction=call.instruction + 1)
            instructions[call.instruction] = Instruction(jump)
            for value in call.values[len(call.values) - outputs[call.instruction] :]:
                _give_memory(plan, value)
                plan.inputs.append(value)
        if stop is not None:
            # the runtime wants an instruction; the last jump leads behind the end
            del instructions[stop.instruction + 1 :]
            plan.outputs = list(stop.values[:count])
        _drop_delegates(plan, instructions)
        return bytes(serialize_pte_binary(file))


def _drop_delegates(plan: Any, instructions: Sequence[Any]) -> None:
    calls = [item.instr_args for item in instructions if type(item.instr_args).__name__ == "DelegateCall"]
    used = sorted({call.delegate_index for call in calls})
    plan.delegates = [plan.delegates[at] for at in used]
    for call in calls:
        call.delegate_index = used.index(call.delegate_index)


def _give_memory(plan: Any, value: int) -> None:
    from executorch.exir.schema import AllocationDetails

    tensor = plan.values[value].val
    if type(tensor).__name__ != "Tensor":
        raise UsageError(f"a delegate returns a {type(tensor).__name__}; runner='emulated' takes tensors only")
    memory = tensor.allocation_info.memory_id if tensor.allocation_info is not None else 1
    size = _WIDEST * math.prod(max(int(extent), 1) for extent in tensor.sizes)
    while len(plan.non_const_buffer_sizes) <= memory:
        plan.non_const_buffer_sizes.append(0)
    start = -(-plan.non_const_buffer_sizes[memory] // _ALIGNMENT) * _ALIGNMENT
    tensor.allocation_info = AllocationDetails(memory, start & ((1 << _LOW) - 1), start >> _LOW)
    plan.non_const_buffer_sizes[memory] = start + size


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A delegate call that `implementation` made instead of the device.

    `values` are inputs and outputs: ExecuTorch's scalar type, sizes, strides, and offset in the debug buffer.
    """

    instruction: int
    values: Sequence[tuple[int, Sequence[int], Sequence[int], int]]
    implementation: str


def with_calls(
    etdump: bytes, executions: Sequence[Iterable[MadeCall]], move: Callable[[int, int, Sequence[int]], int]
) -> bytes:
    """An ETDump with delegate calls added to its executions, in program order.

    `move` gets each tensor's offset, scalar type and sizes in logging order, and returns its new offset. `UsageError`
    if upstream can't read the dump: its writer breaks at float16 and bfloat16.
    """
    from executorch.devtools.etdump.serialize import _convert_from_flatcc, _convert_to_flatcc
    from executorch.exir.scalar_type import ScalarType

    try:
        dump = json.loads(_convert_from_flatcc(etdump))
    except Exception as error:
        raise UsageError(
            "the runtime's ETDump can't be read, as where portable instructions have float16 or bfloat16 values; "
            "use float32 for runner='emulated'"
        ) from error
    blocks = [run for run in dump["run_data"] if run.get("name") == "Execute"]
    if len(blocks) != len(executions):
        raise UsageError(f"the runtime logged {len(blocks)} executions of {len(executions)}")
    for block, calls in zip(blocks, executions, strict=True):
        events = block.setdefault("events", [])
        for call in calls:
            at = next((at for at, event in enumerate(events) if _instruction(event) > call.instruction), None)
            last = max((at + 1 for at, event in enumerate(events) if _instruction(event) >= 0), default=0)
            place = last if at is None else at
            events[place:place] = _events(call)
    for run in dump["run_data"]:
        for event in run.get("events") or ():
            entry = event.get("debug_event", {}).get("debug_entry", {})
            for tensor in (*filter(None, [entry.get("tensor")]), *entry.get("tensor_list", {}).get("tensors", ())):
                if tensor["offset"] >= 0:
                    tensor["offset"] = move(tensor["offset"], ScalarType[tensor["scalar_type"]].value, tensor["sizes"])
    plain = _convert_to_flatcc(json.dumps(dump))
    return len(plain).to_bytes(4, "little") + plain  # the runtime writes the size first


def _instruction(event: Mapping[str, Any]) -> int:
    details = event.get("profile_event") or event.get("debug_event") or {}
    return details.get("instruction_id", 0) if details.get("chain_index", 0) == 0 and _is_call(details) else -1


def _is_call(details: Mapping[str, Any]) -> bool:
    return "debug_entry" in details or details.get("name") in ("OPERATOR_CALL", "DELEGATE_CALL")


def _events(call: MadeCall) -> list[dict[str, Any]]:
    from executorch.exir.scalar_type import ScalarType

    place = {"chain_index": 0, "instruction_id": call.instruction, "delegate_debug_id_int": -1}
    events: list[dict[str, Any]] = []
    for code, sizes, strides, offset in call.values:
        tensor = {"scalar_type": ScalarType(code).name, "sizes": [*sizes], "strides": [*strides], "offset": offset}
        events.append({"debug_event": {**place, "debug_entry": {"val": "Tensor", "tensor": tensor}}})
    metadata = list(json.dumps({EMULATED: call.implementation}).encode())
    timed = {"start_time": _NO_TIME, "end_time": 0, "delegate_debug_metadata": metadata}
    return [*events, {"profile_event": {"name": "DELEGATE_CALL", **place, **timed}}]
