"""A study over prompts: its rows are those of `etviz.decode`, for every executor."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

import etviz
from etviz.errors import ArtifactError, UsageError
from tests.decoding.trained import ROOM, Characters, program, prompts
from tests.shelf import Shelf

TASK = etviz.decode.kl(tokenizer=Characters(), steps=2)  # pyright: ignore[reportFunctionMemberAccess]


@pytest.fixture(scope="module", params=[None, 1, 2])
def study(shelf: Shelf, request: pytest.FixtureRequest) -> etviz.PromptStudy:
    """By this process, and by others."""
    texts = [*(text[:6] for text in prompts(2)), "e" * (ROOM + 1)]
    return etviz.study(program(shelf, "custom_8da4w"), texts, task=TASK, executor=request.param)


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


def test_a_folder_continues_a_study(shelf: Shelf, study: etviz.PromptStudy, tmp_path: Path) -> None:
    texts = [text[:6] for text in prompts(2)]
    given = {"task": TASK, "folder": tmp_path / "study"}
    assert len(etviz.study(program(shelf, "custom_8da4w"), texts[:1], **given).inputs) == 1
    first = tmp_path / "study" / "runs" / "000000.parquet"
    written = first.stat().st_mtime_ns
    found = etviz.study(program(shelf, "custom_8da4w"), texts, **given)
    pd.testing.assert_frame_equal(found.inputs, study.inputs.head(2))
    assert first.stat().st_mtime_ns == written
    shutil.move(tmp_path / "study", tmp_path / "elsewhere")
    given["folder"] = tmp_path / "elsewhere"
    again = etviz.study(program(shelf, "custom_8da4w"), texts, **given)
    pd.testing.assert_frame_equal(again.inputs, found.inputs)
    assert again.open_input(1).steps["kl"].mean() == pytest.approx(found.inputs["kl"][1])
    with pytest.raises(UsageError, match="input 1 is not the input that the study"):
        etviz.study(program(shelf, "custom_8da4w"), [texts[0], "other"], **given)
    with pytest.raises(UsageError, match="begun with more inputs"):
        etviz.study(program(shelf, "custom_8da4w"), texts[:1], **given)
    with pytest.raises(UsageError, match=r"holds another study \(options differs\)"):
        etviz.study(program(shelf, "custom_8da4w"), texts, **given | {"task": TASK(steps=3)})
    with pytest.raises(ArtifactError, match="it is a study over prompts"):
        etviz.Study.open(tmp_path / "elsewhere")


def test_bad_arguments(shelf: Shelf, study: etviz.PromptStudy) -> None:
    with pytest.raises(UsageError, match="chunk: a study over prompts does not take it"):
        etviz.study(program(shelf, "custom_8da4w"), [[1]], task=TASK, chunk=2)
    with pytest.raises(UsageError, match="by must be one of"):
        study.worst_inputs(by="rmse")
    with pytest.raises(UsageError, match="there is no prompt 7; there are 3"):
        study.open_input(7)
