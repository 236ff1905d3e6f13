"""The values that etviz shows for operators are those that upstream's taps bring out of the runtime another way.

A tap makes an operator's value an output of the program, without ETDump and debug buffer; the program is exported and
lowered again for it, so values agree up to the rounding of float32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools.intermediate_output_tap import (
    FULL_TENSOR,
    select_all_call_function,
    strip_taps_,
    tap_intermediate_outputs_,
)
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch import Tensor

from tests.programs import Executed


def tapped(program: Executed, folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Reference and runtime value of each operator of the exported program, by its name."""
    exported = torch.export.export(program.model, program.inputs, strict=program.recipe.strict)
    exported, specs = tap_intermediate_outputs_(exported, rules=(select_all_call_function(), FULL_TENSOR))
    with torch.no_grad():
        reference: Any = exported.module()(*program.inputs)
    partitioner: list[Any] = [XnnpackPartitioner()] if program.recipe.delegated else []
    edge = to_edge_transform_and_lower(exported, partitioner=partitioner)
    strip_taps_(edge)
    edge.to_executorch().save(str(folder / "tapped.pte"))
    method: Any = Runtime.get().load_program(folder / "tapped.pte").load_method("forward")
    runtime = method.execute(list(program.inputs))
    return {
        spec.node_name: (reference[spec.output_index], runtime[spec.output_index].clone())
        for spec in specs
        if isinstance(reference[spec.output_index], Tensor)
    }


@pytest.mark.parametrize(("name", "least"), [("plain_cnn", 6), ("encoder", 10)])
def test_values_are_those_of_the_taps(
    name: str, least: int, executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    program = executed(name)
    taps = tapped(program, tmp_path)
    gaps = program.inspection.gaps
    first = gaps[gaps["output"] == 0]
    agreed = 0
    for operator, (reference, runtime) in taps.items():
        rows = first[[ops.split(", ")[-1] == operator for ops in first["reference_ops"]]]
        if rows.empty or rows["shape"].iloc[-1] != tuple(runtime.shape):
            continue
        ours = program.inspection.tensors(rows.index[-1])
        torch.testing.assert_close(ours[0], reference, rtol=1e-4, atol=1e-5, msg=f"reference of {operator}")
        torch.testing.assert_close(ours[1], runtime, rtol=1e-4, atol=1e-5, msg=f"runtime value of {operator}")
        agreed += 1
    assert agreed >= least
