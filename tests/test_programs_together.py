"""Programs that belong together, such as an encoder and a decoder, are the methods of one Inspection."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import etviz
from etviz.cli.app import app
from etviz.errors import UsageError
from tests.programs import Executed

Get = Callable[[str], Executed]


def _files(program: Executed) -> dict[str, Any]:
    return {kind: program.path(kind) for kind in ("etdump", "debug_buffer", "pte", "etrecord", "record")}


@pytest.fixture
def together(executed: Get) -> etviz.Inspection:
    return etviz.load({"encoder": _files(executed("encoder")), "counter": _files(executed("counter"))})


def test_each_program_is_a_method(together: etviz.Inspection, executed: Get, tmp_path: Path) -> None:
    other = together.method("counter")
    assert together.methods == other.methods == ["encoder", "counter"]
    assert other is together.method("counter")
    assert other.method("encoder") is together
    for name, found in (("encoder", together), ("counter", other)):
        pd.testing.assert_frame_equal(found.gaps, etviz.load(**_files(executed(name))).gaps)
        assert found.summary().startswith(etviz.load(**_files(executed(name))).summary().splitlines()[0])
    payload, _ = together.widget().payload()
    assert (payload["method"], payload["methods"]) == ("encoder", ["encoder", "counter"])
    assert together.to_html(tmp_path / "report.html").stat().st_size > 0


@pytest.mark.parametrize(
    ("given", "named", "problem"),
    [
        ({}, {}, "a dict of programs by name"),
        ({"a": {"etdmp": "x"}}, {}, "a: load has no argument 'etdmp'"),
        ({"a": "x"}, {"pte": "model.pte"}, "pte= belongs to one program"),
    ],
)
def test_bad_programs_are_refused(given: Any, named: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        etviz.load(given, **named)


def test_an_unknown_program_is_named(together: etviz.Inspection) -> None:
    with pytest.raises(UsageError, match="method must be one of encoder, counter"):
        together.method("decoder")


@pytest.fixture
def folder(executed: Get, tmp_path: Path) -> Path:
    """Files that begin with the names of their programs."""
    for name in ("encoder", "counter"):
        for path in _files(executed(name)).values():
            shutil.copy(path, tmp_path / (f"{name}.pte" if path.suffix == ".pte" else f"{name}_{path.name}"))
    return tmp_path


def test_a_folder_of_programs(folder: Path, together: etviz.Inspection) -> None:
    found = etviz.load(folder)
    assert found.methods == ["counter", "encoder"]
    for name in ("counter", "encoder"):
        pd.testing.assert_frame_equal(found.method(name).gaps, together.method(name).gaps)
    assert etviz.load(folder, method="encoder").summary() == found.method("encoder").summary()
    with pytest.raises(UsageError, match="method must be one of counter, encoder"):
        etviz.load(folder, method="decoder")


def test_a_folder_of_programs_on_the_command_line(folder: Path, together: etviz.Inspection) -> None:
    def said(*words: str) -> str:
        ended = CliRunner().invoke(app, [words[0], str(folder), *words[1:]])
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    for name in ("counter", "encoder"):
        rows = json.loads(said("gaps", "--method", name, "--format", "json", "--top", "0"))["rows"]
        assert len(rows) == len(together.method(name).gaps)
        files = json.loads(said("info", "--method", name, "--json"))["files"]
        assert all(name in item["path"].removeprefix(str(folder)) for item in files)
    assert len(json.loads(said("gaps", "--format", "json", "--top", "0"))["rows"]) == len(
        together.method("counter").gaps
    )
    said("report", "-o", str(folder / "report.html"))
    refused = CliRunner().invoke(app, ["gaps", str(folder), "--method", "nope"])
    assert isinstance(refused.exception, UsageError)
