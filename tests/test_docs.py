"""The docs say what the code does: metrics, thresholds, tolerances, columns, names and links."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import etviz
from etviz.cli.app import app
from etviz.comparison.gap_tables import COLUMNS
from etviz.tensors.metrics import TOLERANCES, Metric

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
ALL = [*PAGES, *sorted(DOCS.parent.glob("*.md")), *sorted(DOCS.parent.glob("notebooks/*.ipynb"))]
"""Notebooks too, whose code `test_notebooks.py` runs."""
TABLE = (DOCS / "reading-the-table.md").read_text(encoding="utf-8").replace("\\|", "|")


@pytest.mark.parametrize("metric", etviz.metrics.values(), ids=lambda metric: metric.name)
def test_metric_stands_in_the_page(metric: Metric) -> None:
    better = "higher" if metric.higher_is_better else "lower"
    unit = metric.unit or "–"
    assert f"| `{metric.name}` | {metric.formula} | {better} | {unit} | {metric.description} |" in TABLE
    if metric.thresholds:
        dtypes = ("float32", "float16", "bfloat16", "quantized")
        pairs = (metric.thresholds.get(dtype) for dtype in dtypes)
        cells = ("–" if pair is None else f"{pair[0]:g} / {pair[1]:g}" for pair in pairs)
        assert f"| `{metric.name}` | {' | '.join(cells)} |" in TABLE
        assert metric.thresholds["float64"] == metric.thresholds["float32"]


def test_tolerances_stand_in_the_page() -> None:
    for dtype, (rtol, atol) in TOLERANCES.items():
        assert f"| {dtype} | {rtol:g} | {atol:g} |" in TABLE


def test_every_column_is_explained() -> None:
    known = {*etviz.metrics, *(f"introduced_{name}" for name in etviz.metrics)}
    explained = set(re.findall(r"`(\w+)`", TABLE))
    assert [name for name in COLUMNS if name not in known | explained] == []


def prose(page: Path) -> str:
    """The text of a page, or that of a notebook's cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page is written as."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", prose(page), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            other = page.parent / path if path else page
            assert other.exists(), target
            assert not anchor or anchor in anchors(other), target


def test_every_page_and_picture_is_linked() -> None:
    linked = {(page.parent / path).resolve() for page in ALL for path in re.findall(r"\]\(([^)#]+)", prose(page))}
    assert [path for path in (*PAGES, *(DOCS / "images").iterdir()) if path.resolve() not in linked] == []


def calls(page: Path) -> Iterator[tuple[str, Any, ast.Call]]:
    """Every call of a name of etviz, or of what one of its functions gives, in the snippets of a page."""
    owners: dict[str, Any] = {"inspection": etviz.Inspection, "inside": etviz.Inspection, "compared": etviz.Comparison}
    owners |= {"study": etviz.Study, "census": etviz.Census, "sweep": etviz.Sweep}
    owners |= {"etviz": etviz, "suggestion": etviz.Suggestion}
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if isinstance(owner, ast.Name) and owner.id in owners:
                    yield f"{owner.id}.{node.func.attr}", owners[owner.id], node


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_snippets_call_what_is_there(page: Path) -> None:
    for name, owner, call in calls(page):
        known = inspect.signature(getattr(owner, name.partition(".")[2])).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
        unknown = {keyword.arg for keyword in call.keywords if keyword.arg} - set(known)
        assert takes_all or not unknown, (name, unknown)


COMMANDS: Any = typer.main.get_command(app)


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_commands_and_their_options_exist(page: Path) -> None:
    options = {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in COMMANDS.commands.items()
    }
    for line in re.findall(rf"etviz ((?:{'|'.join(options)})\b[^\n`]*)", prose(page)):
        name, *words = re.sub(r"[\"'#|].*", "", line).split()
        assert {word for word in words if re.fullmatch(r"-o|--[a-z][a-z-]+", word)} <= options[name], line
    targets = re.findall(r"^([a-z-]+):", (DOCS.parent / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for groups in re.findall(r"`make ([a-z-]+)[ `]|^(?:\$|   ) ?make ([a-z-]+)", prose(page), re.MULTILINE):
        assert "".join(groups) in targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"etviz\.([a-z_]+)\(", text):
        assert hasattr(etviz, name), name
    members = {"analysis", "view", *dir(etviz.Inspection), *inspect.signature(etviz.load).parameters}
    for name in re.findall(r"inspection\.([a-z_]+)", text):
        assert name in members, name


def test_arguments_of_load_stand_in_the_page() -> None:
    text = (DOCS / "from-artifacts.md").read_text(encoding="utf-8")
    for name in ("etdump", "etrecord", "debug_buffer", "pte", "record", "inputs", "method", "source_time_scale"):
        assert name in inspect.signature(etviz.load).parameters
        assert name in text
