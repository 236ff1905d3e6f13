"""The linked view in JupyterLab, where a kernel answers: sort, filter, select, explain; Python sees it and steers.

What needs no kernel is tested on a report, in `test_report.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.accessibility import serious
from tests.browser.geometry import assert_laid_out
from tests.browser.lab import Lab

LOAD = """
    import etviz
    inspection = etviz.load("{0}/etdump.etdp", etrecord="{0}/etrecord.bin",
                            debug_buffer="{0}/debug_buffer.bin", pte="{0}/model.pte")
"""


@pytest.fixture(scope="module")
def notebook(lab: Lab, artifacts: Path) -> Lab:
    """Shows an Inspection in two cells."""
    lab.front("widget", LOAD.format(artifacts.name), "inspection", "inspection.widget(height=400)")
    return lab


@pytest.fixture
def view(notebook: Lab) -> Locator:
    """The widget of a new Inspection, with its table drawn."""
    notebook.run_all()
    view = notebook.output(".etviz")
    rows(view).first.wait_for()
    return view


def rows(view: Locator) -> Locator:
    """Rows of the table."""
    return view.locator(".etv-table [data-row]")


def other(lab: Lab) -> Locator:
    """The second view of the same Inspection."""
    return lab.page.locator(".jp-OutputArea .etviz").nth(1)


def top(view: Locator) -> Locator:
    """The row on top of the table."""
    return view.locator(".etv-table [data-row][aria-rowindex='2']")


def selected(view: Locator) -> Locator:
    """The selected rows of the table."""
    return view.locator(".etv-table [data-row][aria-selected='true']")


def index_of(lab: Lab, name: str) -> int:
    """The first row of Python's table whose operator has this name in it."""
    return int(lab.python(f"print(inspection.gaps.index[inspection.gaps.op.str.contains({name!r})][0])"))


def test_the_verdict_the_table_and_the_tree_are_there(lab: Lab, view: Locator) -> None:
    expect(view.locator(".etv-verdict")).to_contain_text("final output matches the reference")
    unused = "len(inspection.analysis.tables.unused)"
    expect(rows(view)).to_have_count(int(lab.python(f"print(len(inspection.gaps) - {unused})")))
    view.get_by_role("button", name="Facts").click()
    expect(view).to_contain_text(re.compile(r"Compared\s*\d+ of \d+ instructions"))
    view.get_by_role("button", name="Facts").click()
    expect(view.locator("[role=treegrid] [data-node]").first).to_contain_text("forward")
    assert lab.console_errors == []


def test_nothing_serious_keeps_anyone_out(view: Locator) -> None:
    expect(view.locator("svg[role=img]")).to_have_count(2)
    assert serious(view) == []


def test_first_paint_is_the_finding(lab: Lab, view: Locator) -> None:
    expect(view.locator(".etv-finding")).to_contain_text("No operator adds more error than its precision explains")
    expect(selected(view)).to_have_count(1)
    expect(selected(view)).to_have_attribute("aria-rowindex", "2")
    expect(view.locator("svg[role=img]")).to_have_count(2)
    assert lab.python("print(inspection.selected)").strip() == selected(view).get_attribute("data-row")
    for place in (".etv-finding", ".etv-table", "[role=treegrid]", ".etv-detail-title"):
        expect(view.locator(place)).to_contain_text(re.compile(r"#\d+ "))


def test_saved_without_widget_state_a_table_is_left(lab: Lab, view: Locator) -> None:
    data = next(output["data"] for cell in lab.outputs() for output in cell if "text/html" in output.get("data", {}))
    html = "".join(data["text/html"])
    assert "<table" in html
    assert "<script" not in html
    assert "matches the reference" in html
    assert "Compared" in "".join(data["text/plain"])


def test_a_click_on_a_row_asks_for_its_histograms_and_python_knows(lab: Lab, view: Locator) -> None:
    rows(view).filter(has_text="cumsum").first.click()
    expect(selected(view)).to_contain_text("cumsum")
    expect(view.locator("[role=treegrid] [aria-selected='true']")).to_contain_text("cumsum")
    expect(view.locator("svg[role=img]")).to_have_count(2)
    expect(view).to_contain_text(re.compile(r"cosine", re.IGNORECASE))
    lab.wait_for_python("inspection.selected", index_of(lab, "cumsum"))


def test_python_selects_and_observes(lab: Lab, view: Locator) -> None:
    """Each change is observed once: none comes back as an echo."""
    lab.python("seen = []\ninspection.observe(lambda change: seen.append(change.new), 'selected')")
    norm, cumsum, mean = (index_of(lab, name) for name in ("layer_norm", "cumsum", "mean"))
    lab.python(f"inspection.selected = {norm}")
    expect(selected(view)).to_contain_text("layer_norm")
    rows(view).filter(has_text="cumsum").first.click()
    expect(selected(view)).to_contain_text("cumsum")
    lab.wait_for_python("inspection.selected", cumsum)
    lab.python(f"inspection.selected = {mean}")
    expect(selected(view)).to_contain_text("mean")
    lab.wait_for_python("seen", [norm, cumsum, mean])


def test_a_header_click_sorts_and_python_sorts(lab: Lab, view: Locator) -> None:
    expect(view.locator("[role=columnheader][aria-sort='descending']")).to_contain_text("introduced")
    view.locator("[role=columnheader]", has_text="operator").first.click()
    expect(
        view.locator("[role=columnheader][aria-sort='ascending'], [role=columnheader][aria-sort='descending']").first
    ).to_contain_text("operator")
    lab.wait_for_python("inspection.view.sort_by", "op")
    lab.python("inspection.view.sort_by, inspection.view.descending = 'rmse', True")
    read = "inspection.gaps.drop(index=list(inspection.analysis.tables.unused))"
    worst = lab.python(f"print({read}.rmse.idxmax())").strip()
    expect(top(view)).to_have_attribute("data-row", worst)


def test_the_text_filter_keeps_what_matches(lab: Lab, view: Locator) -> None:
    view.locator("input[type=search], [role=search] input").first.fill("op:layer_norm is:any")
    expect(rows(view)).to_have_count(3)
    for row in rows(view).all():
        expect(row).to_contain_text("layer_norm")
    lab.wait_for_python("inspection.view.filter", "op:layer_norm is:any")
    lab.python("inspection.view.filter = 'nothing-like-this'")
    expect(rows(view)).to_have_count(0)


def test_the_same_inspection_twice_is_linked(lab: Lab, view: Locator) -> None:
    rows(other(lab)).filter(has_text="cumsum").first.click()
    expect(selected(view)).to_contain_text("cumsum")


def test_it_takes_the_theme_of_jupyterlab(lab: Lab, view: Locator) -> None:
    rows(view).first.click()
    expect(view.locator("svg[role=img]")).to_have_count(2)
    backgrounds = []
    for theme in ("dark", "light"):
        lab.set_theme(theme)
        backgrounds.append(view.evaluate("e => getComputedStyle(e).backgroundColor"))
        assert_laid_out(view)
        lab.screenshot(f"widget-{theme}", view)
    assert len(set(backgrounds)) == 2


def test_the_error_of_the_output_is_attributed(lab: Lab, view: Locator) -> None:
    """Asked for in one view, it is there in both."""
    other(lab).get_by_role("button", name="Attribute the output's error").click()
    for place in (view, other(lab)):
        expect(place.locator(".etv-attribution")).to_contain_text(re.compile(r"Error of output|no share"))
    view.locator(".etv-sum").wait_for()
    total = float(lab.python("print(inspection.attribution().attrs['sum'])"))
    said = view.locator(".etv-sum").inner_text().replace("Σ", "").replace("%", "")
    assert abs(float(said) / 100 - total) < 0.002
    expect(view.get_by_role("progressbar")).to_have_count(0)
    view.locator(".etv-table-pane").get_by_role("button", name="attribution", exact=True).click()
    largest = lab.python("print(inspection.attribution().share.idxmax())").strip()
    expect(top(view)).to_have_attribute("data-row", largest)
    lab.screenshot("attribution", view)


def test_slices_and_axes_are_chosen(lab: Lab, view: Locator) -> None:
    rows(view).filter(has_text="cumsum").first.click()
    view.get_by_role("tab", name="Error map").click()
    slider = view.get_by_role("slider", name="Index along axis 1")
    before = int(slider.input_value())
    key, after = ("ArrowLeft", before - 1) if before else ("ArrowRight", 1)
    slider.press(key)
    expect(view.locator(".etv-slider b")).to_have_text(str(after))
    view.locator(".etv-grid").focus()
    lab.page.keyboard.press("ArrowRight")
    expect(view.locator(".etv-grid-reading")).to_contain_text(f"[0, {after}, ")
    view.get_by_role("tab", name="Channels").click()
    expect(view.locator(".etv-reading")).to_contain_text("worst: channel")
    view.get_by_label("Axis of the channels").select_option("2")
    expect(view.get_by_role("img", name="RMSE by channel of axis 2")).to_be_visible()
    view.get_by_role("tab", name="Scatter").click()
    expect(view.locator(".etv-grid-reading")).to_contain_text("512 elements")


def test_a_delegate_is_zoomed_into(lab: Lab, view: Locator) -> None:
    """Asked for in one view, it is there in both."""
    before = rows(other(lab)).count()
    rows(view).filter(has_text=re.compile("^#0 .*conv2d")).first.click()
    call = int(selected(view).get_attribute("data-row") or -1)
    view.locator(".etv-detail-head").get_by_role("button", name="Zoom").click()
    badge = view.locator(".etv-detail-head .etv-faithful")
    expect(badge).to_be_visible(timeout=120_000)
    faithful = lab.python(f"print(inspection.zoom({call}).faithful)").strip()
    expect(badge).to_contain_text({"True": "zoom faithful", "False": "differs", "None": "not checked"}[faithful])
    inside = int(lab.python(f"print(len(inspection.zoom({call}).gaps))"))
    inner = view.locator(".etv-table [data-row][data-inner]")
    expect(inner).to_have_count(inside)
    expect(other(lab).locator(".etv-table [data-inner]").first).to_be_attached()
    assert rows(other(lab)).count() > before
    expect(
        view.locator("[role=treegrid] [data-node][aria-level='3'] [aria-label^='worst introduced']").first
    ).to_be_attached()
    expect(view.get_by_role("progressbar")).to_have_count(0)
    inner.first.click()
    expect(view.locator("svg[role=img]")).to_have_count(2)
    lab.screenshot("zoomed", view)
    view.locator(".etv-detail-body").get_by_role("button", name=re.compile("Inside the delegate")).click()
    expect(selected(view)).to_have_attribute("data-row", str(call))
