"""Names that an artifact may hold are shown as they are, by everything that shows them, and obeyed by nothing."""

from __future__ import annotations

import csv
import io
import json
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import etviz
from etviz.cli import main
from etviz.evidence.study import Study
from etviz.evidence.suggestion import operators_of_delegates
from etviz.gate import Rules, check
from etviz.gate.formats import to_json, to_markdown, write_junit
from etviz.text import one_line, printable, spreadsheet_cell
from tests.programs import Executed

HOSTILE = (
    "\x1b[2J\x1b]8;;http://x\x07",
    "\x9b31m",
    "=HYPERLINK(1)",
    "@everyone |a|b|\n# x\n",
    "<script>alert(1)</script>",
    "]]>\x00\x0b",
    "\u202egpj",
    "'\"`${x}\\",
)
FORBIDDEN = ("\x1b", "\x9b", "\x07", "\x00", "\x0b", "\u202e")


@pytest.fixture(scope="module")
def hostile(executed: Callable[[str], Executed], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A program's files, whose record calls every module and every source line by a hostile name."""
    program, folder = executed("counter"), tmp_path_factory.mktemp("hostile")
    kinds = ("etdump", "debug_buffer", "pte", "etrecord")
    files = {kind: program.path(kind) for kind in kinds}
    files["record"] = folder / "model.etviz"
    with zipfile.ZipFile(program.path("record")) as old, zipfile.ZipFile(files["record"], "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == "record.json":
                body = json.loads(data)
                whole = "".join(HOSTILE)
                body["texts"] = ["", *(f'  File "{HOSTILE[i % 8]}.py", line {i}\n{whole}' for i in range(1, 200))]
                for at, node in enumerate(body["graphs"][0][1]["nodes"]):
                    node[8], node[9], node[10] = whole, 1 + at % 100, 100 + at % 100
                data = json.dumps(body).encode()
            new.writestr(info, data)
    return files


@pytest.fixture(scope="module")
def inspection(hostile: dict[str, Path]) -> etviz.Inspection:
    files: dict[str, Any] = dict(hostile)
    found = etviz.load(files.pop("etdump"), **files)
    assert len(found.gaps) > 3
    assert found.gaps["module"].str.contains("\x1b", regex=False).any()
    return found


def clean(text: str) -> None:
    assert text
    assert not [c for c in FORBIDDEN if c in text]


@pytest.mark.parametrize("style", ["table", "csv", "json"])
def test_the_terminal(
    style: str, hostile: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables, CSV and JSON; a spreadsheet computes nothing."""
    arguments = [
        part
        for kind, path in hostile.items()
        if kind != "etdump"
        for part in (f"--{kind.replace('_', '-')}", str(path))
    ]
    monkeypatch.setattr(
        sys, "argv", ["etviz", "gaps", str(hostile["etdump"]), *arguments, "--format", style, "--top", "0"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    text = capsys.readouterr().out
    clean(text)
    if style == "csv":
        rows = list(csv.reader(io.StringIO(text)))
        assert len(rows) > 3
        formulas = [
            cell for row in rows for cell in row if cell.startswith(("=", "@", "+", "-")) and not _is_number(cell)
        ]
        assert not formulas
    if style == "json":
        assert len(json.loads(text)["rows"]) > 3


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_what_a_gate_writes(inspection: etviz.Inspection, tmp_path: Path) -> None:
    """JUnit is XML, Markdown keeps to its table, JSON is strict."""
    result = check(inspection.analysis, Rules().with_flags({"max_rmse": 0.0, "min_sqnr_db": 1e9}))
    assert result.failures
    write_junit(result, tmp_path / "junit.xml")
    assert len(ET.parse(tmp_path / "junit.xml").getroot().findall(".//testcase")) == len(result.cases)
    clean((tmp_path / "junit.xml").read_text())
    markdown = to_markdown(result)
    clean(markdown)
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert all(line.replace("\\|", "").count("|") == 4 for line in table)
    assert "@everyone" not in markdown
    assert "<script" not in markdown
    json.loads(json.dumps(to_json(result), allow_nan=False))


def test_errors_and_summaries(inspection: etviz.Inspection) -> None:
    clean(inspection.summary())
    clean(repr(inspection))
    clean(str(etviz.errors.ArtifactError("\x1b[31mx", "it holds \x9b31m", "\u202e")))
    clean(str(etviz.errors.UsageError("no \x1b[31m")))
    clean(str(etviz.errors.PairingError("no \x1b[31m", "\x07")))


def test_programs_side_by_side(inspection: etviz.Inspection, executed: Callable[[str], Executed]) -> None:
    """Also their labels, which are names of files or folders."""
    found = etviz.compare(inspection, executed("counter").inspection, labels=HOSTILE[:2])
    for text in (found.summary(), repr(found), found.view.static_html()):
        clean(text)


def test_a_repro_is_markdown_that_loads_nothing(inspection: etviz.Inspection, tmp_path: Path) -> None:
    folder = inspection.repro(int(inspection.gaps.index[inspection.gaps["kind"] == "kernel"][0]), tmp_path / "repro")
    text = (folder / "README.md").read_text("utf-8")
    clean(text)
    assert [line for line in text.splitlines() if line.startswith("#")] == text.splitlines()[:1]
    assert "<script" not in text
    assert "@everyone" not in text


def test_code_to_paste_names_operators_only(inspection: etviz.Inspection) -> None:
    """An operator's name goes into Python that a user runs."""
    gaps = inspection.gaps
    gaps["reference_ops"] = "relu\nimport os, relu_1"
    gaps["kind"], gaps["rmse"] = "delegate", 1.0
    found = Study.__new__(Study)
    found.worst = lambda *_: gaps  # type: ignore[method-assign]
    assert operators_of_delegates(found) == [("relu_1",)]


def test_the_report_holds_no_markup_of_theirs(inspection: etviz.Inspection, tmp_path: Path) -> None:
    inspection.to_html(tmp_path / "r.html", tensors="none")
    page = (tmp_path / "r.html").read_text("utf-8")
    clean(page)
    assert "<script>alert(1)" not in page


def test_texts() -> None:
    assert printable("a\nb\tc") == "a\nb\tc"
    assert one_line(" a\n\n b ") == "a b"
    assert spreadsheet_cell("-1+1|cmd") == "'-1+1|cmd"
    assert spreadsheet_cell(None) is None
