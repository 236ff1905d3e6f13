# pyright: reportPrivateUsage=false
"""What views ask for by name, and notes on rows, against Python's own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import etviz
from etviz.demo.planted import replace_once


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 6), torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Two, Path, etviz.Inspection]:
    folder = tmp_path_factory.mktemp("two")
    torch.manual_seed(0)
    model = Two().eval()
    return model, folder, etviz.debug(model, (torch.randn(2, 4),), "xnnpack", workdir=folder)


def asked(inspection: etviz.Inspection, monkeypatch: pytest.MonkeyPatch, method: str, **params: Any) -> dict[str, Any]:
    sent: list[dict[str, Any]] = []
    widget = inspection.widget()
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    monkeypatch.setattr(widget._jobs, "_send", sent.append)
    widget._handle_custom_msg({"id": 1, "method": method, "params": params}, [])
    assert widget._jobs.wait(300)
    (answer,) = [item for item in sent if item.get("id") == 1]
    return answer.get("result") or answer["error"]


def test_constants_are_the_models_and_those_of_the_program(ran: Any) -> None:
    model, _, inspection = ran
    found = inspection.row(0).constants.set_index("name")
    assert set(found.index) == {name for name, _ in model.named_parameters()}
    for name, value in model.named_parameters():
        assert found.loc[name, "shape"] == tuple(value.shape)
        assert found.loc[name, "rms"] == pytest.approx(float(value.detach().square().mean().sqrt()))
        assert found.loc[name, "pte"] == "same bytes"


def test_a_constant_that_differs_is_told(ran: Any, tmp_path: Path) -> None:
    model, folder, _ = ran
    right = model.first.weight.detach().numpy()
    wrong = right.copy()
    wrong[3] *= -1
    replace_once(folder / "model.pte", tmp_path / "model.pte", right, wrong, "the weights are")
    found = etviz.load(
        folder / "etdump.etdp",
        etrecord=folder / "etrecord.bin",
        debug_buffer=folder / "debug_buffer.bin",
        pte=tmp_path / "model.pte",
    )
    told = found.row(0).constants.set_index("name")["pte"]
    assert told["first.weight"].startswith("row 3 of first.weight is ×−1")
    assert told["last.weight"] == "same bytes"


def test_a_view_shows_what_python_gives(ran: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, inspection = ran
    monkeypatch.chdir(tmp_path)
    (payload, _) = inspection.widget().payload()
    assert payload["explanations"] == ["constants", "repro", "ladder", "suggest"]
    table = asked(inspection, monkeypatch, "explain", what="constants", row=0)
    frame = inspection.row(0).constants
    assert table["head"] == list(frame.columns)
    assert [row[0] for row in table["rows"]] == list(frame["name"])
    repro = asked(inspection, monkeypatch, "explain", what="repro", row=0)
    assert (tmp_path / "repro-0" / "repro.py").is_file()
    assert str(tmp_path / "repro-0") in repro["text"]
    ladder = asked(inspection, monkeypatch, "explain", what="ladder", row=0)
    assert set(inspection.ladder()["status"]) <= {"same", "rounding", "no partner"}
    assert ladder["rows"] == []
    assert ladder["text"].startswith("No value differs beyond its noise between two stages: ")
    fix = asked(inspection, monkeypatch, "explain", what="suggest", row=0)
    assert fix["title"] == "Suggested fix"
    assert fix["text"]
    assert "no explanation" in asked(inspection, monkeypatch, "explain", what="nothing", row=0)["message"]


def test_a_file_without_its_model_has_no_fix(ran: Any) -> None:
    _, folder, _ = ran
    payload, _ = etviz.load(folder).widget().payload()
    assert payload["explanations"] == ["constants", "repro", "ladder"]


def test_a_note_travels_with_a_report(ran: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, folder, _ = ran
    inspection = etviz.load(folder)
    asked(inspection, monkeypatch, "note", row=0, text=" <b>ask</b> upstream ")
    assert inspection.row(0).note == "<b>ask</b> upstream"
    inspection.zoom(0)
    last = len(inspection.analysis.rows) - 1
    inspection.row(last).note = "of the inside"
    payload, _ = inspection.widget().payload()
    assert payload["row_notes"] == {"0": "<b>ask</b> upstream", str(last): "of the inside"}
    page = inspection.to_html(tmp_path / "report.html").read_text("utf-8")
    listed = page[page.index("<h2>Notes</h2>") : page.index("</main>")]
    assert last > 0
    assert ": &lt;b&gt;ask&lt;/b&gt; upstream</li>" in listed
    assert "<b>ask" not in listed
    inspection.row(0).note = ""
    assert list(inspection.widget().payload()[0]["row_notes"]) == [str(last)]
    assert "must be a text" in asked(inspection, monkeypatch, "note", row=0, text=3)["message"]
    assert np.isfinite(inspection.gaps["rmse"]).all()
