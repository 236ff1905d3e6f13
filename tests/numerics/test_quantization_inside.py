"""Once a delegate was zoomed into, its inner operators are split as well, with what the runtime gave for them.

Checked against upstream's own graphs in eager mode, the float model by `torch.fx`, and NumPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch

import etviz
from etviz.errors import UsageError
from etviz.explain.quantization.split import split
from etviz.view.payload.program_payload import build_payload
from etviz.view.payload.tensor import build_tensor
from tests.oracles import Recorder, inner_values
from tests.programs import FILES, Executed
from tests.shifted import load_shifted

Array = npt.NDArray[np.float64]
ZOOMED = {0: 0, 4: 2}
"""Instructions of the delegates that are zoomed into, and which delegate each is; the one between is left."""


@dataclass(frozen=True)
class Zoomed:
    """A quantized program with two of its three delegates zoomed, and its values by plain torch."""

    inspection: etviz.Inspection
    before: pd.DataFrame
    floats: dict[str, Any]
    quantized: list[dict[str, Any]]

    def split(self) -> pd.DataFrame:
        """The split by operator."""
        return self.inspection.quantization().set_index("op")

    def inner(self, row: int) -> Array:
        """Values of the quantized model in eager mode at an inner row."""
        place = self.inspection.analysis.rows.find(row)
        assert place.inside is not None
        return self.quantized[ZOOMED[place.inside[1]]][place.gap.node.name].double().numpy()


def load(folder: Path) -> etviz.Inspection:
    files: dict[str, Any] = {kind: folder / FILES[kind] for kind in ("etrecord", "debug_buffer", "pte", "record")}
    return etviz.load(folder / FILES["etdump"], **files)


def call_row(inspection: etviz.Inspection, instruction: int) -> int:
    return int(inspection.gaps.index[inspection.gaps["instruction"] == instruction][0])


@pytest.fixture(scope="module")
def zoomed(executed: Callable[[str], Executed]) -> Zoomed:
    program = executed("digits_int8")
    inspection = load(program.folder)
    before = inspection.quantization()
    for instruction in ZOOMED:
        assert inspection.zoom(call_row(inspection, instruction)).faithful is True
    floats = Recorder(torch.export.export(program.model, program.inputs, strict=True).module())
    with torch.no_grad():
        floats.run(*program.inputs)
    return Zoomed(inspection, before, floats.values, inner_values(program))


def rmse(a: Array, b: Array) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2)))


def decibel(signal: Array, error: float) -> float:
    return 10 * np.log10(np.mean(signal**2) / error**2)


def inner_operators(zoomed: Zoomed) -> Iterator[Any]:
    frame = zoomed.split()
    yield from frame[frame["row"] >= len(zoomed.inspection.gaps)].itertuples()


def test_every_inner_operator_as_numpy_computes_it(zoomed: Zoomed) -> None:
    rows = list(inner_operators(zoomed))
    assert [row.Index for row in rows] == ["relu", "relu_1", "flatten"]
    assert [row.instruction for row in rows] == [0, 0, 4]
    for row in rows:
        integers = zoomed.inspection.tensors(row.row)[1]
        assert integers.dtype == torch.int8
        floats = zoomed.floats[row.Index].double().numpy()
        quantized, runtime = (
            (values - row.zero_point) * row.scale for values in (zoomed.inner(row.row), integers.double().numpy())
        )
        step = 0.05 * row.scale  # two computations may round a few elements to different sides
        for part, pair in (
            ("quantization", (floats, quantized)),
            ("backend", (quantized, runtime)),
            ("total", (floats, runtime)),
        ):
            assert getattr(row, f"{part}_rmse") == pytest.approx(rmse(*pair), rel=1e-3, abs=step), (row, part)
        assert row.total_sqnr_db == pytest.approx(decibel(floats, rmse(floats, runtime)), abs=1e-3)
        assert row.error_steps == pytest.approx(row.quantization_rmse / row.scale, rel=1e-6)
        low, high = ((end - row.zero_point) * row.scale for end in (row.qmin - 0.5, row.qmax + 0.5))
        ends = (integers.numpy() == row.qmin) & (floats < low) | (integers.numpy() == row.qmax) & (floats > high)
        assert row.saturated == pytest.approx(ends.mean(), abs=2 / ends.size)


def test_what_the_zooms_say_nothing_of_stays_as_it_was(zoomed: Zoomed) -> None:
    after, before = zoomed.split(), zoomed.before.set_index("op")
    same = [op for op in before.index if before.loc[op, "row"] >= 0]
    pd.testing.assert_frame_equal(after.loc[same], before.loc[same])
    for op in ("relu_2", "relu_3"):
        assert after.loc[op, "row"] == -1
        assert "zoom into it" in str(after.loc[op, "reason"])
    assert after.loc["conv2d", "row"] == -1
    assert "no separate value" in str(after.loc["conv2d", "reason"])
    assert "runs them as one operator" in str(after.loc["conv2d", "reason"])


def test_a_step_that_the_runtime_was_off_is_the_backends(zoomed: Zoomed) -> None:
    """Three steps are added to what the zoom gave for one operator: its backend error is that, and no other's."""
    inspection = zoomed.inspection
    calls = inspection.analysis.quantization.calls()
    zoom: Any = calls[0].zoom
    comparison = zoom.comparison
    runtime = comparison.gaps[1].runtime
    off = torch.where(runtime < 100, runtime + 3, runtime)
    gaps = [comparison.gaps[0], replace(comparison.gaps[1], runtime=off), *comparison.gaps[2:]]
    planted = replace(calls[0], zoom=replace(zoom, comparison=replace(comparison, gaps=gaps)))
    tables = inspection.analysis.tables
    assert tables.compared.replay is not None
    found = split(tables.compared.replay, tables.gaps, [planted, *calls[1:]])
    numbers = {item["op"]: item for item in found.operators}
    scale, zero = numbers["relu"]["scale"], numbers["relu"]["zero_point"]
    expected = rmse((off.double().numpy() - zero) * scale, (zoomed.inner(numbers["relu"]["row"]) - zero) * scale)
    assert numbers["relu"]["backend_rmse"] == pytest.approx(expected, rel=0.01)
    assert expected > 2 * scale
    assert numbers["relu"]["quantization_rmse"] == zoomed.split().loc["relu", "quantization_rmse"]
    for op in ("relu_1", "flatten", "add"):
        assert numbers[op]["backend_rmse"] == zoomed.split().loc[op, "backend_rmse"]


def test_the_view_shows_it_for_inner_rows(zoomed: Zoomed) -> None:
    inspection = zoomed.inspection
    payload, buffers = build_payload(inspection.analysis)
    columns = {column["name"]: column for column in payload["columns"] if column["group"] == "quantization"}
    for row in inner_operators(zoomed):
        for name, column in columns.items():
            assert np.frombuffer(buffers[column["values"]["buffer"]], "<f8")[row.row] == getattr(row, name)
        answer, data = build_tensor(inspection.analysis, row.row)
        found = answer["quantization"]
        assert (found["low"], found["high"], found["scale"]) == (-128, 127, row.scale)
        position = zoomed.floats[row.Index].double().numpy() / row.scale + row.zero_point
        edges = np.frombuffer(data[answer["edges"]["buffer"]], "<f8")
        counts = np.frombuffer(data[found["float"]["buffer"]], found["float"]["dtype"])
        assert counts.sum() == position.size
        mean = (counts * (edges[:-1] + edges[1:]) / 2).sum() / counts.sum()
        assert mean == pytest.approx(position.mean(), abs=edges[1] - edges[0])


def test_the_inside_alone_refers_to_the_whole(zoomed: Zoomed) -> None:
    inside = next(iter(zoomed.inspection.analysis.inside.values()))
    assert not inside.quantization.known
    with pytest.raises(UsageError, match="Inspection that was zoomed"):
        inside.quantization.frame()


def test_a_zoom_that_is_not_faithful_is_left_out_and_said_so(
    executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    """What the run logged as the delegate's output is changed, so that the zoom gives something else."""
    inspection = load_shifted(executed("digits_int8"), tmp_path, instruction=0, by=0.5)
    before = inspection.quantization()
    inside = inspection.zoom(call_row(inspection, 0))
    assert inside.faithful is False
    frame = inspection.quantization()
    pd.testing.assert_frame_equal(frame.drop(columns="reason"), before.drop(columns="reason"))
    reason = frame.set_index("op").loc["relu", "reason"]
    assert "delegate call 0 does not count" in str(reason)
    assert inside.analysis.digest.notes[0] in str(reason)
    payload, _ = build_payload(inspection.analysis)
    assert any("delegate call 0 does not count" in note for note in payload["summary"]["notes"])
