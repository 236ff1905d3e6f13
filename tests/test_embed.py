# pyright: reportPrivateUsage=false
"""``etviz.options``: what may be set, and what a cell's output then is."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

import etviz
from etviz.analysis.analysis import Analysis
from etviz.errors import UsageError
from etviz.settings import Options
from etviz.view.widget.widget import InspectionWidget
from tests.markup import MARKUP
from tests.programs import Executed

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {name: getattr(etviz.options, name) for name in dir(etviz.options)}
    yield
    for name, value in before.items():
        setattr(etviz.options, name, value)


@pytest.fixture
def inspection(executed: Callable[[str], Executed]) -> etviz.Inspection:
    return executed("residual_cnn").inspection


def test_an_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no 'embedded'; it has embed, "):
        etviz.options.embedded = True
    with pytest.raises(AttributeError, match="has no 'other'"):
        _ = etviz.options.other
    assert "etviz.options.embed = False" in repr(Options())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("embed", 1),
        ("embed", "yes"),
        ("embed_tensors", "all"),
        ("embed_tensors", 3),
        ("embed_megabytes", 0),
        ("embed_megabytes", True),
        ("embed_megabytes", float("nan")),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(name: str, value: object) -> None:
    before = getattr(etviz.options, name)
    with pytest.raises(UsageError, match=rf"etviz\.options\.{name} must be "):
        setattr(etviz.options, name, value)
    assert getattr(etviz.options, name) == before


def test_a_cell_has_the_widget_and_the_table_unless_asked(inspection: etviz.Inspection) -> None:
    data, _ = inspection._repr_mimebundle_()
    assert {WIDGET, "text/html", "text/plain"} <= set(data)
    assert "<iframe" not in data["text/html"]


def test_an_embedded_report_comes_without_a_widget(
    inspection: etviz.Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a widget was made; nbconvert would show it instead of the report")

    monkeypatch.setattr(InspectionWidget, "__init__", refuse)
    etviz.options.embed = True
    data, _ = inspection._repr_mimebundle_()
    assert set(data) == {"text/html", "text/plain"}
    assert 'sandbox="allow-scripts"' in data["text/html"]
    assert f"height:{inspection.view.height}px" in data["text/html"]


def test_a_report_that_is_too_large_holds_less_and_at_last_is_the_table(inspection: etviz.Inspection) -> None:
    sizes = []
    etviz.options.embed = True
    for tensors in ("worst", "histograms", "none"):
        etviz.options.embed_tensors = tensors
        sizes.append(len(inspection._repr_mimebundle_()[0]["text/html"]))
    assert sizes == sorted(sizes, reverse=True)
    etviz.options.embed_tensors = "worst"
    etviz.options.embed_megabytes = (sizes[1] + 100) / 1e6
    assert abs(len(inspection._repr_mimebundle_()[0]["text/html"]) - sizes[1]) < 100
    etviz.options.embed_megabytes = 0.01
    shown = inspection._repr_mimebundle_()[0]["text/html"]
    assert "<iframe" not in shown
    assert "to_html()" in shown
    assert html.escape(inspection.analysis.digest.verdict) in shown


def test_names_can_not_break_out_of_the_frame(inspection: etviz.Inspection) -> None:
    inspection = etviz.Inspection(Analysis(replace(inspection.analysis.findings, title=f'"{MARKUP}')))
    etviz.options.embed = True
    shown = inspection._repr_mimebundle_()[0]["text/html"]
    frame = shown[: shown.index("<noscript>")]
    assert frame.count("<") == 2
    assert frame.endswith("></iframe>\n")
