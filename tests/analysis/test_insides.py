"""The background look into delegates: begun by itself, waited for, ended with its Inspection, and what it explains."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

import etviz
from etviz.errors import UsageError
from etviz.pipeline.worker import WORKER
from etviz.tensors.metrics import METRICS
from tests.kinds.making import Made

Programs = Callable[[str], Made]


def _looking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "etviz-look-inside"]


def test_large_delegates_are_looked_into_in_the_background(made: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etviz.options, "look_inside", "always")
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
    with pytest.raises(UsageError, match="'auto' or 'always' or 'never'"):
        etviz.options.look_inside = "often"


def test_files_of_others_are_not_executed_unasked(
    made: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What etviz wrote here is zoomed into in the background; a copy of it is not, until somebody asks.

    To look at the view, to select a row in it, or to write a report is no such question.
    """
    model, inputs = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval(), (torch.randn(2, 4),)
    own, copied = tmp_path / "own", tmp_path / "copied"
    etviz.debug(model, inputs, partitioner=[XnnpackPartitioner()], workdir=own)
    shutil.copytree(own, copied)
    monkeypatch.setattr(etviz.options, "look_inside", "auto")
    asked: list[str] = []
    answer = WORKER.run
    monkeypatch.setattr(WORKER, "run", lambda request, *rest: asked.append(request["work"]) or answer(request, *rest))
    for folder in (own, copied):
        inspection = etviz.load(folder)
        for thread in _looking():
            thread.join()
        assert asked == (["inside"] if folder is own else [])
        asked.clear()
        answers = _viewed(inspection, tmp_path / "report.html")
        for thread in _looking():
            thread.join()
        assert all("result" in answer for answer in answers)
        assert asked == []
        (inside,) = inspection.look_inside()
        assert inside.faithful
        assert asked == ([] if folder is own else ["inside"])
        asked.clear()


def _viewed(inspection: etviz.Inspection, report: Path) -> list[dict[str, Any]]:
    """The answers to what the view asks by itself: when it opens, and when a row is selected."""
    inspection._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]
    widget, sent = inspection.widget(), list[dict[str, Any]]()
    widget.send = lambda content, buffers=None: sent.append(content)
    widget.selected = 0
    asked: tuple[tuple[str, dict[str, Any]], ...] = ("hello", {}), ("payload", {}), ("tensor", {"row": 0})
    for number, (method, params) in enumerate(asked):
        widget._handle_custom_msg({"id": number, "method": method, "params": params}, [])
    widget.close()
    inspection.to_html(report)
    return [content for content in sent if "id" in content]


def test_what_was_attributed_before_a_zoom_is_not_attributed_again(
    made: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspection = made("channels_last").load_own("exact")
    before = inspection.attribution()
    count = 0

    def attribute(*_: object, **__: object) -> None:
        nonlocal count
        count += 1

    monkeypatch.setattr("etviz.explain.attribution.shares.attribute", attribute)
    inspection.look_inside()
    pd.testing.assert_frame_equal(inspection.attribution(), before)
    assert count == 0


def test_small_delegates_without_an_error_are_left_alone(made: Programs) -> None:
    assert made("stack").load_own("exact").look_inside() == []


def test_the_look_ends_with_its_inspection(made: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    program = made("delegate_fp32")
    monkeypatch.setattr(etviz.options, "look_inside", "always")
    inspection = program.load_own("exact")
    started = time.monotonic()
    del inspection
    gc.collect()
    assert not [thread for thread in _looking() if thread.is_alive()]
    assert time.monotonic() - started < 10


def _severities(made: Programs) -> tuple[float, float]:
    """Of the worst operator inside of a delegate, and of the delegate."""
    whole = made("channels_last").load_own("exact")
    inside, outside = (float(part.gaps["introduced_severity"].max()) for part in (whole.zoom(0), whole))
    return inside, outside


@pytest.mark.parametrize("way", ["exact", "derived", "handles"])
def test_accumulated_rounding_is_no_culprit(made: Programs, way: str) -> None:
    """What the operators of a delegate make of each other's rounding is part of its noise."""
    inspection = made("channels_last").load_own(way)
    row = inspection.gaps.loc[0]
    assert row["introduced_rmse"] > 0
    assert 0 < row["introduced_severity"] < 3
    assert row["introduced_noise"] == pytest.approx(row["introduced_rmse"] / row["introduced_severity"])
    assert inspection.first_divergence is None
    assert "First divergence: none" in inspection.summary()


def test_a_fault_inside_is_not_explained_away(made: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same delegate with a threshold that one of its operators exceeds too."""
    monkeypatch.setitem(METRICS["severity"].thresholds, "float32", (0.9 * min(_severities(made)), 1e3))
    inspection = made("channels_last").load_own("exact")
    before = inspection.gaps
    inspection.look_inside()
    assert inspection.gaps.equals(before)
    divergent = inspection.first_divergence
    assert divergent is not None
    assert divergent["instruction"] == before["instruction"][0]
