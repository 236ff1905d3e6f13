"""Timeline, planned memory and the heat map of executions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from etviz.artifacts.program.program import read_program
from etviz.errors import UsageError
from etviz.view.plots import step_table
from tests.kinds.making import Made
from tests.programs import Executed


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.mark.parametrize("name", ["plain_cnn", "residual_cnn", "many_outputs"])
def test_live_bytes_are_those_of_a_byte_map(name: str, executed: Callable[[str], Executed]) -> None:
    """Each byte of the plan, marked for every instruction at which a value that lies there is alive."""
    made = executed(name)
    frame = made.inspection.memory()
    method = read_program(made.path("pte")).method()
    specs = {slot: value.tensor for slot, value in enumerate(method.values) if value.tensor is not None}
    spans = {slot: (spec.memory[1], spec.memory[1] + spec.nbytes) for slot, spec in specs.items() if spec.memory}
    read: dict[int, list[int]] = {slot: [0] for slot in method.inputs}
    for item in method.instructions:
        for arg in item.args:
            for slot in method.tensors(arg):
                read.setdefault(slot, []).append(item.index)
    last = max(item.index for item in method.instructions)
    for slot in method.outputs:
        read.setdefault(slot, []).append(last)
    size = max(stop for _, stop in spans.values())
    for _, row in frame.iterrows():
        used = np.zeros(size, bool)
        for slot, (start, stop) in spans.items():
            if slot in read and min(read[slot]) <= row.instruction <= max(read[slot]):
                used[start:stop] = True
        assert row.live_bytes == used.sum()
    assert frame.live_bytes.max() <= frame.attrs["planned_bytes"] == size
    delegates = frame[frame.kind == "delegate"]
    assert (delegates.boundary_bytes > 0).all()
    assert (frame[frame.kind != "delegate"].boundary_bytes == 0).all()
    axes = made.inspection.plot.memory()
    assert axes.get_ylabel() == "planned memory"
    assert axes.get_ylim()[1] >= size


def test_memory_takes_the_program(executed: Callable[[str], Executed], tmp_path: object) -> None:
    made = executed("plain_cnn")
    with pytest.raises(UsageError, match="give it with pte="):
        made.load(pte=None).memory()


def test_timeline_has_every_call_of_the_execution(executed: Callable[[str], Executed]) -> None:
    made = executed("residual_cnn")
    axes = made.inspection.plot.timeline()
    events = made.inspection.events
    drawn = sum(len(bars.get_paths()) for bars in axes.collections)
    timed = events[events.event_block == "Execute"]
    assert drawn >= len(timed)
    lanes = [label.get_text() for label in axes.get_yticklabels()]
    assert "portable kernels" in lanes
    assert any("Xnnpack" in lane for lane in lanes)
    longest = max(
        float(np.asarray(path.vertices)[:, 0].max()) for bars in axes.collections for path in bars.get_paths()
    )
    assert longest == pytest.approx(timed[timed.name == "Method::execute"].samples_ms.iloc[0][0], rel=0.2)
    with pytest.raises(UsageError, match="run must be one of the"):
        made.inspection.plot.timeline(run=99)


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
