"""What a view is told about one pair of tensors: map, density, error by axis, fingerprints; and the figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest

import etviz
from etviz.errors import UsageError
from etviz.view.payload.tensor import BUILDERS, build_tensor
from tests.programs import Executed

DTYPES = {"uint8": "<u1", "uint16": "<u2", "uint32": "<u4", "float32": "<f4", "float64": "<f8"}


@pytest.fixture(scope="module")
def inspection(executed: Callable[[str], Executed]) -> etviz.Inspection:
    return executed("residual_cnn").inspection


@pytest.fixture
def figures() -> Iterator[Any]:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def ask(inspection: etviz.Inspection, method: str, **params: Any) -> tuple[dict[str, Any], Callable[[str], Any]]:
    result, buffers = BUILDERS[method](inspection.analysis, params)
    sent = json.loads(json.dumps(result, allow_nan=False))

    def values(name: str) -> Any:
        about = sent[name]
        found = np.frombuffer(buffers[about["buffer"]], DTYPES[about["dtype"]])
        assert len(found) == about["length"]
        return found

    return sent, values


def test_error_map(inspection: etviz.Inspection) -> None:
    reference, runtime = (tensor.double().numpy() for tensor in inspection.tensors(1))
    sent, values = ask(inspection, "error_map", row=1, of="error", axes=[2, 1], index=[0, 0, 0, 5], size=4)
    error = np.abs(runtime - reference)[0, :, :, 5].T
    assert (sent["shape"], sent["axes"], sent["block"]) == ([1, 8, 8, 8], [2, 1], [2, 2])
    assert (sent["height"], sent["width"]) == (4, 4)
    expected = error.reshape(4, 2, 4, 2).max((1, 3))
    np.testing.assert_allclose(values("values").reshape(4, 4), expected, rtol=1e-6)
    assert sent["high"] == expected.max()
    first, _ = ask(inspection, "error_map", row=1)
    worst = np.unravel_index(np.abs(runtime - reference).argmax(), runtime.shape)
    assert first["axes"] == [2, 3]
    assert first["index"][:2] == list(worst[:2])


def test_scatter_and_channels(inspection: etviz.Inspection) -> None:
    reference, runtime = (tensor.double().numpy() for tensor in inspection.tensors(1))
    sent, values = ask(inspection, "scatter", row=1, bins=16)
    expected, _, _ = np.histogram2d(runtime.ravel(), reference.ravel(), [values("y_edges"), values("x_edges")])
    np.testing.assert_array_equal(values("counts").reshape(16, 16), expected)
    assert sent["elements"] == runtime.size
    sent, values = ask(inspection, "channels", row=1, axis=1)
    squares = np.square(runtime - reference).sum((0, 2, 3))
    assert (sent["axis"], sent["size"]) == (1, 8)
    np.testing.assert_allclose(values("share"), squares / squares.sum(), rtol=1e-12)
    np.testing.assert_allclose(values("rmse"), np.sqrt(squares / 64), rtol=1e-12)
    np.testing.assert_allclose(inspection.row(1).channels(1)["share"], values("share"))


def test_tensor_answers_name_shape_and_fingerprints(inspection: etviz.Inspection) -> None:
    result, _ = build_tensor(inspection.analysis, 1)
    assert (result["shape"], result["fingerprints"]) == ([1, 8, 8, 8], [])
    forced = inspection.row(9).fingerprints(force=True)
    assert list(forced.columns) == ["name", "score", "evidence"]
    json.dumps(forced.to_dict("records"), allow_nan=False)


@pytest.mark.parametrize(
    ("method", "params", "match"),
    [
        ("error_map", {}, "row"),
        ("error_map", {"row": 999}, "row"),
        ("error_map", {"row": 1, "of": 3}, "of"),
        ("error_map", {"row": 1, "axes": [0]}, "axes"),
        ("error_map", {"row": 1, "index": "x"}, "index"),
        ("error_map", {"row": 1, "size": 1e9}, "size"),
        ("scatter", {"row": "1"}, "row"),
        ("scatter", {"row": 1, "bins": 10**6}, "bins"),
        ("channels", {"row": 1, "axis": 4}, "axis"),
        ("channels", {"row": 1, "axis": None}, "axis"),
    ],
)
def test_questions_that_make_no_sense(
    method: str, params: dict[str, Any], match: str, inspection: etviz.Inspection
) -> None:
    with pytest.raises(UsageError, match=match):
        BUILDERS[method](inspection.analysis, params)


def test_every_row_has_answers(inspection: etviz.Inspection) -> None:
    for row, shape in inspection.gaps["shape"].items():
        for method, build in BUILDERS.items():
            result, buffers = build(inspection.analysis, {"row": row})
            json.dumps(result, allow_nan=False)
            assert buffers
            assert method != "error_map" or result["shape"] == list(shape)


def test_gaps_figure_shows_both_severities(inspection: etviz.Inspection, figures: Any) -> None:
    axes = inspection.plot.gaps()
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.get_lines()}
    tables = inspection.analysis.tables
    read = inspection.gaps.drop(index=list(tables.unused)).sort_values(["event_block", "instruction", "output"])
    least = axes.get_ylim()[0]
    np.testing.assert_array_equal(lines["total"], np.fmax(read["severity"], least))
    stems: Any = next(item for item in axes.collections if item.get_label() == "introduced")
    np.testing.assert_allclose(stems.get_offsets()[:, 1], np.fmax(read["introduced_severity"], least))
    assert "severity" in axes.get_ylabel()
    drawn = [np.asarray(line.get_ydata()) for line in axes.get_lines() if str(line.get_label()).startswith("_")]
    for ends in tables.limits("introduced_severity"):
        assert any(np.array_equal(line, np.array(ends)[read.index], equal_nan=True) for line in drawn)
    given = figures.figure().add_subplot()
    assert inspection.plot.gaps(ax=given) is given


@pytest.mark.parametrize("row", [1, 6, 8])
def test_figures_of_a_row(row: int, inspection: etviz.Inspection, figures: Any) -> None:
    """Of four, one and two axes; each names the row and what is measured, and draws without a warning."""
    histogram = inspection.plot.histogram(row)
    runtime: Any = next(patch for patch in histogram.patches if patch.get_label() == "runtime")
    assert runtime.get_data().values.sum() == inspection.tensors(row)[1].numel()
    error = inspection.plot.error_map(row)
    assert float(np.nanmax(np.asarray(error.images[0].get_array()))) == inspection.row(row).error_map().high
    for axes in (
        histogram,
        error,
        inspection.plot.error_map(row, "runtime"),
        inspection.plot.channels(row, 0),
        inspection.plot.scatter(row),
    ):
        assert axes.get_title().startswith(inspection.row(row).name.split(" ")[0])
        axes.figure.canvas.draw()
