"""Inspections side by side: rows are joined where they are the same operator, and never by a guess."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etviz
from etviz.errors import ArtifactError, UsageError
from etviz.view.payload.program_payload import build_payload
from etviz.view.payload.tensor import build_tensor
from tests.programs import Executed

Make = Callable[[str], Executed]
Payload = tuple[dict[str, Any], list[bytes]]


@pytest.fixture(scope="module")
def portable(executed: Make) -> etviz.Inspection:
    """The residual net without a backend."""
    program = executed("residual_cnn")
    return etviz.debug(program.model, program.inputs, strict=False)


def test_with_itself_nothing_changes(executed: Make) -> None:
    inspection = executed("residual_cnn").inspection
    compared = etviz.compare(inspection, inspection)
    assert compared.labels == [f"{inspection.analysis.title} 1", f"{inspection.analysis.title} 2"]
    assert set(compared.table["joined"]) == {"operator"}
    assert len(compared.table) == len(inspection.gaps)
    assert (compared.table[f"row.{compared.labels[0]}"] == compared.table[f"row.{compared.labels[1]}"]).all()
    assert set(compared.worst(100)["change"]) == {1.0}


def test_rounding_that_grows_is_not_worse(executed: Make, portable: etviz.Inspection) -> None:
    """A severity of 0.24 that becomes 0.76 is rounding before and after."""
    compared = etviz.compare(executed("residual_cnn").inspection, portable, labels=["xnnpack", "portable"])
    worst = compared.worst(1000)
    before, after = (worst[f"introduced_severity.{label}"] for label in compared.labels)
    rounding = (before <= 1) & (after <= 1)
    assert ((after > before) & rounding).any()
    assert (worst["change"][rounding] == 1.0).all()
    np.testing.assert_allclose(worst["change"], np.maximum(after, 1) / np.maximum(before, 1))


def test_two_backends(executed: Make, portable: etviz.Inspection) -> None:
    program = executed("residual_cnn")
    compared = etviz.compare(portable, program.inspection, labels=["portable", "xnnpack"])
    table = compared.table
    for label, inspection in compared.inspections.items():
        rows = table[f"row.{label}"].dropna().astype(int)
        assert sorted(rows) == list(inspection.gaps.index)
        own = inspection.gaps.loc[rows, "rmse"].to_numpy()
        np.testing.assert_array_equal(table.loc[rows.index, f"rmse.{label}"].astype(float), own)
    joined = table[table["joined"] != "alone"]
    assert len(joined) > 0
    both = joined[joined["joined"] == "operator"]
    operators = [
        inspection.gaps.loc[both[f"row.{label}"].astype(int), "op"]
        for label, inspection in compared.inspections.items()
    ]
    assert list(operators[0]) == list(operators[1])
    assert "norm" in "".join(both["operator"])


def test_worst_is_the_largest_ratio(executed: Make, portable: etviz.Inspection) -> None:
    compared = etviz.compare(portable, executed("residual_cnn").inspection, labels=["a", "b"])
    worst = compared.worst(100, "rmse")
    both = compared.table.dropna(subset=["rmse.a", "rmse.b"])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = both["rmse.b"].astype(float) / both["rmse.a"].astype(float)
    expected = ratio.where((both["rmse.a"] != 0) | (both["rmse.b"] != 0), 1.0)
    np.testing.assert_allclose(worst["change"], expected.sort_values(ascending=False))
    loss = compared.worst(100, "sqnr_db")
    np.testing.assert_allclose(loss["change"], (loss["sqnr_db.a"] - loss["sqnr_db.b"]).astype(float))


def test_page(executed: Make, portable: etviz.Inspection, tmp_path: Path) -> None:
    compared = etviz.compare(portable, executed("residual_cnn").inspection, labels=["<script>a", "b & c"])
    page = compared.to_html(tmp_path / "c.html").read_text()
    assert "<script>a" not in page
    assert "&lt;script&gt;a" in page
    assert page.count("<tr>") >= len(compared.table)
    assert 'id="etviz-data"' in page
    assert "b &amp; c" in compared.view.static_html()
    with pytest.raises(ArtifactError):
        compared.to_html(tmp_path / "missing" / "c.html")


def _numbers(payload: Payload, name: str) -> np.ndarray:
    about = next(column["values"] for column in payload[0]["columns"] if column["name"] == name)
    return np.frombuffer(payload[1][about["buffer"]], about["dtype"])


def test_view(executed: Make, portable: etviz.Inspection) -> None:
    """The view is the first program's, with the other's errors and ratios in its rows, and the rest at the end."""
    other = executed("residual_cnn").inspection
    compared = etviz.compare(portable, other, labels=["portable", "xnnpack"])
    payload = build_payload(compared.view.analysis, compared.view.beside)
    table = compared.table
    joined = table.dropna(subset=["row.portable", "row.xnnpack"])
    assert len(joined)
    change, own, others = (_numbers(payload, name) for name in ("change", "severity", "severity_2"))
    rows = joined["row.portable"].astype(int).to_numpy()
    np.testing.assert_array_equal(own[rows], portable.gaps.loc[rows, "severity"])
    np.testing.assert_array_equal(others[rows], other.gaps.loc[joined["row.xnnpack"].astype(int), "severity"])
    worst = compared.worst(1000)
    expected = worst.set_index(worst["row.portable"].astype(int))["change"]
    np.testing.assert_allclose(change[expected.index], expected)
    alone = int(table["row.portable"].isna().sum())
    assert alone > 0
    plain = build_payload(compared.view.analysis)[0]
    assert payload[0]["rows"] == plain["rows"] + alone
    assert payload[0]["compared"] == plain["compared"]
    assert np.isfinite(others[-alone:]).all()
    (tree,) = (item["tree"] for item in payload[0]["beside"])
    places = np.frombuffer(payload[1][tree["row_node"]["buffer"]], "int32")
    assert (places[rows] >= 0).all()
    assert set(np.flatnonzero(places >= 0)) == {*rows, *range(payload[0]["rows"] - alone, payload[0]["rows"])}


def test_what_is_inside_of_the_others_delegates(executed: Make, portable: etviz.Inspection) -> None:
    """A kernel here is an operator inside of a delegate there: the same line of code, so the same row."""
    other = executed("residual_cnn").load()
    call = int(other.gaps.index[other.gaps["kind"] == "delegate"][0])
    inner = other.zoom(call).gaps
    compared = etviz.compare(portable, other, labels=["portable", "xnnpack"])
    beside, own = compared.view.beside, len(other.gaps)
    assert len(beside.frames[1]) == own + len(inner)
    assert sorted(place for place in beside.joined[:, 1] if place >= 0) == list(range(own + len(inner)))
    assert sorted(place for place in beside.joined[:, 0] if place >= 0) == list(portable.gaps.index)
    joined = [(a, b) for a, b in beside.joined if a >= 0 and b >= own]
    assert len(joined) >= 3
    payload = build_payload(compared.view.analysis, beside)
    severity = _numbers(payload, "severity_2")
    for here, there in joined:
        assert portable.gaps["source"][here] == inner["source"][there - own]
        assert severity[here] == inner["severity"][there - own]
        answer, _ = build_tensor(compared.view.analysis, int(here), beside=beside)
        assert [found["label"] for found in answer["beside"]] == ["xnnpack"]
    (tree,) = (item["tree"] for item in payload[0]["beside"])
    nodes = np.frombuffer(payload[1][tree["row_node"]["buffer"]], "int32")
    assert len({int(nodes[here]) for here, _ in joined}) == len(joined)


def test_histograms_of_both(executed: Make, portable: etviz.Inspection) -> None:
    other = executed("residual_cnn").inspection
    compared = etviz.compare(portable, other, labels=["portable", "xnnpack"])
    row = compared.table.dropna(subset=["row.portable", "row.xnnpack"]).iloc[-1]
    answer, buffers = build_tensor(compared.view.analysis, int(row["row.portable"]), beside=compared.view.beside)
    (found,) = answer["beside"]
    assert answer["label"] == "portable"
    edges = np.frombuffer(buffers[answer["edges"]["buffer"]])
    counts = np.frombuffer(buffers[found["runtime"]["buffer"]], found["runtime"]["dtype"])
    runtime = other.tensors(int(row["row.xnnpack"]))[1].numpy()
    np.testing.assert_array_equal(counts, np.histogram(runtime, edges)[0])
    assert found["beyond"] == runtime.size - counts.sum()
    assert compared.widget(height=400).sort_by == "change"


def test_bad_arguments(portable: etviz.Inspection) -> None:
    with pytest.raises(UsageError, match="two or more"):
        etviz.compare(portable)
    with pytest.raises(UsageError, match="found str"):
        etviz.compare(portable, "other")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="2 different names"):
        etviz.compare(portable, portable, labels=["a", "a"])
    with pytest.raises(UsageError, match="by must be a metric"):
        etviz.compare(portable, portable).worst(by="latency")
