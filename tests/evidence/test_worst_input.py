"""The search for the worst input: worse than the examples, real on the runtime, and honest about the examples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import pytest
import torch
from tqdm.auto import tqdm

import etviz
from etviz.demo.digits import load_digits
from etviz.errors import UsageError
from tests.programs import Executed

Get = Callable[[str], Executed]


@pytest.fixture(scope="module")
def faint(executed: Get) -> etviz.WorstInput:
    """Examples that are nearly blank, while inputs may be twice as bright as digits are."""
    images = load_digits().test_images
    examples = [images[at : at + 1] * 0.01 for at in range(4)]
    return etviz.worst_input(executed("digits_int8").folder, examples, runs=60, ranges=[(0.0, 2.0)])


def test_it_is_worse_than_every_example_and_confirmed(faint: etviz.WorstInput, executed: Get) -> None:
    assert faint.against == "float"
    table = faint.table
    assert len(table) == 60
    assert faint.rmse == table["rmse"].max() > table.loc[table["origin"] == "example", "rmse"].max()
    assert faint.example_rmse == table.loc[table["origin"] == "example", "rmse"].max()
    (image,) = faint.inputs
    assert float(image.min()) >= 0.0
    assert float(image.max()) <= 2.0
    expected = etviz.study(executed("digits_int8").folder, [image]).inputs["float_rmse"].iloc[0]
    assert faint.rmse == pytest.approx(expected, rel=1e-9)
    assert len(faint.open().gaps) > 0


def test_the_gradient_finds_what_chance_does_not(faint: etviz.WorstInput) -> None:
    table = faint.table
    accepted = table[table["accepted"]]
    assert (accepted["origin"] == "gradient").any()
    assert table.loc[table["origin"] == "gradient", "rmse"].max() == faint.rmse


def test_it_says_that_faint_examples_could_not_show_it(faint: etviz.WorstInput) -> None:
    assert not faint.shown
    beyond = faint.beyond()
    assert len(beyond)
    assert (beyond["beyond"] > 0).all()
    text = faint.summary()
    assert "The examples do not show it" in text
    assert "None like them could have" in text


def test_examples_that_show_it(executed: Get, faint: etviz.WorstInput, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a progress bar, as with ``TQDM_DISABLE``: what is run is not counted by it."""
    monkeypatch.setattr("etviz.evidence.worst_input.tqdm", partial(tqdm, disable=True))
    again = etviz.worst_input(executed("digits_int8").folder, [faint.inputs], runs=6)
    assert len(again.table) == 6
    assert again.shown
    assert "The examples show it" in again.summary()


def test_the_same_seed_gives_the_same_search(executed: Get) -> None:
    images = load_digits().test_images
    a, b = (etviz.worst_input(executed("digits_int8").folder, [images[:1]], runs=12) for _ in range(2))
    pd.testing.assert_frame_equal(a.table, b.table, check_exact=True)
    assert torch.equal(a.inputs[0], b.inputs[0])


def test_what_makes_no_sense_is_refused(executed: Get) -> None:
    folder = executed("digits_int8").folder
    image = load_digits().test_images[:1]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"runs": 0}, "runs must be"),
        ({"against": "twice"}, "against must be"),
        ({"ranges": [(1.0, 0.0)]}, "ranges must be pairs"),
        ({"ranges": []}, "ranges must have one pair"),
    ]
    for options, message in wrong:
        with pytest.raises(UsageError, match=message):
            etviz.worst_input(folder, [image], **options)
    with pytest.raises(UsageError, match="none of the inputs"):
        etviz.worst_input(folder, [torch.zeros(3)])
    with pytest.raises(UsageError, match="lowered program"):
        etviz.worst_input(torch.nn.Linear(1, 1), [image])
