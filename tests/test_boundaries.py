"""Whatever a user or a file gives, the outcome is a result or an error of etviz, soon."""

from __future__ import annotations

import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import etviz
from etviz.analysis.summary import judge_outputs
from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.events import Layout, TensorRef
from etviz.artifacts.files import only_user, parse_json
from etviz.artifacts.known_files import is_whole
from etviz.artifacts.program.program import Instruction, Method, ProgramValue, TensorSpec
from etviz.comparison.gap import MISMATCH
from etviz.errors import ArtifactError, EtvizError, UnexpectedError, UsageError, doing
from etviz.graph.ir import Graph, Input, Meta, Node, Ref
from etviz.graph.labels import source_line
from etviz.pairing.derive import derive
from tests.counting import calls
from tests.programs import Executed

Make = Callable[[str], Executed]


def changed(program: Executed, folder: Path, change: Callable[[Any], None]) -> dict[str, Any]:
    """A program's files, with another record."""
    files: dict[str, Any] = {kind: program.path(kind) for kind in ("etdump", "debug_buffer", "pte", "etrecord")}
    files["record"] = folder / "model.etviz"
    with zipfile.ZipFile(program.path("record")) as old, zipfile.ZipFile(files["record"], "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == "record.json":
                body = json.loads(data)
                change(body)
                data = json.dumps(body).encode()
            new.writestr(info, data)
    return files


def _node(body: Any) -> Any:
    return next(node for node in body["graphs"][0][1]["nodes"] if node[5] >= 0)


def _scale(body: Any) -> None:
    _node(body)[4][0][2] = 10**400


def _instruction(body: Any) -> None:
    _node(body)[5] = 1 << 31


def _integer(body: Any) -> None:
    _node(body)[2].append(1 << 70)


def _surrogate(body: Any) -> None:
    body["texts"][-1] = "\ud800"


def _shape(body: Any) -> None:
    _node(body)[4][0][1] = [1, 2, 3, 4, 5, 6, 7]


def _dtype(body: Any) -> None:
    _node(body)[4][0][0] = "int8"


CHANGES = (_scale, _instruction, _integer, _surrogate, _shape, _dtype)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_numbers_and_texts_of_a_record(change: Callable[[Any], None], executed: Make, tmp_path: Path) -> None:
    files = changed(executed("counter"), tmp_path, change)
    with pytest.raises(EtvizError) as caught:
        etviz.load(files.pop("etdump"), **files)
    assert not isinstance(caught.value, UnexpectedError), caught.value


def test_modules_without_end(executed: Make, tmp_path: Path) -> None:
    """A path of a hundred thousand modules is a tree no deeper than a program's."""

    def change(body: Any) -> None:
        body["texts"].append("a." * 100_000)
        for node in body["graphs"][0][1]["nodes"]:
            node[10] = len(body["texts"]) - 1

    files = changed(executed("counter"), tmp_path, change)
    found = etviz.load(files.pop("etdump"), **files)
    assert found.gaps["module"].str.len().max() < 1000
    assert len(found.analysis.modules.label) > 3


@pytest.mark.parametrize("name", ["etdump", "pte", "etrecord", "debug_buffer", "record"])
def test_paths_that_are_none(name: str, executed: Make) -> None:
    files: dict[str, Any] = {kind: executed("counter").path(kind) for kind in ("etdump", "pte", "debug_buffer")}
    files[name] = 3
    with pytest.raises(UsageError, match="path"):
        etviz.load(files.pop("etdump"), **files)


@pytest.mark.parametrize("name", ["etdump", "pte", "etrecord", "debug_buffer", "record"])
def test_pipes_are_not_waited_for(name: str, executed: Make, tmp_path: Path) -> None:
    files: dict[str, Any] = {kind: executed("counter").path(kind) for kind in ("etdump", "pte", "debug_buffer")}
    files[name] = tmp_path / "pipe"
    os.mkfifo(files[name])
    with pytest.raises(ArtifactError, match="pipe"):
        etviz.load(files.pop("etdump"), **files)


def test_an_unexpected_error_names_the_step() -> None:
    with pytest.raises(UnexpectedError, match=r"while counting \(KeyError") as caught, doing("counting"):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(UsageError, match="mine"), doing("counting"):
        raise UsageError("mine")


def test_json_of_no_program() -> None:
    for text in (b'{"a": "\\ud800", "b": NaN}', b'["\\ud800"]', b"[1" + b"0" * 400 + b"]", b"[" * 100_000):
        with pytest.raises(ValueError, match=r"surrogate|digits|deeply|values"):
            parse_json(text)
    assert parse_json(b'{"a": Infinity, "b": "\\ud83d\\ude00"}')["b"] == "\U0001f600"


def test_a_hundred_thousand_newlines() -> None:
    start = time.process_time()
    assert source_line("\n" * 100_000) == ""
    assert time.process_time() - start < 1


def test_tensors_that_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer of zeros is read once, however often it is named; and it is not named without end."""
    path = tmp_path / "debug_buffer.bin"
    path.write_bytes(bytes(16 << 20))
    refs = [TensorRef(Layout(6, (4 << 20,), (1,)), 0)] * 10_000
    read: list[int] = []
    view = np.frombuffer
    monkeypatch.setattr(np, "frombuffer", lambda data, *rest: read.append(len(data)) or view(data, *rest))
    assert DebugBuffer(path).is_blank(refs)
    assert sum(read) == 16 << 20
    with pytest.raises(ArtifactError, match="overlap"):
        DebugBuffer(path).require_whole(refs)


def _identical(count: int) -> tuple[Method, Graph]:
    spec = TensorSpec(6, (4,), (0,), "static", 0, None, False)
    values = tuple(ProgramValue("tensor", spec) for _ in range(count + 1))
    kernels = tuple(
        Instruction(0, i, "kernel", "aten::sin.out", (i, i + 1), (i,), (i + 1,), None, None) for i in range(count)
    )
    meta = Meta("float32", (4,))
    takes = [{"self": Ref(f"n{i - 1}" if i else "x")} for i in range(count)]
    nodes = [Node(f"n{i}", "aten.sin.default", (), takes[i], (meta,)) for i in range(count)]
    edge = Graph("forward", [Input("x", "user", meta=meta)], nodes, [Ref(nodes[-1].name)])
    return Method("forward", (), (), values, kernels, ()), edge


def test_identical_operators_are_paired_soon() -> None:
    """The pairing of operators that nothing tells apart is given up after work in proportion to their number."""
    few, many = (_identical(count) for count in (100, 400))
    counted = calls(lambda: derive(*few, {}))
    assert counted > 5_000
    assert calls(lambda: derive(*many, {})) < 8 * counted, "its square would be 16 times as much"


def test_two_runs_in_one_folder(executed: Make, tmp_path: Path) -> None:
    """The second one is refused; when the first has ended, it is not."""
    program = executed("counter")
    with only_user(tmp_path), pytest.raises(UsageError, match="another run works"):
        etviz.debug(program.model, program.inputs, workdir=tmp_path)
    with only_user(tmp_path):
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["debug_buffer", "etrecord"])
def test_a_file_that_is_cut_after_it_was_opened(kind: str, executed: Make, tmp_path: Path) -> None:
    """Its pages are gone, and reading them would end the process."""
    program = executed("residual_cnn")
    files: dict[str, Any] = {
        name: program.path(name) for name in ("etdump", "pte", "etrecord", "debug_buffer", "record")
    }
    files[kind] = shutil.copy(files[kind], tmp_path / files[kind].name)
    found = etviz.load(**files)
    assert len(found.gaps) > 3
    os.truncate(files[kind], 4096)
    for ask in (found.attribution, found.ladder):
        with pytest.raises(ArtifactError, match=f"{files[kind].name}: the file was cut .*after it was opened"):
            ask()


def test_a_program_that_changed_is_not_run_again(executed: Make, tmp_path: Path) -> None:
    program = executed("counter")
    files: dict[str, Any] = {name: program.path(name) for name in ("etdump", "etrecord", "debug_buffer", "record")}
    pte = Path(shutil.copy(program.path("pte"), tmp_path))
    found = etviz.load(**files, pte=pte)
    with pte.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"here")
    for ask in (lambda: etviz.census(found, program.inputs), lambda: etviz.study(found, [program.inputs])):
        with pytest.raises(ArtifactError, match=r"model\.pte: the program was changed"):
            ask()


_QUESTIONS: tuple[Callable[[etviz.Inspection], object], ...] = (
    etviz.Inspection.compute_introduced,
    etviz.Inspection.attribution,
    etviz.Inspection.ladder,
    etviz.Inspection.diagnosis,
    lambda found: found.against("exported"),
    lambda found: found.what_if([0]),
    lambda found: found.tensors(0),
)


@pytest.mark.parametrize("way", ["cut", "emptied", "overwritten", "taken away"])
@pytest.mark.parametrize("kind", ["debug_buffer", "etrecord", "record", "pte"])
def test_whatever_is_asked_after_a_file_changed(kind: str, way: str, executed: Make, tmp_path: Path) -> None:
    """One question after the other: an error that names the file, or the answer that it would have had."""
    files: dict[str, Any] = {
        name: Path(shutil.copy(executed("counter").path(name), tmp_path))
        for name in ("etdump", "pte", "etrecord", "debug_buffer", "record")
    }
    found = etviz.load(**files, introduced=False)
    if way == "taken away":
        files[kind].unlink()
    elif way == "overwritten":
        with files[kind].open("r+b") as file:
            file.write(bytes(files[kind].stat().st_size))
    else:
        os.truncate(files[kind], 10 if way == "cut" else 0)
    for question in _QUESTIONS:
        problem = ""
        try:
            question(found)
        except EtvizError as error:
            problem = str(error)
        assert not problem or ("after it was opened" in problem and way != "taken away")
    assert way != "taken away" or len(found.gaps) == len(executed("counter").inspection.gaps)


def test_a_flipped_bit_of_a_weight(executed: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive's own checksums tell of it; a file is read for that once."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program = executed("residual_cnn")
    files: dict[str, Any] = {name: program.path(name) for name in ("etdump", "pte", "debug_buffer", "record")}
    content = bytearray(program.path("etrecord").read_bytes())
    weights = next(iter(program.model.state_dict().values())).numpy().tobytes()[:64]
    at = bytes(content).find(weights)
    assert at > 0
    files["etrecord"] = tmp_path / "etrecord.bin"
    files["etrecord"].write_bytes(content)
    assert len(etviz.load(**files).gaps) > 3
    assert is_whole(files["etrecord"])
    content[at + 2] ^= 0x40
    files["etrecord"].write_bytes(content)
    assert not is_whole(files["etrecord"])
    with pytest.raises(ArtifactError, match=r"checksum of .* is wrong"):
        etviz.load(**files)


@pytest.mark.parametrize(
    ("side", "words"), [("runtime", "where the reference is not"), ("reference", "finite where the reference")]
)
def test_whose_nan_it_is_is_said(side: str, words: str, executed: Make) -> None:
    analysis = executed("counter").load().analysis
    outputs = analysis.tables.outputs.copy()
    outputs["status"], outputs[f"{side}_nan"] = MISMATCH, 3
    assert words in judge_outputs(outputs)[1]


@pytest.mark.parametrize(
    ("wrong", "total", "verdict"),
    [
        (1, 1, "The final output differs from the reference (rmse 2, SQNR 5.0 dB, 25 % of its elements within"),
        (1, 3, "1 of 3 final outputs differs from the reference (output 0: rmse 2,"),
        (2, 2, "Both final outputs differ from the reference (worst is output 0: rmse 2,"),
        (2, 3, "2 of 3 final outputs differ from the reference (worst is output 0: rmse 2,"),
        (3, 3, "All 3 final outputs differ from the reference (worst is output 0: rmse 2,"),
    ],
)
def test_how_many_outputs_differ_is_said(wrong: int, total: int, verdict: str, executed: Make) -> None:
    analysis = executed("counter").load().analysis
    outputs = pd.concat([analysis.tables.outputs.iloc[:1]] * total, ignore_index=True)
    outputs["output"] = range(total)
    assert judge_outputs(outputs)[0] == "ok"
    blamed = judge_outputs(outputs, [True, False, False], accused="#1 is wrong")[1]
    assert ", but #1 is wrong. 2 of 3 executions can't be judged: give inputs=" in blamed
    outputs.loc[: wrong - 1, ["matches", "allclose"]] = False
    outputs.loc[: wrong - 1, ["rmse", "sqnr_db"]] = 2.0, 5.0
    outputs.loc[: wrong - 1, "close"] = [0.25, 0.5, 0.75][:wrong]
    level, said = judge_outputs(outputs)
    assert said.startswith(verdict)
    assert level == "bad"
    assert " of run " not in said
    twice = pd.concat([outputs, outputs.assign(event_block=7, close=0.0)], ignore_index=True)
    assert "output 0 of run 1: " in judge_outputs(twice)[1]
    drawn = judge_outputs(outputs.iloc[:0], [False, False], "follow from random numbers")
    assert drawn[1] == "None of the 2 executions can be judged: their outputs follow from random numbers."
    assert "give inputs= for each execution" in judge_outputs(outputs.iloc[:0], [False, False])[1]


def test_what_rounding_explains_is_a_warning_only_where_it_is_amplified_or_leaves_nothing(executed: Make) -> None:
    """int8 that is as good as int8 can be, as against noise as large as the output."""
    outputs = executed("counter").load().analysis.tables.outputs.iloc[:1].copy()
    rounded = {"allclose": 0.5, "close": 0.5, "noise": 1e-3, "rmse": 2e-3, "rel_l2": 1e-2, "grows_at": ""}
    outputs[[*rounded]] = pd.DataFrame([rounded], index=outputs.index)
    for amplification, rel_l2, expected in [(2.0, 1e-2, "ok"), (300.0, 1e-2, "warn"), (2.0, 5.0, "warn")]:
        level, said = judge_outputs(outputs.assign(amplification=amplification, rel_l2=rel_l2))
        assert "as much as rounding in this precision explains" in said
        assert level == expected
    assert judge_outputs(outputs.assign(amplification=2.0), accused="#1 adds")[0] == "warn"
