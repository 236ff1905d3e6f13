"""A recipe is given once, by a name or as an object, to everything that lowers a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import etviz
from etviz.errors import UsageError

INPUTS = (torch.linspace(-1, 1, 16).reshape(2, 8),)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


@pytest.mark.parametrize(
    ("recipe", "backends", "dtypes"),
    [
        ("portable", {""}, {"float32"}),
        ("xnnpack", {"XnnpackBackend"}, {"float32"}),
        ("xnnpack-int8", {"XnnpackBackend"}, {"float32"}),
    ],
)
def test_a_name_is_a_recipe(recipe: str, backends: set[str], dtypes: set[str]) -> None:
    inspection = etviz.debug(model(), INPUTS, recipe)
    assert set(inspection.gaps["backend"]) == backends
    assert set(inspection.gaps["dtype"]) == dtypes
    quantized = "quantize" in inspection.format_delegated_graph()
    assert quantized == (recipe == "xnnpack-int8")


def test_a_name_is_a_recipe_of_many_runs() -> None:
    assert etviz.census(model(), INPUTS, 2, recipe="portable").runs == 2
    swept = etviz.sweep(model(), {"float": "portable"}, [INPUTS], latency=False)
    assert list(swept.table["status"]) == ["measured"]


def test_one_recipe_for_every_question() -> None:
    int8 = etviz.recipe("xnnpack-int8", calibration=[INPUTS])
    assert etviz.debug(model(), INPUTS, int8).analysis.findings.made["calibration"] == [INPUTS]
    counted = etviz.census(model(), INPUTS, 2, recipe=int8)
    assert counted.runs == 2
    swept = etviz.sweep(model(), {"float": "portable", "int8": int8}, [INPUTS], latency=False)
    assert list(swept.table["status"]) == ["measured", "measured"]


def test_what_is_no_recipe_is_refused() -> None:
    with pytest.raises(UsageError, match=r"recipe must be one of portable, xnnpack, .* found 'gpu'"):
        etviz.debug(model(), INPUTS, "gpu")
    with pytest.raises(UsageError, match="partitioner is a part of the recipe"):
        etviz.debug(model(), INPUTS, "xnnpack", partitioner=[])
    with pytest.raises(UsageError, match=r"recipe must be a name .* or made by etviz.recipe, found 3"):
        etviz.debug(model(), INPUTS, 3)  # pyright: ignore[reportArgumentType]
