"""Inspections side by side: rows are joined where they are the same operator, and never by a guess."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import etviz
from etviz.errors import ArtifactError, UsageError
from tests.programs import Executed

Make = Callable[[str], Executed]


@pytest.fixture(scope="module")
def portable(executed: Make) -> etviz.Inspection:
    """The residual net without a backend."""
    program = executed("residual_cnn")
    return etviz.debug(program.model, program.inputs, strict=False)


def test_with_itself_nothing_changes(executed: Make) -> None:
    inspection = executed("residual_cnn").inspection
    compared = etviz.compare(inspection, inspection)
    assert compared.labels == [f"{inspection.title} 1", f"{inspection.title} 2"]
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
    assert "<script" not in page
    assert "&lt;script&gt;a" in page
    assert page.count("<tr>") >= len(compared.table)
    assert "b &amp; c" in compared._repr_html_()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ArtifactError):
        compared.to_html(tmp_path / "missing" / "c.html")


def test_bad_arguments(portable: etviz.Inspection) -> None:
    with pytest.raises(UsageError, match="two or more"):
        etviz.compare(portable)
    with pytest.raises(UsageError, match="found str"):
        etviz.compare(portable, "other")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="2 different names"):
        etviz.compare(portable, portable, labels=["a", "a"])
    with pytest.raises(UsageError, match="by must be a metric"):
        etviz.compare(portable, portable).worst(by="latency")
