"""Noise that the first executions had is that of later ones; what it does not explain is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

import etviz
from etviz import Inspection
from etviz.comparison.in_lanes import InLanes
from etviz.evaluation.earlier import FIRST, Multiples
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from etviz.tensors.metrics import THRESHOLD
from tests.language.programs import RECIPES, calls_of, model_of
from tests.shelf import Shelf
from tests.zoo import random_programs

CALLS, LATE = FIRST + 6, FIRST + 3
"""Calls of the program, and the position from which its fault shows."""


def made(shelf: Shelf, name: str, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """The artifacts of a decoder of one layer after `CALLS` calls, with its constants changed after the export."""
    recipe = replace(RECIPES["plain_portable"], settings={"n_layers": 1})
    calls = calls_of(CALLS)

    def lowered(folder: Path) -> None:
        program: ExportedProgram = torch.export.export(model_of(recipe), calls[0], strict=False)
        if change is not None:
            change({**program.state_dict, **program.constants})
        own = lower(program, calls[0], folder, strict=False)
        execute(own.pte, [tree_leaves(call) for call in calls], workdir=folder)

    return shelf.folder(f"earlier-{name}", lowered)


def turned_later(constants: dict[str, Any]) -> None:
    tables = [value for name, value in constants.items() if name.endswith("freqs_cos")]
    assert tables
    for table in tables:
        table[LATE:] *= 1.05


@pytest.fixture(scope="module")
def right(shelf: Shelf) -> Path:
    return made(shelf, "right")


def loaded(folder: Path, right: Path) -> Inspection:
    return etviz.load(
        folder / "etdump.etdp",
        inputs=calls_of(CALLS),
        debug_buffer=folder / "debug_buffer.bin",
        etrecord=right / "etrecord.bin",
        record=right / "model.etviz",
        pte=right / "model.pte",
    )


def of_later(found: Inspection) -> Any:
    return found.gaps[found.gaps["input_index"] >= FIRST]


def test_later_executions_take_the_noise_of_the_first(right: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = of_later(loaded(right, right))
    monkeypatch.setattr(InLanes, "settle", lambda lanes, item: None)  # then each execution keeps its own samples
    measured = of_later(loaded(right, right))
    told = quick["reason"].str.contains("earlier executions")
    assert told.sum() > len(quick) / 4
    ratio = np.log2((quick["noise"] / measured["noise"])[told])
    assert abs(ratio.median()) < 0.5
    assert (ratio.abs() < 1).mean() > 0.9
    assert (quick["severity"].fillna(0) < THRESHOLD).all()
    assert quick["rmse"].equals(measured["rmse"])


def test_a_later_fault_is_measured_and_named(shelf: Shelf, right: Path) -> None:
    found = loaded(made(shelf, "turned", turned_later), right)
    wrong = found.gaps[found.gaps["severity"] >= THRESHOLD]
    assert set(wrong["input_index"]) == set(range(LATE, CALLS))
    assert not wrong["reason"].str.contains("earlier executions").any()
    first = found.first_divergence
    assert first is not None
    assert first["input_index"] >= LATE
    assert first["op"] == "aten::index.Tensor_out"


@pytest.mark.parametrize(("seed", "recipe"), [(2, "xnnpack"), (3, "portable")])
def test_random_programs_on_inputs_of_other_sizes_are_left_alone(seed: int, recipe: str) -> None:
    model, (x,) = random_programs.recipe(seed).builder()
    torch.manual_seed(seed)
    inputs = [(x,), *((torch.randn_like(x) * 10.0 ** (at % 3 - 1),) for at in range(FIRST + 3))]
    found = etviz.debug(model, inputs, recipe)
    assert found.gaps["reason"].str.contains("earlier executions").any()
    assert found.first_divergence is None
    assert (found.gaps["severity"].fillna(0) < THRESHOLD).all()


def test_a_multiple_is_known_after_half_of_the_first_executions() -> None:
    multiples = Multiples()
    for at in range(FIRST // 2):
        assert np.isnan(multiples.noise("value", 1.0))
        multiples.add("value", 3.0 if at % 2 else 4.0, 0.5)
    multiples.add("value", float("nan"), 0.5)
    multiples.add("value", 1.0, 0.0)
    assert multiples.noise("value", 2.0) == pytest.approx(2.0 * np.sqrt((36.0 + 64.0) / 2))
    assert np.isnan(multiples.noise("other", 2.0))
