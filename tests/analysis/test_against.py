"""Another reference than the lowered program: a form of the program, or functions of the user's."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn
from torch.utils import _pytree as pytree

import etviz
from etviz.errors import ArtifactError, UsageError
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from tests.kinds.making import Made
from tests.programs import Executed

Get = Callable[[str], Executed]


class Watching(torch.fx.Interpreter):
    """Keeps the value of every operator by name."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.values[n.name] = value.detach().clone()
        return value


def rmse(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).square().mean().sqrt())


@pytest.mark.parametrize("name", ["exported_program", "edge_dialect_exported_program/forward"])
def test_a_form_of_the_program(name: str, executed: Get) -> None:
    made = executed("residual_cnn")
    whole, other = made.inspection, made.inspection.against(name)
    exported = torch.export.export(made.model, made.inputs, strict=False)
    watching = Watching(exported.module())
    watching.run(*made.inputs)
    gaps = other.gaps
    kernels = gaps[(gaps.kind == "kernel") & gaps.reference_ops.isin(watching.values) & gaps.rmse.notna()]
    assert len(kernels) >= 2
    for row, about in kernels.iterrows():
        reference, runtime = other.tensors(row)
        expected = watching.values[about.reference_ops]
        torch.testing.assert_close(reference, expected, rtol=1e-5, atol=1e-6)
        assert about.rmse == pytest.approx(rmse(expected, runtime), rel=0.5, abs=1e-9)
    np.testing.assert_array_equal(gaps.introduced_rmse, whole.gaps.introduced_rmse)
    nameless = gaps[gaps.rmse.isna()]
    assert nameless.reason.str.contains("no partner in").all()
    assert other.outputs.rmse.tolist() == pytest.approx(whole.outputs.rmse.tolist(), rel=0.5, abs=1e-8)
    assert "against" in other.analysis.title


def test_the_float_model_of_a_quantized_program(executed: Get) -> None:
    whole = executed("digits_int8").inspection
    split = whole.quantization()
    other = whole.against("float")
    known = split[(split.row >= 0) & split.total_rmse.notna()].set_index("row").total_rmse
    rows = [row for row in known.index if row in other.gaps.index and not math.isnan(other.gaps.rmse[row])]
    assert rows
    np.testing.assert_allclose(other.gaps.rmse[rows], known[rows], rtol=1e-6)
    assert other.outputs.rmse[0] > 3 * whole.outputs.rmse[0]


def test_functions_by_operator(executed: Get) -> None:
    whole = executed("plain_cnn").inspection
    other = whole.against({"aten.relu": lambda x: torch.clamp(x, min=0) + 1})
    relus = other.gaps.op.str.contains("relu")
    assert relus.any()
    np.testing.assert_allclose(other.gaps.introduced_rmse[relus], 1, rtol=1e-5)
    first = other.gaps[relus].index[0]
    assert other.gaps.rmse[first] == pytest.approx(1, rel=1e-5)
    before = other.gaps.index < first
    np.testing.assert_array_equal(other.gaps.rmse[before], whole.gaps.rmse[before])
    assert (other.gaps.rmse[other.gaps.index > first] > 1e-3).any()


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: 1 / 0, "division by zero"),
        (lambda x: x[:1], r"must return a tensor of shape"),
        (lambda x, y: x, "missing 1 required positional argument"),
        (lambda x: "nothing", "found str"),
    ],
)
def test_a_function_that_fails_has_no_partner(function: Callable[..., Any], problem: str, executed: Get) -> None:
    whole = executed("plain_cnn").inspection
    other = whole.against({"aten.relu.default": function})
    relus = other.gaps.op.str.contains("relu")
    assert other.gaps.reason[relus].str.contains("no partner: reference= fails on aten.relu.default").all()
    assert other.gaps.reason[relus].str.contains(problem).all()
    assert other.gaps.rmse[relus].isna().all()
    np.testing.assert_array_equal(other.gaps.rmse[~relus], whole.gaps.rmse[~relus])
    assert problem.replace("\\", "")[:10] in other.summary()


def test_what_is_no_reference(executed: Get) -> None:
    whole = executed("plain_cnn").inspection
    with pytest.raises(UsageError, match=r"no stage 'middle' of forward; they hold exported, edge, lowered"):
        whole.against("middle")
    with pytest.raises(UsageError, match=r"no operator of the program is called 'aten\.gelu'"):
        whole.against({"aten.gelu": torch.nn.functional.gelu})
    with pytest.raises(UsageError, match="must be a function, found int"):
        whole.against({"aten.relu": 3})
    with pytest.raises(
        UsageError, match=r"no execution 3; there are 1, .* name of a stage, a model, its outputs, or functions"
    ):
        whole.against(3)
    files = {kind: executed("plain_cnn").path(kind) for kind in ("etdump", "debug_buffer", "pte")}
    with pytest.raises(UsageError, match="nothing was compared"):
        etviz.load(files["etdump"], pte=files["pte"], reference="exported")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Cache(nn.Module):
    """Overwrites buffers in each way that an export keeps: as a whole, through views, through a view of a view."""

    total: torch.Tensor
    rows: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(1, 4))
        self.register_buffer("rows", torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.total.mul_(0.5).add_(self.linear(x))
        self.rows[1] = x[0] * 2
        self.rows[:2][0].copy_(self.total[0])
        flat = self.rows.view(-1)
        self.rows[2].copy_(flat[4:8] + 1)
        return torch.relu_(self.total * 2), self.rows.sum(0)


def executed_often(model: nn.Module, inputs: list[tuple[torch.Tensor, ...]], folder: Path) -> etviz.Inspection:
    lowered = lower(model.eval(), inputs[0], folder, partitioner=[XnnpackPartitioner()])
    run = execute(lowered.pte, [list(given) for given in inputs], workdir=folder)
    assert run.etdump is not None
    given: Any = {"etrecord": lowered.etrecord, "pte": lowered.pte, "record": lowered.record}
    return etviz.load(run.etdump, debug_buffer=run.debug_buffer, inputs=inputs, **given)


@pytest.mark.parametrize("model", [Cache, Attention])
def test_a_correct_program_is_correct_in_every_form(model: type[nn.Module], tmp_path: Path) -> None:
    """Also with buffers that are carried from one execution to the next, and operators that only an export has."""
    torch.manual_seed(0)
    inputs = [(torch.randn(1, 4) if model is Cache else torch.randn(1, 5, 8),) for _ in range(3)]
    torch.manual_seed(1)
    made = model().eval()
    eager = copy.deepcopy(made)
    with torch.no_grad():
        expected = [value.clone() for given in inputs for value in pytree.tree_leaves(eager(*given))]
    whole = executed_often(made, inputs, tmp_path)
    for name in ("exported_program", "edge"):
        other = whole.against(name)
        assert (other.outputs.severity < 2).all(), other.summary()
        references = [
            value for run in other.analysis.tables.compared.runs for value in run.comparison.reference_outputs
        ]
        for reference, value in zip(references, expected, strict=True):
            torch.testing.assert_close(reference, value, rtol=1e-5, atol=1e-6)
    for run in range(len(inputs)):
        ladder = whole.ladder(run=run)
        assert set(ladder.status) <= {"same", "rounding", "no partner"}
        outputs = ladder[(ladder.operator == "") & (ladder.stage == "edge")]
        assert len(outputs) == len(expected) // len(inputs)
        assert outputs.status.isin(["same", "rounding"]).all()


def test_values_that_are_nan_everywhere_are_the_same(made: Callable[[str], Made]) -> None:
    ladder = made("nan_twice").load("exact").ladder()
    assert len(ladder)
    assert "differs" not in set(ladder.status)


def test_a_stage_that_cannot_be_evaluated_is_named(executed: Get) -> None:
    whole = executed("plain_cnn").load()
    replay = whole.analysis.tables.compared.replay
    assert replay is not None

    def broken() -> Any:
        raise ArtifactError("etrecord.bin", "the member is damaged", "write it again")

    replay.stages = {**replay.stages, "exported": broken}
    ladder = whole.ladder()
    named = ladder[ladder.stage == "exported"]
    assert len(named) == len(ladder[ladder.stage == "runtime"])
    assert named.reason.str.contains("the stage exported can't be evaluated.*the member is damaged").all()
    assert (ladder[ladder.stage == "lowered"].against == "edge").all()


def test_zooming_shows_inner_values_in_the_ladder(executed: Get) -> None:
    whole = executed("residual_cnn").load()
    before = whole.ladder()
    whole.zoom(0)
    after = whole.ladder()
    known = [set(frame[(frame.stage == "runtime") & frame.rmse.notna()].operator) for frame in (before, after)]
    inside = whole.zoom(0)
    assert known[0] < known[1]
    assert known[1] - known[0] <= set(inside.gaps.reference_ops)
