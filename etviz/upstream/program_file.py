# pyright: reportPrivateUsage=false
"""A `.pte` as upstream's data classes, for changes."""

from __future__ import annotations

import copy
import dataclasses
import os
from dataclasses import dataclass
from typing import Any, Final

from etviz.errors import ArtifactError
from etviz.upstream.executorch import quietly

_ALIGNMENT: Final = 64
_CONSTANT_ALIGNMENT: Final = 16
_LOW: Final = (1 << 32) - 1


@dataclass
class ProgramFile:
    file: Any

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ProgramFile:
        with quietly():
            from executorch.exir._serialize._program import deserialize_pte_binary

        try:
            with open(path, "rb") as file:  # noqa: PTH123 - a path may be text
                return cls(deserialize_pte_binary(file.read()))
        except Exception as error:
            problem = f"executorch can't read the program ({str(error).strip() or type(error).__name__})"
            raise ArtifactError(path, problem, "write it again with the executorch that is installed here") from error

    def plan(self, method: str) -> Any:
        return next(plan for plan in self.file.program.execution_plan if plan.name == method)

    def keep(self, plan: Any, slots: list[int], nbytes: int) -> None:
        """Give values that share memory `nbytes` bytes that nothing else uses."""
        place = plan.values[slots[0]].val.allocation_info
        memory = place.memory_id
        start = -(-plan.non_const_buffer_sizes[memory] // _ALIGNMENT) * _ALIGNMENT
        for slot in slots:
            allocation = plan.values[slot].val.allocation_info
            allocation.memory_offset_low, allocation.memory_offset_high = start & _LOW, start >> 32
        plan.non_const_buffer_sizes[memory] = start + nbytes

    def add_constant(self, plan: Any, data: bytes, count: int) -> int:
        from executorch.exir import schema
        from executorch.exir.scalar_type import ScalarType

        buffers = self.file.program.constant_buffer
        if not buffers:
            buffers.append(schema.Buffer(b""))  # the first one stands for none
        buffers.append(schema.Buffer(data))
        tensor = schema.Tensor(
            scalar_type=ScalarType.LONG,
            storage_offset=0,
            sizes=[count],
            dim_order=[0],
            requires_grad=False,
            layout=0,
            data_buffer_idx=len(buffers) - 1,
            allocation_info=None,
            shape_dynamism=schema.TensorShapeDynamism.STATIC,
        )
        plan.values.append(schema.EValue(tensor))
        return len(plan.values) - 1

    def replace_delegate(
        self, plan: Any, instruction: int, count: int, piece: ProgramFile, nbytes: list[int]
    ) -> list[int]:
        """Let a delegate call execute another program; return its further outputs' slots, in unused memory.

        `piece` has one delegate call with the call's inputs, and the call's outputs first, else `ValueError`.
        """
        from executorch.exir import schema

        part = piece.plan("forward")
        steps = [step.instr_args for chain in part.chains for step in chain.instructions]
        if len(steps) != 1 or not isinstance(steps[0], schema.DelegateCall):
            raise ValueError("its backend does not take it as one delegate any more")
        call = [step.instr_args for chain in plan.chains for step in chain.instructions][instruction]
        slots = dict(zip(part.inputs, call.args[: len(call.args) - count], strict=True))
        slots |= dict(zip(part.outputs[:count], call.args[len(call.args) - count :], strict=True))
        added = [
            self._add_planned(plan, part.values[slot], size)
            for slot, size in zip(part.outputs[count:], nbytes, strict=True)
        ]
        slots |= dict(zip(part.outputs[count:], added, strict=True))
        if not set(steps[0].args) <= set(slots):
            raise ValueError("its backend gives it other inputs")
        call.args = [slots[arg] for arg in steps[0].args]
        self._take_blob(plan, call, piece, part.delegates[steps[0].delegate_index])
        return added

    def _add_planned(self, plan: Any, value: Any, nbytes: int) -> int:
        from executorch.exir import schema

        plan.values.append(copy.deepcopy(value))
        plan.values[-1].val.allocation_info = schema.AllocationDetails(1, 0, 0)
        self.keep(plan, [len(plan.values) - 1], nbytes)
        return len(plan.values) - 1

    def _take_blob(self, plan: Any, call: Any, piece: ProgramFile, delegate: Any) -> None:
        blobs, calls = self.file.program.backend_delegate_data, _delegate_calls(plan)
        known, mine = plan.delegates[call.delegate_index], copy.deepcopy(delegate)
        shared = sum(other.delegate_index == call.delegate_index for other in calls) > 1
        data = piece.file.program.backend_delegate_data[delegate.processed.index]
        every = [item.processed.index for other in self.file.program.execution_plan for item in other.delegates]
        if shared or every.count(known.processed.index) > 1:
            blobs.append(data)
            mine.processed.index = len(blobs) - 1
        else:
            blobs[known.processed.index] = data
            mine.processed.index = known.processed.index
        if shared:
            plan.delegates.append(mine)
            call.delegate_index = len(plan.delegates) - 1
        else:
            plan.delegates[call.delegate_index] = mine
        named = piece.file.named_data
        if named is not None and named.pte_data:
            self.file.named_data = self.file.named_data or type(named)([], {}, {})
            for key, entry in named.pte_data.items():
                if key not in self.file.named_data.pte_data:
                    self.file.named_data.buffers.append(named.buffers[entry.buffer_index])
                    at = len(self.file.named_data.buffers) - 1
                    self.file.named_data.pte_data[key] = dataclasses.replace(entry, buffer_index=at)

    def content(self) -> bytes:
        from executorch.exir._serialize._program import serialize_pte_binary

        options: dict[str, Any] = {"extract_delegate_segments": True, "constant_tensor_alignment": _CONSTANT_ALIGNMENT}
        return bytes(serialize_pte_binary(self.file, **options))


def _delegate_calls(plan: Any) -> list[Any]:
    from executorch.exir import schema

    steps = (instruction.instr_args for chain in plan.chains for instruction in chain.instructions)
    return [step for step in steps if isinstance(step, schema.DelegateCall)]
