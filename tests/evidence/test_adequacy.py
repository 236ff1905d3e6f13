"""What inputs never reach is told for every operator: checked against forward hooks of the eager model."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import etviz
from etviz.demo.digits import load_digits
from tests.programs import Executed

Get = Callable[[str], Executed]


def test_ranges_and_signs_are_those_of_the_eager_model(executed: Get) -> None:
    program = executed("digits_int8")
    digits = load_digits()
    images = [digits.test_images[at : at + 1] for at in range(4)]
    dark = [(0.1 * image,) for image in images]
    found = etviz.study(program.folder, dark).adequacy([(image,) for image in images]).set_index("operator")
    seen: list[torch.Tensor] = []
    hook = program.model.get_submodule("down").register_forward_hook(lambda _, __, out: seen.append(out.detach()))
    with torch.no_grad():
        for (image,) in dark:
            program.model(image)
        low, high = float(min(t.min() for t in seen)), float(max(t.max() for t in seen))
        share = float(torch.cat(seen).lt(0).double().mean())
        seen.clear()
        for image in images:
            program.model(image)
    hook.remove()
    row = found[found["module"] == "down"].iloc[0]
    assert row["min"] == pytest.approx(low, rel=1e-4)
    assert row["max"] == pytest.approx(high, rel=1e-4)
    assert row["negative"] == pytest.approx(share, abs=0.01)
    assert row["calibration_max"] == pytest.approx(float(max(t.max() for t in seen)), rel=1e-4)
    relu = found[found["op"] == "relu"].iloc[0]
    assert relu["never"].startswith("negative")
    assert relu["inputs"] == 4
    stem = found.iloc[0]
    assert stem["covered"] < 0.5
    assert "% of the calibration's range" in stem["never"]


def test_a_branch_that_is_never_taken_is_named(executed: Get) -> None:
    program = executed("branches")
    inputs = [(torch.tensor(True), torch.randn(3, 4)) for _ in range(2)]
    one = etviz.study(program.folder, inputs).adequacy()
    assert "the false branch" in one["never"].tolist()
    both = etviz.study(program.folder, [*inputs, (torch.tensor(False), torch.randn(3, 4))]).adequacy()
    assert not both["never"].str.contains("branch").any()
    assert both.set_index("op").loc["cos", "inputs"] == 1


def test_saturation_is_counted_on_a_grid(executed: Get) -> None:
    from etviz.evidence.adequacy import _Reach  # pyright: ignore[reportPrivateUsage]

    reach = _Reach()
    reach.add(torch.tensor([-128, 0, 127, 5], dtype=torch.int8), (-128, 127))
    assert (reach.saturated, reach.negative, reach.zero, reach.elements) == (2, 1, 1, 4)
    reach.add(torch.tensor([math.nan, math.inf]), None)
    assert reach.nonfinite == 2
