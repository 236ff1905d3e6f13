"""What nobody foresaw is an error of etviz too: it names the step, and its cause is what happened."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import etviz
from etviz.analysis.tables import Tables
from etviz.cli import main
from etviz.errors import PairingError, UnexpectedError
from etviz.explain.attribution.linearize import Contribution
from etviz.inspection import Row
from tests.programs import Executed

Make = Callable[[str], Executed]


class Broken:
    """Whatever one asks of it fails."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(f"surprise: {name}")


def fail(*_: Any, **__: Any) -> Any:
    raise KeyError("surprise")


ASKED: dict[str, tuple[str, Callable[[etviz.Inspection, Path], Any]]] = {
    "attribution": ("attributing the error", lambda i, _: i.attribution()),
    "what_if": ("computing what the outputs would have been", lambda i, _: i.what_if(0)),
    "ladder": ("comparing the stages", lambda i, _: i.ladder()),
    "quantization": ("splitting the error of quantization", lambda i, _: i.quantization()),
    "zoom": ("zooming into a delegate", lambda i, _: i.zoom(0)),
    "look_inside": ("looking inside the delegates", lambda i, _: i.look_inside()),
    "repro": ("writing a repro", lambda i, folder: i.repro(0, folder / "repro")),
    "diagnosis": ("making the diagnosis", lambda i, _: i.diagnosis()),
    "ledger": ("making the ledger", lambda i, _: i.time.ledger()),
    "worst": ("ranking the rows", lambda i, _: i.worst()),
    "module_total": ("summing up a module", lambda i, _: i.module_total("")),
    "tensors": ("fetching the tensors of a row", lambda i, _: i.tensors(0)),
    "histogram": ("the tensors of a row", lambda i, _: Row(i, 0).histogram()),
    "row": ("finding a row", lambda i, _: i.row(0)),
    "plot.gaps": ("drawing a figure", lambda i, _: i.plot.gaps()),
    "plot.scatter": ("the tensors of a row", lambda i, _: i.plot.scatter(0)),
    "to_html": ("writing the report", lambda i, folder: i.to_html(folder / "a.html")),
    "to_chrome_trace": ("writing the trace", lambda i, folder: i.export.chrome_trace(folder / "a.json")),
    "to_model_explorer": ("for Model Explorer", lambda i, folder: i.export.model_explorer(folder / "a.json")),
}
STARTED: dict[str, tuple[str, str, Callable[[etviz.Inspection], Any]]] = {
    "study": ("studying the program", "runner.choose_tasks", lambda i: etviz.study(i, [])),
    "census": ("counting equal runs", "census.whole", lambda i: etviz.census(i, ())),
    "sweep": ("comparing the recipes", "sweep.choose_tasks", lambda _: etviz.sweep(None, {"a": {}}, [])),
    "suggest": ("searching a fix", "suggestion._made", lambda i: etviz.suggest(i)),
}


@pytest.mark.parametrize("name", ASKED)
def test_whatever_is_asked_of_an_inspection(
    name: str, executed: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, ask = ASKED[name]
    inspection = executed("counter").inspection
    assert inspection.analysis.findings.zoom is None
    monkeypatch.setattr(inspection.analysis.rows, "tables", Broken())
    with pytest.raises(UnexpectedError, match=f"while .*{step}") as caught:
        ask(inspection, tmp_path)
    assert caught.value.__cause__ is not None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", STARTED)
def test_whatever_is_started(name: str, executed: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    step, inside, start = STARTED[name]
    monkeypatch.setattr(f"etviz.evidence.{inside}", fail)
    with pytest.raises(UnexpectedError, match=f"while {step} .KeyError: 'surprise'.") as caught:
        start(executed("counter").inspection)
    assert isinstance(caught.value.__cause__, KeyError)


def test_arguments_that_there_are_not(executed: Make) -> None:
    """They are the caller's mistake, and a TypeError as everywhere."""
    inspection = executed("counter").inspection
    with pytest.raises(TypeError, match="unexpected keyword"):
        inspection.attribution(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        etviz.census("model.pte", (), colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize("verbose", [False, True])
def test_commands_show_the_trace_if_asked(
    verbose: bool, executed: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Tables, "limits", fail)
    monkeypatch.setattr(sys, "argv", ["etviz", "report", str(executed("counter").folder), *["--verbose"] * verbose])
    with pytest.raises(SystemExit) as end:
        main()
    shown = capsys.readouterr().err
    assert end.value.code == 2
    assert "unexpected happened while writing the report (KeyError: 'surprise')" in shown
    assert ("Traceback" in shown and "in fail" in shown) == verbose
    assert ("--verbose shows the trace" in shown) == (not verbose)


def test_a_difference_is_put_only_where_it_fits() -> None:
    """What is evaluated again may have another shape, or be no tensor."""
    contribution = Contribution(0, 0, 0, 1)
    contribution.measure(torch.ones(2, 3).double(), torch.zeros(2, 3).double())
    assert contribution.inject(torch.zeros(2, 3).double()).sum() == 6
    for value, found in ((torch.zeros(3, 2), r"\(3, 2\)"), (torch.zeros(3), r"\(3,\)"), (1.0, "float")):
        with pytest.raises(PairingError, match=rf"has (the shape )?{found} where the difference has \(2, 3\)"):
            contribution.inject(value)
    contribution = Contribution(0, 0, 0, 1)
    contribution.measure(torch.ones(4, dtype=torch.int64), torch.arange(4))
    assert contribution.inject(torch.arange(4)).tolist() == [1, 1, 1, 1]
    with pytest.raises(PairingError, match="has the shape"):
        contribution.inject(torch.arange(5))
