"""The table of upstream's tools: every name of etviz resolves, every test exists, nothing of upstream's is left out."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from executorch.devtools import Inspector
from executorch.devtools.backend_debug.delegation_info import DelegationInfo
from executorch.devtools.inspector import Event, EventBlock

import etviz
from etviz.analysis.profile import COLUMNS as EVENT_COLUMNS
from etviz.analysis.profile import METADATA
from etviz.cli.app import app
from etviz.comparison.gap_tables import COLUMNS as GAP_COLUMNS

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = (ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| upstream", "| ---"))
]
COMMANDS = {command.name for command in app.registered_commands}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
COLUMNS = {"gaps": {*GAP_COLUMNS}, "events": {*EVENT_COLUMNS, METADATA}}


def code(cell: str) -> list[str]:
    """What stands in backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def resolves(name: str) -> bool:
    """Whether there is such a name: a function with an argument, a member, a command, a target of make, a column."""
    if name.startswith("etviz "):
        return name.split()[1] in COMMANDS
    if name.startswith("make "):
        return name.split()[1] in TARGETS
    path, _, argument = name.partition("(")
    if path.startswith("Inspection."):
        return hasattr(etviz.Inspection, path.removeprefix("Inspection."))
    found = getattr(etviz, path.removeprefix("etviz."), None)
    return found is not None and (not argument or argument.rstrip("=)") in inspect.signature(found).parameters)


def test_the_table_is_whole() -> None:
    assert len(ROWS) > 60
    assert {len(row) for row in ROWS} == {4}
    assert all(row[0] and row[1] and row[3] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_names_of_etviz_resolve(row: list[str]) -> None:
    cell = row[1]
    for table, listed in re.findall(r"`Inspection\.(gaps|events)` \(columns? ([^)]*)\)", cell):
        assert set(code(listed)) <= COLUMNS[table], listed
    names = code(re.sub(r"\(columns? [^)]*\)", "", cell))
    assert names
    assert [name for name in names if not resolves(name)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_tests_exist(row: list[str]) -> None:
    for name in code(row[2]):
        file, _, function = name.partition("::")
        found = [path for path in HERE.rglob(file) if path.is_file()]
        assert found, file
        texts = [path.read_text(encoding="utf-8") for path in found]
        assert not function or any(re.search(rf"^def {function}\(", text, re.MULTILINE) for text in texts), name
    assert code(row[2])


def _read(file: Path, function: str) -> str:
    """A test, and what it names of its module."""
    text = file.read_text(encoding="utf-8")
    if not function:
        return text
    places: dict[str, ast.stmt] = {}
    for node in ast.parse(text).body:
        names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
        places |= dict.fromkeys(
            [*names, *([node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ())], node
        )
    found, left = dict[str, str](), [function]
    while left:
        if (name := left.pop()) in places and name not in found:
            found[name] = ast.get_source_segment(text, places[name]) or ""
            inner = list(ast.walk(places[name]))
            left += [node.id for node in inner if isinstance(node, ast.Name)]
            left += [node.arg for node in inner if isinstance(node, ast.arg)]
    return "\n".join(found.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_the_tests_of_a_row_call_what_it_names(row: list[str]) -> None:
    """Each function, argument, command and column of etviz."""
    parts = [name.partition("::") for name in code(row[2])]
    texts = "\n".join(_read(path, function) for file, _, function in parts for path in HERE.rglob(file))
    columns = [name for listed in re.findall(r"\(columns? ([^)]*)\)", row[1]) for name in code(listed)]
    named = [word for name in code(re.sub(r"\(columns? [^)]*\)", "", row[1])) for word in _words(name)]
    assert [name for name in (*named, *columns) if not re.search(rf"\b{re.escape(name)}\b", texts)] == []


def _words(name: str) -> list[str]:
    if name.startswith(("etviz ", "make ")):
        return name.split()[1:2]
    path, _, argument = name.partition("(")
    return [path.rpartition(".")[2], *filter(None, [argument.rstrip("=)")])]


def test_nothing_of_upstreams_inspector_is_left_out() -> None:
    """Parameters, methods, fields: whatever this version of upstream has."""
    said = {name for row in ROWS for name in code(row[0])}
    parameters = [name for name in inspect.signature(Inspector.__init__).parameters if name != "self"]
    expected = {f"Inspector({name}=)" for name in parameters}
    expected |= {
        f"Inspector.{name}"
        for name in vars(Inspector)
        if not name.startswith("_") and callable(getattr(Inspector, name))
    }
    expected |= {f"DelegationInfo.{name}" for name in vars(DelegationInfo) if name.startswith("get_")}
    for kind in (Event, EventBlock):
        expected |= {f"{kind.__name__}.{field.name}" for field in dataclasses.fields(kind)}
    assert expected - said == set()
    # and nothing is said of fields that there are not
    told = {name for name in said if re.fullmatch(r"(Event|EventBlock|Inspector)[.(]\w+(=\))?", name)}
    assert told - expected == set()
