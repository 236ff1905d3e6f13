# pyright: reportPrivateUsage=false
"""A `.pte` as upstream's own data classes, to be changed and written again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import ArtifactError

if TYPE_CHECKING:
    import os

_ALIGNMENT: Final = 64
_CONSTANT_ALIGNMENT: Final = 16
_LOW: Final = (1 << 32) - 1


@dataclass
class ProgramFile:
    """A program file."""

    file: Any

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ProgramFile:
        """Read a file that was checked before.

        Raises
        ------
        ArtifactError
            If upstream can't read it.
        """
        from executorch.exir._serialize._program import deserialize_pte_binary

        try:
            with open(path, "rb") as file:  # noqa: PTH123
                return cls(deserialize_pte_binary(file.read()))
        except Exception as error:
            problem = f"executorch can't read the program ({str(error).strip() or type(error).__name__})"
            raise ArtifactError(path, problem, "write it again with the executorch that is installed here") from error

    def plan(self, method: str) -> Any:
        """The execution plan of a method."""
        return next(plan for plan in self.file.program.execution_plan if plan.name == method)

    def keep(self, plan: Any, slots: list[int], nbytes: int) -> None:
        """Give values that share their memory a place of so many bytes that nothing else uses."""
        place = plan.values[slots[0]].val.allocation_info
        memory = place.memory_id
        start = -(-plan.non_const_buffer_sizes[memory] // _ALIGNMENT) * _ALIGNMENT
        for slot in slots:
            allocation = plan.values[slot].val.allocation_info
            allocation.memory_offset_low, allocation.memory_offset_high = start & _LOW, start >> 32
        plan.non_const_buffer_sizes[memory] = start + nbytes

    def add_constant(self, plan: Any, data: bytes, count: int) -> int:
        """Add a constant tensor of int64, and return its slot."""
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

    def content(self) -> bytes:
        """The file's bytes."""
        from executorch.exir._serialize._program import serialize_pte_binary

        options: dict[str, Any] = {"extract_delegate_segments": True, "constant_tensor_alignment": _CONSTANT_ALIGNMENT}
        return bytes(serialize_pte_binary(self.file, **options))
