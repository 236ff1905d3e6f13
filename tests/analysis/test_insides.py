"""The background look into delegates: begun by itself, waited for, ended with its Inspection, and what it explains."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest

import etviz
from etviz.errors import UsageError
from etviz.tensors.metrics import METRICS
from tests.kinds.making import Made

Programs = Callable[[str], Made]


def _looking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "etviz-look-inside"]


def test_large_delegates_are_looked_into_in_the_background(made: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etviz.options, "look_inside", "auto")
    inspection = made("delegate_fp32").load_own("exact")
    (thread,) = _looking()
    thread.join()
    assert list(inspection.analysis.inside) == [(0, 0)], "nobody asked for it"
    (inside,) = inspection.look_inside()
    assert inside is inspection.zoom(0)
    assert inside.faithful is True
    assert len(inside.gaps) == 6
    assert not _looking()


def test_nothing_is_begun_if_that_is_not_wanted(made: Programs) -> None:
    inspection = made("delegate_fp32").load_own("exact")
    assert not _looking()
    assert inspection.analysis.inside == {}
    (inside,) = inspection.look_inside()
    assert inside is inspection.zoom(0)
    with pytest.raises(UsageError, match="'auto' or 'never'"):
        etviz.options.look_inside = "always"


def test_small_delegates_without_an_error_are_left_alone(made: Programs) -> None:
    assert made("stack").load_own("exact").look_inside() == []


def test_the_look_ends_with_its_inspection(made: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    program = made("delegate_fp32")
    monkeypatch.setattr(etviz.options, "look_inside", "auto")
    inspection = program.load_own("exact")
    started = time.monotonic()
    del inspection
    gc.collect()
    assert not [thread for thread in _looking() if thread.is_alive()]
    assert time.monotonic() - started < 10


def _severities(made: Programs) -> tuple[float, float]:
    """Of the delegate, which is off by more roundings than any of its operators: how many depends on the processor."""
    whole = made("channels_last").load_own("exact")
    inside, outside = (float(part.gaps["introduced_severity"].max()) for part in (whole.zoom(0), whole))
    assert outside > 1.1 * inside > 0
    return inside, outside


@pytest.mark.parametrize("way", ["exact", "derived"])
def test_accumulated_rounding_is_no_culprit(made: Programs, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A delegate whose operators are each off by less than it is, with a threshold between the two."""
    inside, outside = _severities(made)
    monkeypatch.setitem(METRICS["severity"].thresholds, "float32", ((inside + outside) / 2, 1e3))
    inspection = made("channels_last").load_own(way)
    before = inspection.gaps.loc[0]
    assert before["introduced_severity"] == pytest.approx(outside, rel=0.1)
    divergent = inspection.first_divergence
    assert divergent is not None
    assert divergent["instruction"] == before["instruction"]
    inspection.look_inside()
    row = inspection.gaps.loc[0]
    assert row["reason"].startswith("accumulated rounding of 4 operators")
    assert row["introduced_noise"] == row["introduced_rmse"] == before["introduced_rmse"]
    assert row["introduced_severity"] == pytest.approx(1.0)
    assert inspection.first_divergence is None
    assert "First divergence: none" in inspection.summary()


def test_a_fault_inside_is_not_explained_away(made: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same delegate with a threshold that one of its operators exceeds too."""
    inside, _ = _severities(made)
    monkeypatch.setitem(METRICS["severity"].thresholds, "float32", (0.95 * inside, 1e3))
    inspection = made("channels_last").load_own("exact")
    before = inspection.gaps
    inspection.look_inside()
    assert inspection.gaps.equals(before)
    divergent = inspection.first_divergence
    assert divergent is not None
    assert divergent["instruction"] == before["instruction"][0]
