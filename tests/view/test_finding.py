"""The first sentence: which operator is at fault and what is wrong with it, or that nothing is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import etviz
from etviz.view.payload.program_payload import build_payload
from tests.programs import Executed, Recipe
from tests.shifted import load_shifted


def column(name: str, payload: dict[str, Any], buffers: list[bytes]) -> list[str]:
    """A text column of the payload."""
    found = next(item for item in payload["columns"] if item["name"] == name)
    codes = np.frombuffer(buffers[found["values"]["buffer"]], np.int32)
    return [found["dictionary"][code] if code >= 0 else "" for code in codes]


@pytest.fixture
def faulty(executed: Callable[[str], Executed], tmp_path: Path) -> etviz.Inspection:
    """A layer norm whose output was changed."""
    program = executed("residual_cnn")
    gaps = program.inspection.gaps
    norm = gaps.loc[gaps["op"].str.contains("layer_norm") & (gaps["output"] == 0)].iloc[0]
    return load_shifted(program, tmp_path, int(norm["instruction"]), 100.0, at=-3)


def test_the_culprit_is_named_with_its_module_operator_and_line(faulty: etviz.Inspection) -> None:
    payload, buffers = build_payload(faulty.analysis)
    finding = payload["summary"]["finding"]
    row = faulty.first_divergence
    assert row is not None
    assert finding["row"] == row.name
    assert finding["level"] == "bad"
    assert finding["text"].startswith(f"#{row['instruction']} norm · layer_norm")
    assert row["source"] in finding["text"]
    assert column("op", payload, buffers)[finding["row"]].startswith("norm · layer_norm")
    assert faulty.analysis.digest.facts[-2].value.startswith(f"#{row['instruction']} norm · layer_norm")


def test_where_no_operator_adds_any_error_none_adds_most() -> None:
    inspection = etviz.debug(nn.ReLU(), (torch.randn(4, 8),))
    finding = inspection.analysis.finder.finding()
    assert finding is not None
    assert (finding.row, finding.level, finding.text) == (0, "ok", "No operator adds any error.")


class Halved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.sigmoid(x) * 0.5)


@pytest.mark.parametrize("by", [1e-3, -1e-3])
def test_an_output_that_is_exact_has_no_error_to_share(by: float, tmp_path: Path) -> None:
    """What is attributed then is its distance to float64."""
    program = Executed("halved", Recipe(Halved, lambda: (torch.tensor([[0.3, 1.1, -0.7]]),)), tmp_path / "made")
    etviz.debug(Halved(), program.inputs, workdir=program.folder)
    (shifted := tmp_path / "shifted").mkdir()
    inspection = load_shifted(program, shifted, 0, by)
    assert inspection.attribution().attrs["exact"]
    assert "(bit for bit), but #0 sigmoid adds more error" in inspection.summary()
    finding = inspection.analysis.finder.finding()
    assert finding is not None
    assert "%" not in finding.text


def test_where_nothing_is_wrong_it_says_so(executed: Callable[[str], Executed]) -> None:
    payload, _ = build_payload(executed("residual_cnn").inspection.analysis)
    finding = payload["summary"]["finding"]
    assert finding["level"] == "ok"
    assert finding["text"].startswith("No operator adds more error than its precision explains")
