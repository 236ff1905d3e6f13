"""The table of upstream's tools: every name of etviz resolves, nothing of upstream's is left out."""

from __future__ import annotations

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

ROOT = Path(__file__).parents[1]
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
    assert {len(row) for row in ROWS} == {3}
    assert all(all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_names_of_etviz_resolve(row: list[str]) -> None:
    cell = row[1]
    for table, listed in re.findall(r"`Inspection\.(gaps|events)` \(columns? ([^)]*)\)", cell):
        assert set(code(listed)) <= COLUMNS[table], listed
    names = code(re.sub(r"\(columns? [^)]*\)", "", cell))
    assert names
    assert [name for name in names if not resolves(name)] == []


def words(name: str) -> list[str]:
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
