"""The values that etviz shows for operators are those that upstream's taps bring out of the runtime another way.

A tap makes an operator's value an output of the program, without ETDump and debug buffer; the program is exported and
lowered again for it, so values agree up to the rounding of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools.intermediate_output_tap import (
    FULL_TENSOR,
    strip_taps_,
    tap_intermediate_outputs_,
)
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch import Tensor

from tests.programs import Executed


def tapped(program: Executed, folder: Path) -> Iterator[tuple[int, str, Tensor, Tensor]]:
    """Row, name, reference and runtime value of each operator of the exported program that has a row of its own."""
    gaps = program.inspection.gaps
    exported = torch.export.export(program.model, program.inputs, strict=program.recipe.strict)
    nodes = [node for node in exported.graph.nodes if isinstance(node.meta.get("val"), Tensor)]
    rows = {node.name: row_of(node.name, tuple(node.meta["val"].shape), gaps) for node in nodes}
    exported, specs = tap_intermediate_outputs_(
        exported, rules=(lambda node: rows.get(node.name) is not None, FULL_TENSOR)
    )
    with torch.no_grad():
        reference: Any = exported.module()(*program.inputs)
    partitioner: list[Any] = [XnnpackPartitioner()] if program.recipe.delegated else []
    edge = to_edge_transform_and_lower(exported, partitioner=partitioner)
    strip_taps_(edge)
    edge.to_executorch().save(str(folder / "tapped.pte"))
    method: Any = Runtime.get().load_program(folder / "tapped.pte").load_method("forward")
    runtime = method.execute(list(program.inputs))
    for spec in specs:
        row = rows[spec.node_name]
        assert row is not None
        yield row, spec.node_name, reference[spec.output_index], runtime[spec.output_index].clone()


def row_of(operator: str, shape: tuple[int, ...], gaps: pd.DataFrame) -> int | None:
    """The row with an operator's own value, if it left its delegate: the last that the operator led to, of its shape.

    An operator may have become several, as a matrix product did that first expands what it multiplies.
    """
    names = gaps["reference_ops"].str.split(", ")
    holding = gaps[[operator in found for found in names]]
    last = holding[holding["instruction"] == holding["instruction"].max()]
    fitting = [row for row in last.index if names[row][-1] == operator and gaps["shape"][row] == shape]
    return fitting[0] if len(fitting) == 1 else None


@pytest.mark.parametrize(("name", "least"), [("plain_cnn", 6), ("encoder", 15)])
def test_values_are_those_of_the_taps(
    name: str, least: int, executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    program = executed(name)
    agreed = 0
    for row, operator, reference, runtime in tapped(program, tmp_path):
        ours = program.inspection.tensors(row)
        torch.testing.assert_close(ours[0], reference, rtol=1e-4, atol=1e-5, msg=f"reference of {operator}")
        torch.testing.assert_close(ours[1], runtime, rtol=1e-4, atol=1e-5, msg=f"runtime value of {operator}")
        agreed += 1
    assert agreed >= least
