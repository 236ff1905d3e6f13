"""Outputs of every type against those that are expected, exactly; from Python and from the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.devtools.inspector import compare_results as upstream_results
from typer.testing import CliRunner

import etviz
from etviz.cli.app import app
from etviz.errors import UsageError
from tests.programs import Executed

Get = Callable[[str], Executed]


def test_tensors_have_every_metric_with_all_digits() -> None:
    reference, run = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, -2.0, 3.003])
    row = etviz.compare_results([reference], [run]).table.iloc[0]
    assert row["mse"] == pytest.approx(float((run.double() - reference.double()).square().mean()), rel=1e-12)
    assert upstream_results([reference], [run], ["mse"])["mse"] == [0.0], "upstream rounds it away"
    assert not row["equal"]


def test_everything_that_is_no_tensor() -> None:
    reference = {"a": [1, True, None, 0.5], "b": (math.nan, "x", torch.tensor([1, 2]))}
    same = etviz.compare_results(reference, reference)
    assert same.equal
    assert same.table["kind"].tolist() == ["int", "bool", "None", "float", "float", "str", "tensor"]
    other = {"a": [2, False, None, 0.25], "b": (0.0, "y", torch.tensor([1, 3]))}
    table = etviz.compare_results(reference, other).table
    assert table["equal"].tolist() == [False, False, True, False, False, False, False]
    assert table["max_abs"].tolist()[0] == 1
    assert table["max_abs"].tolist()[3] == 0.25
    assert table["status"].tolist()[4] == "non-finite mismatch"
    assert table["max_abs"].tolist()[6] == 1


def test_what_has_no_partner_says_so() -> None:
    table = etviz.compare_results([1, torch.zeros(2), None], [1, torch.zeros(3)]).table
    assert table["equal"].tolist() == [True, False, False]
    assert "shape" in table["reason"][1]
    assert table["reason"][2] == "the run has 2 outputs"
    assert "gave NoneType" not in etviz.compare_results([1], [None]).table["reason"][0]
    assert etviz.compare_results([1], [None]).table["reason"][0]
    assert not etviz.compare_results([torch.zeros(2)], [torch.zeros(2, dtype=torch.float64)]).equal
    assert not etviz.compare_results([1], [True]).equal


def test_plot_has_a_bar_for_each_output() -> None:
    results = etviz.compare_results([torch.zeros(2), torch.zeros(2), None], [torch.ones(2), 3 * torch.ones(2), None])
    heights = [patch.get_height() for patch in results.plot("rmse").patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(heights[:2], [1.0, 3.0])
    with pytest.raises(UsageError):
        results.plot("kind")


def test_from_the_command_line(executed: Get, tmp_path: Path) -> None:
    program = executed("many_outputs")
    result = CliRunner().invoke(app, ["outputs", str(program.folder), "--json", "--plot", str(tmp_path / "o.png")])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    outputs = program.inspection.outputs
    assert len(rows) == len(outputs)
    assert [row["rmse"] for row in rows] == pytest.approx(outputs["rmse"].tolist())
    assert (tmp_path / "o.png").read_bytes()[:4] == b"\x89PNG"
    poisoned = CliRunner().invoke(app, ["outputs", str(executed("poisoned").folder)])
    assert poisoned.exit_code == 1
    assert "non-finite mismatch" in poisoned.output
