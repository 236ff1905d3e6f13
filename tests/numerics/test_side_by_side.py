"""Executions that are evaluated side by side have the values, bit for bit, that each of them has by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map_only

import etviz
from etviz.evaluation import side_by_side
from etviz.pipeline.execute import execute
from tests.programs import Executed

_RUNS = 5
_HOW = pytest.mark.parametrize("known", [("etrecord", "record"), ("etrecord",)], ids=["recorded", "derived"])


def _other(value: torch.Tensor, seed: int) -> torch.Tensor:
    """As large a tensor of other values, laid out in the same way."""
    if not value.is_floating_point():
        return value.clone()
    noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(seed)).to(value.dtype)
    return value * 0.9 + 0.3 * noise


def _several(program: Executed, count: int = _RUNS) -> list[Any]:
    """Inputs of a program for several executions."""
    return [
        tree_map_only(torch.Tensor, lambda value, seed=seed: _other(value, seed), program.inputs)
        for seed in range(count)
    ]


@_HOW
@pytest.mark.parametrize("name", ["digits_int8", "encoder", "plain_cnn", "channels_last", "many_outputs"])
def test_values_are_those_of_each_execution(
    name: str,
    known: tuple[str, ...],
    executed: Callable[[str], Executed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = executed(name)
    inputs = _several(program)
    run = execute(program.path("pte"), [tree_flatten(item)[0] for item in inputs], workdir=tmp_path)
    files: dict[str, Any] = {"etdump": run.etdump, "debug_buffer": run.debug_buffer, "pte": program.path("pte")}
    files |= {kind: program.path(kind) for kind in known}
    beside: list[bool] = []
    evaluate = side_by_side.evaluate

    def told(*args: Any, **options: Any) -> Any:
        found = evaluate(*args, **options)
        beside.append(found is not None)
        return found

    monkeypatch.setattr(side_by_side, "evaluate", told)
    together = etviz.load(**files, inputs=inputs)
    assert beside == [True]
    monkeypatch.setattr(side_by_side, "MOST", 1)
    alone = etviz.load(**files, inputs=inputs)
    assert beside == [True]
    pd.testing.assert_frame_equal(together.gaps, alone.gaps, check_exact=True)
    pd.testing.assert_frame_equal(together.outputs, alone.outputs, check_exact=True)
    assert together.gaps["event_block"].nunique() == _RUNS


@_HOW
@pytest.mark.parametrize("name", ["digits_int8", "many_outputs"])
def test_rows_of_a_study_are_those_of_single_runs(
    name: str,
    known: tuple[str, ...],
    executed: Callable[[str], Executed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each input run by itself, and a study that evaluates one after the other, have the same bits."""
    program, folder = executed(name), tmp_path / "program"
    folder.mkdir()
    for kind in ("pte", *known):
        (folder / program.path(kind).name).symlink_to(program.path(kind))
    inputs = _several(program)
    study = etviz.study(folder, inputs, folder=tmp_path / "together", chunk=_RUNS)
    exact = [*(metric for metric in etviz.metrics if metric != "severity")]
    exact += [*(f"introduced_{metric}" for metric in etviz.metrics), "introduced_noise"]
    for at in (0, _RUNS - 1):  # the noise of total gaps, and so their severity, is that of a study's first inputs
        run = execute(program.path("pte"), [tree_flatten(inputs[at])[0]], workdir=tmp_path / str(at))
        files: dict[str, Any] = {kind: program.path(kind) for kind in ("pte", *known)}
        files |= {"etdump": run.etdump, "debug_buffer": run.debug_buffer}
        single = etviz.load(**files, inputs=inputs[at]).gaps
        rows = study.gaps(at)
        assert len(rows)
        expected = single.set_index(["instruction", "output"])[exact].sort_index()
        pd.testing.assert_frame_equal(rows.set_index(["instruction", "output"])[exact], expected, check_exact=True)
    monkeypatch.setattr(side_by_side, "MOST", 1)
    monkeypatch.setattr("etviz.evidence.measuring._NOISE", {})
    apart = etviz.study(folder, inputs, folder=tmp_path / "apart", chunk=_RUNS)
    pd.testing.assert_frame_equal(study.table, apart.table, check_exact=True)
    pd.testing.assert_frame_equal(study.inputs, apart.inputs, check_exact=True)
    for at in range(_RUNS):
        pd.testing.assert_frame_equal(study.gaps(at), apart.gaps(at), check_exact=True)


def test_functions_of_the_user_stand_for_operators_in_every_execution(
    executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    program = executed("plain_cnn")
    inputs = _several(program, 3)
    run = execute(program.path("pte"), inputs, workdir=tmp_path)
    files: dict[str, Any] = {kind: program.path(kind) for kind in ("pte", "record", "etrecord")}
    files |= {"etdump": run.etdump, "debug_buffer": run.debug_buffer}
    found = etviz.load(**files, inputs=inputs, reference={"aten.relu": lambda x: torch.clamp(x, min=0) + 1})
    relus = found.gaps[found.gaps.op.str.contains("relu")]
    assert relus["event_block"].nunique() == 3
    np.testing.assert_allclose(relus["introduced_rmse"], 1, rtol=1e-5)
