"""Executions that are evaluated side by side have the values, bit for bit, that each of them has by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map_only

import etviz
from etviz.evaluation import side_by_side
from etviz.pipeline.execute import execute
from tests.programs import Executed

_RUNS = 5


def _other(value: torch.Tensor, seed: int) -> torch.Tensor:
    """As large a tensor of other values, laid out in the same way."""
    if not value.is_floating_point():
        return value.clone()
    noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(seed)).to(value.dtype)
    return value * 0.9 + 0.3 * noise


@pytest.mark.parametrize("known", [("etrecord", "record"), ("etrecord",)], ids=["recorded", "derived"])
@pytest.mark.parametrize("name", ["digits_int8", "encoder", "plain_cnn", "channels_last", "many_outputs"])
def test_values_are_those_of_each_execution(
    name: str,
    known: tuple[str, ...],
    executed: Callable[[str], Executed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = executed(name)
    inputs = [
        tree_map_only(torch.Tensor, lambda value, seed=seed: _other(value, seed), program.inputs)
        for seed in range(_RUNS)
    ]
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
