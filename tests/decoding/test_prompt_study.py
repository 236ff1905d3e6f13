"""A study over prompts: its rows are those of `etviz.decode`, for every executor."""

from __future__ import annotations

import pandas as pd
import pytest

import etviz
from etviz.errors import UsageError
from tests.decoding.trained import ROOM, Characters, program, prompts
from tests.shelf import Shelf

TASK = etviz.decode.kl(tokenizer=Characters(), steps=2)  # pyright: ignore[reportFunctionMemberAccess]


@pytest.fixture(scope="module")
def study(shelf: Shelf) -> etviz.PromptStudy:
    texts = [*(text[:6] for text in prompts(2)), "e" * (ROOM + 1)]
    return etviz.study(program(shelf, "custom_8da4w"), texts, task=TASK)


def test_rows_are_those_of_decode(shelf: Shelf, study: etviz.PromptStudy) -> None:
    assert study.inputs["status"].tolist() == ["compared", "compared", "failed"]
    for number, text in enumerate(prompts(2)):
        run = etviz.decode(program(shelf, "custom_8da4w"), text[:6], tokenizer=Characters(), steps=2)
        row = study.inputs.loc[number]
        assert row["kl"] == pytest.approx(run.steps["kl"].mean())
        assert row["perplexity"] == pytest.approx(run.perplexity["value"]["ratio"])
        assert row["positions"] == len(run.steps)
        assert row["flips"] == (~run.steps["agrees"]).sum()
    assert study.statistics["value"]["kl"] == pytest.approx(study.inputs["kl"].mean())
    worst = int(study.inputs["kl"].to_numpy(float, na_value=-1.0).argmax())
    assert study.worst_inputs(1).index.tolist() == [worst]
    assert study.open_input(worst).steps["kl"].mean() == pytest.approx(study.inputs["kl"][worst])
    assert "3 prompts: 2 compared, 1 failed." in study.summary()
    assert "the program" in study.inputs["reason"][2]


def test_processes_give_the_same(shelf: Shelf, study: etviz.PromptStudy) -> None:
    texts = [text[:6] for text in prompts(2)]
    found = etviz.study(program(shelf, "custom_8da4w"), texts, task=TASK, executor=2)
    pd.testing.assert_frame_equal(found.inputs, study.inputs.head(2))


def test_bad_arguments(shelf: Shelf, study: etviz.PromptStudy) -> None:
    with pytest.raises(UsageError, match="folder: a study over prompts does not take it"):
        etviz.study(program(shelf, "custom_8da4w"), [[1]], task=TASK, folder="study")
    with pytest.raises(UsageError, match="by must be one of"):
        study.worst_inputs(by="rmse")
    with pytest.raises(UsageError, match="there is no prompt 7; there are 3"):
        study.open_input(7)
