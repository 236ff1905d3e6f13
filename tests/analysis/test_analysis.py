"""What an Inspection is made of: one address for rows, tables of one piece, views that hear of every change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from executorch.runtime import Runtime
from torch.utils import _pytree as pytree

import etviz
from etviz.analysis.analysis import Analysis, Change
from etviz.errors import UsageError
from etviz.view.widget.widget import InspectionWidget
from tests.oracles import same
from tests.programs import Executed
from tests.shifted import load_shifted

Programs = Callable[[str], Executed]


def load(program: Executed, **options: Any) -> etviz.Inspection:
    """An Inspection that no other test has."""
    files: dict[str, Any] = {kind: program.path(kind) for kind in ("etrecord", "debug_buffer", "pte", "record")}
    return etviz.load(program.path("etdump"), **files, **options)


@pytest.fixture(scope="module")
def residual(executed: Programs) -> etviz.Inspection:
    """Zoomed into its first delegate."""
    inspection = load(executed("residual_cnn"))
    inspection.zoom(0)
    return inspection


def calls(inspection: etviz.Inspection) -> list[int]:
    """Rows of delegate calls."""
    gaps = inspection.gaps
    rows = gaps.index[gaps["kind"] == "delegate"].tolist()
    assert rows
    return rows


def made(folder: Path) -> Path:
    """A new folder."""
    folder.mkdir()
    return folder


def test_introduced_gaps_that_come_later_are_everywhere(executed: Programs, tmp_path: Path) -> None:
    program = executed("residual_cnn")
    now, later = (
        load_shifted(program, made(tmp_path / str(introduced)), instruction=0, by=0.5, introduced=introduced)
        for introduced in (True, False)
    )
    assert later.first_divergence is None
    assert "Worst introduced" not in later.summary()
    later.compute_introduced()
    pd.testing.assert_frame_equal(later.gaps, now.gaps)
    assert later.summary() == now.summary()
    assert later.first_divergence is not None
    assert now.first_divergence is not None
    pd.testing.assert_series_equal(later.first_divergence, now.first_divergence)


def test_a_row_of_another_table_is_refused(residual: etviz.Inspection) -> None:
    for other in (residual.coverage.iloc[1], residual.events.iloc[2]):
        with pytest.raises(UsageError, match="row must be a name"):
            residual.tensors(other)
    foreign = residual.gaps.iloc[1]
    foreign["op"] = "aten::mul.out"
    with pytest.raises(UsageError, match="does not have"):
        residual.tensors(foreign)
    for name, value in (("output", 7), ("event_block", 99), ("rmse", 1.0), ("shape", (9, 9))):
        other = residual.outputs.iloc[0]
        other[name] = value
        with pytest.raises(UsageError, match="a row of this Inspection's outputs, found output"):
            residual.tensors(other)


@pytest.mark.parametrize("name", ["residual_cnn", "many_outputs", "encoder"])
def test_a_row_of_outputs_gives_its_tensors(name: str, executed: Programs) -> None:
    """The runtime's are the bits that ExecuTorch returns; the reference's those of the model, but for rounding."""
    program = executed(name)
    method = Runtime.get().load_program(program.path("pte")).load_method("forward")
    assert method is not None
    returned = method.execute(
        [value for value in pytree.tree_leaves(program.inputs) if isinstance(value, torch.Tensor)]
    )
    eager = pytree.tree_leaves(program.model(*program.inputs))
    outputs = program.inspection.outputs
    assert len(outputs) == len(eager) == len(returned)
    for at in range(len(outputs)):
        row = outputs.iloc[at]
        reference, runtime = program.inspection.tensors(row)
        assert same(runtime, returned[row["output"]])
        torch.testing.assert_close(reference, eager[row["output"]], rtol=1e-4, atol=1e-5)
        found = (reference.double() - runtime.double()).square().mean().sqrt()
        assert found.item() == pytest.approx(row["rmse"], rel=1e-6, abs=1e-12)


def test_a_row_is_its_index_or_the_row_itself(residual: etviz.Inspection) -> None:
    inside = residual.zoom(0)
    own = len(residual.gaps)
    for row in residual.gaps.index:
        assert torch.equal(residual.tensors(residual.gaps.loc[row])[1], residual.tensors(row)[1])
    for row in inside.gaps.index:
        expected = inside.tensors(row)[1]
        assert torch.equal(residual.tensors(own + row)[1], expected)
        assert torch.equal(residual.tensors(inside.gaps.loc[row])[1], expected)
    for name in ("#0", "#0[0]", "#0@0", "#0[0]@0"):
        assert torch.equal(residual.tensors(name)[1], residual.tensors(0)[1])
    shares = residual.attribution()
    assert torch.equal(residual.tensors(shares.iloc[0])[1], residual.tensors(shares.index[0])[1])


@pytest.mark.parametrize("row", [-1, 10_000, 1.5, None, "0", "#999", "#0[9]", True])
def test_what_is_no_row_is_refused(row: Any, residual: etviz.Inspection) -> None:
    with pytest.raises(UsageError, match=r"row must be a|there is no row"):
        residual.tensors(row)


def test_rows_inside_of_delegates_are_drawn(residual: etviz.Inspection) -> None:
    row = len(residual.gaps)
    axes = residual.plot.histogram(row)
    name = residual.row(row).name
    assert name in axes.get_title()
    for draw in (residual.plot.scatter, residual.plot.error_map, residual.plot.histogram, residual.plot.channels):
        assert name in draw(row).get_title()


def test_tables_are_the_users_own(residual: etviz.Inspection) -> None:
    before = residual.summary()
    for table in (residual.gaps, residual.coverage, residual.outputs):
        assert len(table)
        table["status"] = "nonsense"
    assert residual.summary() == before
    for table in (residual.gaps, residual.coverage, residual.outputs):
        assert "nonsense" not in set(table["status"])


def test_an_open_view_hears_of_what_python_computes(executed: Programs) -> None:
    inspection = load(executed("residual_cnn"), introduced=False)
    widgets = [InspectionWidget(inspection.view) for _ in range(2)]
    sent: list[list[Any]] = [[], []]
    for widget, messages in zip(widgets, sent, strict=True):
        widget.send = lambda content, buffers=None, messages=messages: messages.append(content)
    inspection.compute_introduced()
    inspection.attribution()
    inspection.zoom(calls(inspection)[0])
    changed = {"event": "changed"}
    assert sent == [[changed] * 3] * 2
    inspection.zoom(calls(inspection)[0])
    assert sent == [[changed] * 3] * 2, "what was known already is no change"
    widgets[0].close()
    inspection.attribution()
    assert [len(messages) for messages in sent] == [3, 4]
    widgets[1].close()


def test_an_open_view_forgets_tensors_that_are_new(executed: Programs) -> None:
    inspection = load(executed("residual_cnn"), introduced=False)
    widget = InspectionWidget(inspection.view)
    answers: list[Any] = []
    widget.send = lambda content, buffers=None: answers.append(content)
    ask = {"id": "1", "method": "tensor", "params": {"row": 0}}
    widget._answer(widget, ask, [])  # pyright: ignore[reportPrivateUsage]
    widget._answer(widget, ask, [])  # pyright: ignore[reportPrivateUsage]
    assert widget._cached_tensor.cache_info().hits == 1  # pyright: ignore[reportPrivateUsage]
    inspection.compute_introduced()
    assert widget._cached_tensor.cache_info().currsize == 0  # pyright: ignore[reportPrivateUsage]
    widget.close()


def test_what_a_thread_holds_does_not_change(executed: Programs) -> None:
    """A zoom or introduced gaps put something new in place; whoever reads the old has all of the old."""
    analysis = load(executed("residual_cnn"), introduced=False).analysis
    inside, parts, tables = analysis.inside, list(analysis.rows.parts()), analysis.tables
    heard: list[Change] = []

    class Listener:
        def hear(self, change: Change) -> None:
            heard.append(change)

    listener = Listener()
    analysis.changed.connect(listener.hear)
    inner = analysis.zoom(0)
    analysis.compute_introduced()
    assert (inside, len(parts), tables.introduced) == ({}, 1, False)
    assert analysis.inside == {(0, 0): inner}
    assert len(list(analysis.rows.parts())) == 2
    assert analysis.tables.introduced
    assert heard == [Change("zoom", len(tables), len(inner.tables)), Change("introduced")]
    del listener
    analysis.attribution()
    assert len(heard) == 2, "whoever is gone is not kept"


def test_the_selection_follows_its_row_when_a_zoom_adds_others(executed: Programs) -> None:
    inspection = load(executed("residual_cnn"))
    own = len(inspection.gaps)
    first = len(inspection.zoom(calls(inspection)[0]).gaps)
    inspection.selected = own + first - 1
    inspection.zoom(calls(inspection)[1])
    assert inspection.selected == own + first - 1, "the new rows are behind it"
    inspection.analysis.changed.emit(Change("zoom", own, -first))
    assert inspection.selected == own - 1
    inspection.analysis.changed.emit(Change("zoom", own - 1, 2))
    assert inspection.selected == own + 1
    inspection.selected = 1
    inspection.zoom(calls(inspection)[1])
    assert inspection.selected == 1


def test_the_inside_is_the_same_inspection_again(residual: etviz.Inspection) -> None:
    inside = residual.zoom(0)
    assert residual.zoom(residual.gaps.loc[0]) is inside
    with pytest.raises(UsageError, match="inside the delegate call #0 already"):
        residual.zoom(len(residual.gaps))
    with pytest.raises(UsageError, match="delegate call"):
        inside.zoom(0)


def test_an_analysis_knows_no_view(executed: Programs) -> None:
    """It can be made, asked and dropped without traits."""
    analysis = Analysis(load(executed("residual_cnn")).analysis.findings)
    assert not hasattr(analysis, "traits")
    assert len(analysis.gaps) == len(analysis.tables)
