"""Pictures in files, and the heat map of executions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from etviz.errors import UsageError
from etviz.view.plots import step_table
from tests.kinds.making import Made
from tests.programs import Executed


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def test_figures_are_written(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    inspection = executed("residual_cnn").inspection
    written = inspection.export.figures(tmp_path / "figures", 2, ".svg")
    assert {path.name for path in written} == {path.name for path in (tmp_path / "figures").iterdir()}
    assert written[0].name == "gaps.svg"
    assert len(written) == 5
    assert all(path.read_bytes().lstrip().startswith(b"<?xml") for path in written)
    with pytest.raises(UsageError, match="a picture's name must end in one of"):
        inspection.export.figures(tmp_path / "figures", 2, ".exe")


def test_heat_map_of_executions(made: Callable[[str], Made]) -> None:
    inspection = made("different").load("exact")
    rows = inspection.gaps
    runs = rows.event_block.nunique()
    assert runs > 1
    table = step_table(rows, "severity")
    assert table.shape[0] == runs
    for at, block in enumerate(sorted(rows.event_block.unique())):
        own = rows[rows.event_block == block]
        assert np.nanmax(table.to_numpy()[at]) == own.severity.max()
    axes = inspection.plot.steps("rmse")
    image = axes.get_images()[0].get_array()
    assert image is not None
    assert image.shape == table.shape
    inspection.plot.steps("sqnr_db")
    with pytest.raises(UsageError, match="must be a metric of gaps"):
        inspection.plot.steps("latency_ms")


def test_layers_are_as_fine_as_there_is_room_for() -> None:
    rows = pd.DataFrame(
        {
            "event_block": np.repeat([1, 2], 200),
            "instruction": np.tile(np.arange(200), 2),
            "module": np.tile([f"layers.{at // 2}.part{at % 2}" for at in range(200)], 2),
            "severity": np.arange(400.0),
            "sqnr_db": np.arange(400.0),
        }
    )
    table = step_table(rows, "severity")
    assert list(table.columns) == ["layers"]
    assert table["layers"].tolist() == [199, 399]
    assert step_table(rows, "sqnr_db")["layers"].tolist() == [0, 200]
    fewer = rows[rows.instruction < 40]
    assert list(step_table(fewer, "severity").columns)[:3] == ["layers.0.part0", "layers.0.part1", "layers.1.part0"]
