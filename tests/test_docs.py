"""The docs say what the code does: metrics, thresholds, tolerances, columns, names and links."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import etviz
from etviz.comparison.tables import COLUMNS
from etviz.tensors.metrics import TOLERANCES, Metric

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"etviz\.([a-z_]+)\(", text):
        assert hasattr(etviz, name), name
    members = {*dir(etviz.Inspection), *inspect.signature(etviz.load).parameters}
    for name in re.findall(r"inspection\.([a-z_]+)", text):
        assert name in members, name


def test_arguments_of_load_stand_in_the_page() -> None:
    text = (DOCS / "from-artifacts.md").read_text(encoding="utf-8")
    for name in ("etdump", "etrecord", "debug_buffer", "pte", "record", "inputs", "method", "source_time_scale"):
        assert name in inspect.signature(etviz.load).parameters
        assert name in text
