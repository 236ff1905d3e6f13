"""Metrics of the user's own, and upstream's comparators: a column everywhere, and harmless where they fail."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from executorch.devtools.inspector.numerical_comparator import L1Comparator, NumericalComparatorBase

import etviz
from etviz.analysis.analysis import Analysis
from etviz.errors import UsageError
from etviz.gate import check
from etviz.gate.rules import Rules
from etviz.tensors.custom_metrics import CustomMetrics
from etviz.view.payload.program_payload import build_payload
from tests.programs import Executed

Get = Callable[[str], Executed]


class Median(NumericalComparatorBase):
    """Median of the absolute differences of what a preprocessing doubled."""

    def preprocessing(self, mapping: Any) -> Any:
        return {(h, 2 * a.double()): (k, 2 * b.double()) for (h, a), (k, b) in mapping.items()}

    def element_compare(self, a: Any, b: Any) -> float:
        return float((a - b).abs().median())


class OfInspector(NumericalComparatorBase):
    """A comparator that needs upstream's Inspector."""

    def element_compare(self, a: Any, b: Any) -> float:
        return float(len(self.inspector.event_blocks))  # pyright: ignore[reportOptionalMemberAccess]


def test_a_comparator_without_its_inspector_says_so(executed: Get) -> None:
    found = etviz.load(executed("residual_cnn").folder, metrics=[OfInspector]).gaps
    assert found["OfInspector"].isna().all()
    assert found["reason"].str.contains("reads event_blocks of an Inspector, and has none").all()
    inspector: Any = type("Held", (), {"event_blocks": [1, 2, 3]})()
    assert (
        etviz.load(executed("residual_cnn").folder, metrics=[OfInspector(inspector)]).gaps["OfInspector"] == 3
    ).all()


def test_a_registered_metric_is_a_column_everywhere(executed: Get) -> None:
    program = executed("encoder")
    etviz.metrics.register("l1_again", lambda r, q: (r - q).abs().sum(), higher_is_better=False, unit="V")
    etviz.metrics.register("mse_blocks", lambda r, q: (r - q) ** 2, higher_is_better=False, reduce="mean")
    inspection = program.load()
    gaps = inspection.gaps
    np.testing.assert_allclose(gaps["l1_again"], gaps["l1"], rtol=1e-9)
    np.testing.assert_allclose(gaps["mse_blocks"], gaps["mse"], rtol=1e-9)
    np.testing.assert_allclose(gaps["introduced_l1_again"], gaps["introduced_l1"], rtol=1e-9)
    np.testing.assert_allclose(inspection.outputs["l1_again"], inspection.outputs["l1"], rtol=1e-9)
    assert list(inspection.worst(3, "l1_again").index) == list(inspection.worst(3, "l1").index)
    shown = {column["name"]: column for column in build_payload(inspection.analysis)[0]["columns"]}
    assert shown["l1_again"]["better"] == "low"
    assert "introduced_l1_again" in shown
    limits = {"max_l1_again": float(gaps["l1"].median())}
    failed = check(inspection.analysis, Rules().with_flags(limits)).failures
    assert len([case for case in failed if case.row is not None]) == int((gaps["l1"] > gaps["l1"].median()).sum())
    table = etviz.compare(inspection, program.load(), labels=["a", "b"]).table
    assert {"l1_again.a", "introduced_l1_again.b"} <= set(table)


def test_an_inspection_from_before_has_no_such_column(executed: Get) -> None:
    program = executed("encoder")
    before = program.load()
    etviz.metrics.register("late", lambda r, q: 1.0, higher_is_better=True)
    assert "late" not in before.gaps
    after = program.load()
    assert (after.gaps["late"] == 1.0).all()
    assert "late.old" in etviz.compare(before, after, labels=["old", "new"]).table


def test_polarity_decides_what_is_worst(executed: Get) -> None:
    etviz.metrics.register("agreement", lambda r, q: -(r - q).abs().max(), higher_is_better=True)
    inspection = executed("encoder").load()
    assert inspection.worst(1, "agreement").index[0] == inspection.worst(1, "max_abs").index[0]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda r, q: 1 / 0, "ZeroDivisionError"),
        (lambda r, q: math.nan, "returned NaN"),
        (lambda r, q: r, "numbers, one is expected"),
        (lambda r, q: "much", "a str"),
    ],
)
def test_a_metric_that_fails_says_so(executed: Get, function: Callable[..., Any], said: str) -> None:
    program = executed("plain_cnn")
    plain = program.inspection.gaps
    etviz.metrics.register("broken", function, higher_is_better=False)
    inspection = program.load()
    gaps = inspection.gaps
    several = gaps[gaps["shape"].map(math.prod) > 1]
    assert several["broken"].isna().all()
    assert several["reason"].str.contains(said).all()
    assert gaps["rmse"].equals(plain["rmse"])
    assert any("broken" in note and said in note for note in inspection.analysis.digest.notes)


def test_a_slow_metric_is_left_out_after_a_while() -> None:
    metric = etviz.metrics.register("slow", lambda r, q: sum(range(200_000)), higher_is_better=False)
    custom = CustomMetrics([metric], patience=1e-9)
    first, _ = custom.measure(torch.zeros(2), torch.zeros(2))
    second, said = custom.measure(torch.zeros(2), torch.zeros(2))
    assert first["slow"] > 0
    assert math.isnan(second["slow"])
    assert "had taken" in said[0]


def test_blocks_leave_out_what_is_not_finite_and_preprocessing_comes_first() -> None:
    metric = etviz.metrics.register(
        "peak", lambda r, q: np.abs(r - q), higher_is_better=False, reduce="max", preprocessing=lambda t: t.float() * 3
    )
    r, q = torch.tensor([1.0, math.nan, 5.0, 7.0]), torch.tensor([2.0, 9.0, 5.0, math.inf])
    assert CustomMetrics([metric]).measure(r, q)[0] == {"peak": 3.0}


def test_upstream_comparators_in_load(executed: Get) -> None:
    inspection = executed("encoder").load(metrics=[Median, L1Comparator()])
    gaps = inspection.gaps
    np.testing.assert_allclose(gaps["L1Comparator"], gaps["l1"], rtol=1e-9)
    row: Any = gaps["rmse"].idxmax()
    reference, runtime = inspection.tensors(row)
    assert gaps["Median"][row] == pytest.approx(float(2 * (reference.double() - runtime.double()).abs().median()))
    assert "Median" not in executed("encoder").load().gaps, "only what is registered is in every table"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("rmse", {}),
        ("op", {}),
        ("two words", {}),
        ("introduced_x", {}),
        ("fine", {"function": 3}),
        ("fine", {"higher_is_better": "no"}),
        ("fine", {"reduce": "median"}),
        ("fine", {"preprocessing": 1}),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, changes: dict[str, Any]) -> None:
    given = {"function": lambda r, q: 0.0, "higher_is_better": False} | changes
    with pytest.raises(UsageError):
        etviz.metrics.register(name, given.pop("function"), **given)
    assert "fine" not in etviz.metrics


def test_metrics_must_be_metrics(executed: Get) -> None:
    for wrong in (["nothing"], "rmse", [3], [Analysis]):
        with pytest.raises(UsageError):
            executed("plain_cnn").load(metrics=wrong)
    with pytest.raises(UsageError):
        etviz.metrics.unregister("rmse")
