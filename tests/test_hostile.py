# pyright: reportPrivateUsage=false
"""Files whose operators end the process: every question says so, and the process that asks stays alive."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import etviz
from etviz.errors import BackendRefusedError, EtvizError, ExecutionError
from etviz.loading import foreign as wall
from etviz.pipeline.lower import lower
from tests.calls.decoders import Decoder, driver
from tests.fuzz.test_crafted import rewrite, with_graph, with_record
from tests.programs import Executed
from tests.test_isolation import copies
from tests.test_values_not_caches import INSIDE, MEMBERS, QUANTIZED, delegate_of

Make = Callable[[str], Executed]
Files = dict[str, Any]
_OPERATOR = """
import os, pathlib, signal
import torch

def relu(x):
    if os.getpid() == {kernel}:
        pathlib.Path({here!r}).touch()
        raise RuntimeError("evaluated in the kernel")
    if pathlib.Path({armed!r}).exists():
        os.kill(os.getpid(), signal.SIGSEGV)
    return x.relu()

library = torch.library.Library("etviz_hostile", "DEF")
library.define("relu(Tensor self) -> Tensor")
library.impl("relu", relu, "CompositeExplicitAutograd")
"""
HOSTILE = "etviz_hostile.relu.default"


class Trap:
    """An operator that ends any process but this one, once it is `set`; `sprung_here` if this one called it."""

    def __init__(self, folder: Path) -> None:
        self._armed, self._here = folder / "armed", folder / "here"

    def set(self) -> None:
        self._armed.touch()

    def unset(self) -> None:
        self._armed.unlink(missing_ok=True)

    @property
    def sprung_here(self) -> bool:
        return self._here.exists()


@pytest.fixture(scope="module")
def armory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trap]:
    """Torch registers an operator once, so all tests of this process share it."""
    folder = tmp_path_factory.mktemp("trap")
    told = {"kernel": os.getpid(), "here": str(folder / "here"), "armed": str(folder / "armed")}
    (folder / "etviz_hostile_operators.py").write_text(_OPERATOR.format(**told))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        importlib.import_module("executorch.extension.pybindings.portable_lib")
        before = list(etviz.options.operator_libraries)
        etviz.options.operator_libraries = ["etviz_hostile_operators"]
        yield Trap(folder)
        etviz.options.operator_libraries = before


@pytest.fixture
def trap(armory: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    """A machine that has seen nothing yet, and an operator that it should not call."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(etviz.options, "isolation", "auto")
    monkeypatch.setattr(etviz.options, "look_inside", "never")
    yield armory
    armory.unset()
    assert not armory.sprung_here, "evaluated in this process"


def _first_relu(graph: dict[str, Any]) -> None:
    """The first operator of this kind, also inside a delegate."""
    graphs = [graph, *(inner for _, inner in graph["subgraphs"])]
    next(item for each in graphs for item in each["nodes"] if item[1] == "aten.relu.default")[1] = HOSTILE


def _float_model(source: Path, target: Path) -> Path:
    return with_record(source, target, lambda body: _first_relu(body["references"][0][1]))


def _stage(member: str) -> Callable[[Path, Path], Path]:
    def edit(name: str, data: bytes) -> bytes:
        if name != member:
            return data
        text = data.decode()
        for relu in ("torch.ops.aten.relu.default", "executorch.exir.dialects.edge.ops.aten.relu.default"):
            text = text.replace(relu, f"torch.ops.{HOSTILE}", 1)
        assert HOSTILE in text
        return text.encode()

    return lambda source, target: rewrite(source, target, edit)


PLACES: dict[str, tuple[str, Callable[[Path, Path], Path]]] = {
    "lowered graph": ("record", lambda source, target: with_graph(source, target, _first_relu)),
    "float model": ("record", _float_model),
    "exported program": ("etrecord", _stage("exported_program")),
    "edge program": ("etrecord", _stage("edge_dialect_exported_program/forward")),
}
"""Which file has the operator, and how it gets there."""


def _pane(inspection: etviz.Inspection, row: int) -> Any:
    """What the view's pane of a row receives."""
    widget, sent = inspection.widget(), list[Any]()
    widget.send = lambda content, buffers=None: sent.append(content)
    widget._handle_custom_msg({"id": 1, "method": "tensor", "params": {"row": row}}, [])
    widget.close()
    return _answered(sent[-1])


def _job(inspection: etviz.Inspection, name: str, params: dict[str, Any]) -> Any:
    """What the view receives for longer work."""
    widget, sent = inspection.widget(), list[Any]()
    widget._jobs._send = lambda content: sent.append(content)
    widget._handle_custom_msg({"id": 1, "method": name, "params": params}, [])
    assert widget._jobs.wait(120)
    widget.close()
    return _answered(sent[-1])


def _answered(message: dict[str, Any]) -> Any:
    if "error" in message:
        raise ExecutionError(message["error"]["message"])
    return message["result"]


Ask = Callable[[etviz.Inspection, Path], Any]
LOWERED: dict[str, Ask] = {
    "attribution": lambda item, _: item.attribution(),
    "what_if": lambda item, _: item.what_if(0),
    "quantization": lambda item, _: item.quantization(),
    "ladder": lambda item, _: item.ladder(),
    "zoom": lambda item, _: item.zoom(delegate_of(item)),
    "repro": lambda item, folder: item.repro(delegate_of(item), folder / "repro"),
    "in the view": lambda item, _: _job(item, "attribution", {}),
    "study": lambda item, folder: _studied(item, folder),
}
"""Questions that evaluate the lowered graph."""
SHOWN: dict[str, Ask] = {
    "display": lambda item, _: item._repr_mimebundle_(),
    "report": lambda item, folder: item.to_html(folder / "report.html"),
    "report with tensors": lambda item, folder: item.to_html(folder / "all.html", tensors="worst"),
    "pane": lambda item, _: [_pane(item, row) for row in range(len(item.gaps))],
    "tensors": lambda item, _: [item.tensors(row) for row in range(len(item.gaps))],
    "row": lambda item, _: [item.row(0).histogram(), item.row(0).scatter(), item.row(0).inputs],
    "diagnosis": lambda item, _: item.diagnosis(look_inside=False),
    "summary": lambda item, _: item.summary(),
}
"""What needs no evaluation if the load kept the references; else it fails as the others do."""
ASKED_OF: dict[str, dict[str, Ask]] = {
    "lowered graph": LOWERED,
    "float model": {name: LOWERED[name] for name in ("quantization", "ladder")},
    "exported program": {"ladder": LOWERED["ladder"], "against": lambda item, _: item.against("exported_program")},
    "edge program": {"against": lambda item, _: item.against("edge")},
}


def _studied(item: etviz.Inspection, folder: Path) -> etviz.Study:
    """A study goes on to its end; its table says why nothing was compared."""
    place = folder / f"study-{len(list(folder.glob('study-*')))}"
    study = etviz.study(item.analysis.findings.files["pte"], [tuple(item.row(0).inputs)], folder=place)
    if study.inputs["status"].tolist() != ["compared"]:
        assert study.table.empty
        raise ExecutionError(study.inputs["reason"].iloc[0])
    return study


def _hostile(place: str, executed: Make, folder: Path) -> Files:
    kind, plant = PLACES[place]
    files: Files = copies(executed("digits_int8"), folder)
    whole = Path(files[kind]).rename(folder / f"whole-{kind}")
    plant(whole, folder / executed("digits_int8").path(kind).name)
    return files


def _told(ask: Ask, item: etviz.Inspection, folder: Path) -> str:
    """The error of a question, if it has one."""
    try:
        ask(item, folder)
    except EtvizError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_an_operator_that_ends_the_process(
    place: str, executed: Make, trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One clear error for each question, no evaluation here, and answers again once the operator behaves."""
    files = _hostile(place, executed, tmp_path)
    inputs = executed("digits_int8").inputs
    found = etviz.load(**files, inputs=inputs)
    before, asked, ask_child = found.summary(), Counter[str](), wall.WORKER.run

    def note(request: dict[str, Any], *rest: Any, **named: Any) -> dict[str, Any]:
        asked.update(re.findall(r"etviz[\w.]+:\w+", json.dumps(request["body"]))[:1])
        return ask_child(request, *rest, **named)

    monkeypatch.setattr(wall.WORKER, "run", note)
    trap.set()
    for name, ask in ASKED_OF[place].items():
        with pytest.raises(EtvizError, match=r"SIGSEGV.*isolation") as failed:
            ask(found, tmp_path)
        assert len(str(failed.value)) < 1200, name
    asked.clear()
    told = {name: _told(ask, found, tmp_path) for name, ask in SHOWN.items()}
    assert [name for name, text in told.items() if text and "SIGSEGV" not in text] == []
    assert all(count <= len(SHOWN) for count in asked.values()), "what ended the child is asked again for each row"
    assert found.summary() == before
    trap.unset()
    for ask in ASKED_OF[place].values():
        with contextlib.suppress(BackendRefusedError):  # XNNPACK has no such operator
            ask(found, tmp_path)


@pytest.mark.parametrize(("name", "members"), [("encoder", MEMBERS | INSIDE), ("digits_int8", QUANTIZED)])
def test_no_member_evaluates_files_of_others_here(
    name: str,
    members: dict[str, Any],
    executed: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refuse_operators: Callable[[], None],
) -> None:
    """Every member of the public surface, also of what was loaded without introduced gaps."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(etviz.options, "isolation", "auto")
    monkeypatch.setattr(etviz.options, "look_inside", "never")
    files = copies(executed(name), tmp_path)
    refuse_operators()
    for introduced in (False, True):
        found = etviz.load(**files, inputs=executed(name).inputs, introduced=introduced)
        for ask in members.values():
            ask(found)
        found.compute_introduced()


class Rectified(Decoder):
    """A decoder with an operator that can be exchanged."""

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(tokens, input_pos, mask).relu()


def test_tokens_of_a_program_that_ends_the_process(trap: Trap, tmp_path: Path) -> None:
    """`decode` evaluates it; `invariants` runs the program, and `lint_calls` only reads it."""
    (made := tmp_path / "made").mkdir()
    lower(Rectified().eval(), driver([1], 0), made, strict=False)
    (folder := tmp_path / "others").mkdir()
    pte = shutil.copy(made / "model.pte", folder)
    shutil.copy(made / "etrecord.bin", folder)
    with_graph(made / "model.etviz", folder / "model.etviz", _first_relu)
    trap.set()
    with pytest.raises(ExecutionError, match=r"SIGSEGV.*isolation"):
        etviz.decode(pte, [[3, 1, 4]], steps=2, driver=driver)
    assert etviz.invariants(pte, [[3, 1, 4]], driver=driver).holds
    calls = [driver([token], at) for at, token in enumerate([3, 1, 4])]
    assert etviz.lint_calls(calls, driver=driver, program=pte).empty
    trap.unset()
    assert etviz.decode(pte, [[3, 1, 4]], steps=2, driver=driver).steps["agrees"].all()
