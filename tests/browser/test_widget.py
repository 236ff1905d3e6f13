"""The linked view in JupyterLab, driven as a user would: look, sort, filter, click, set from Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab

LOAD = """
    import etviz
    inspection = etviz.load("{0}/etdump.etdp", etrecord="{0}/etrecord.bin",
                            debug_buffer="{0}/debug_buffer.bin", pte="{0}/model.pte")
"""


@pytest.fixture
def view(lab: Lab, artifacts: Path) -> Locator:
    """The widget of an Inspection, with its table drawn."""
    lab.open("widget", LOAD.format(artifacts.name), "inspection")
    lab.run_all()
    view = lab.output(".etviz")
    view.locator(".etv-table [data-row]").first.wait_for()
    return view


def rows(view: Locator) -> list[str]:
    """Texts of the table's rows from top to bottom."""
    found = view.locator(".etv-table [data-row]")
    return found.evaluate_all(
        "rows => rows.sort((a, b) => a.getAttribute('aria-rowindex') - b.getAttribute('aria-rowindex'))"
        ".map(row => row.innerText)"
    )


def selected(view: Locator) -> Locator:
    """The selected rows of the table."""
    return view.locator(".etv-table [data-row][aria-selected='true']")


def python(lab: Lab, code: str) -> str:
    """Run code in the notebook's kernel and return what it printed."""
    return lab.page.evaluate(
        """async (code) => {
            const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            const future = kernel.requestExecute({ code, store_history: false });
            let text = "";
            future.onIOPub = (message) => { text += message.content.text ?? message.content.evalue ?? ""; };
            await future.done;
            return text;
        }""",
        code,
    )


def test_the_verdict_the_table_and_the_tree_are_there(lab: Lab, view: Locator) -> None:
    expect(view.locator(".etv-verdict-text")).to_contain_text("final output matches the reference")
    expect(view).to_contain_text(re.compile(r"Compared\s*\d+ of \d+ instructions"))
    gaps = int(python(lab, "print(len(inspection.gaps))"))
    assert len(rows(view)) == gaps
    expect(view.locator("[role=treegrid] [data-node]").first).to_contain_text("forward")
    assert lab.console_errors == []


def test_a_click_on_a_row_selects_in_the_tree_and_draws_histograms_and_python_knows(lab: Lab, view: Locator) -> None:
    row = view.locator(".etv-table [data-row]", has_text="cumsum").first
    row.click()
    expect(selected(view)).to_contain_text("cumsum")
    expect(view.locator("[role=treegrid] [aria-selected='true']")).to_contain_text("cumsum")
    expect(view.locator("svg[role=img]")).to_have_count(2)
    expect(view).to_contain_text(re.compile(r"cosine", re.IGNORECASE))
    op = python(lab, "print(inspection.gaps.op[inspection.selected])")
    assert "cumsum" in op


def test_python_selects_and_observes(lab: Lab, view: Locator) -> None:
    python(lab, "seen = []\ninspection.observe(lambda change: seen.append(change.new), 'selected')")
    python(lab, "inspection.selected = int(inspection.gaps.index[inspection.gaps.op.str.contains('layer_norm')][0])")
    expect(selected(view)).to_contain_text("layer_norm")
    view.locator(".etv-table [data-row]", has_text="cumsum").first.click()
    expect(selected(view)).to_contain_text("cumsum")
    lab.page.wait_for_timeout(500)
    assert len(python(lab, "print(seen)").split(",")) == 2


def test_a_node_of_the_tree_selects_its_row(view: Locator) -> None:
    view.locator("[role=treegrid] [data-node]", has_text="native_layer_norm").first.click()
    expect(selected(view)).to_contain_text("layer_norm")


def test_a_delegate_unfolds_to_its_operators(view: Locator) -> None:
    tree = view.locator("[role=treegrid]")
    delegate = tree.locator("[data-node]", has_text="conv2d").first
    before = tree.locator("[data-node]").count()
    delegate.locator(".etv-twisty").click()
    expect(tree).to_contain_text("convolution")
    assert tree.locator("[data-node]").count() > before
    tree.locator("[data-node]", has_text="convolution").first.click()
    expect(view.locator(".etv-detail-body")).to_contain_text("delegate")


def test_worst_comes_first_and_a_header_click_sorts(lab: Lab, view: Locator) -> None:
    expect(view.locator("[role=columnheader][aria-sort='descending']")).to_contain_text("severity")
    view.locator("[role=columnheader]", has_text="operator").first.click()
    expect(
        view.locator("[role=columnheader][aria-sort='ascending'], [role=columnheader][aria-sort='descending']").first
    ).to_contain_text("operator")
    lab.page.wait_for_timeout(500)
    assert python(lab, "print(inspection.sort_by)").strip() == "op"
    python(lab, "inspection.sort_by, inspection.descending = 'rmse', True")
    worst = python(lab, "print(inspection.worst(1, by='rmse').op.iloc[0])").strip().replace("aten::", "")
    expect(view.locator(".etv-table [data-row][aria-rowindex='2']")).to_contain_text(
        "conv2d" if "DELEGATE" in worst else worst[:10]
    )


def test_the_text_filter_keeps_what_matches(lab: Lab, view: Locator) -> None:
    view.locator("input[type=search], [role=search] input").first.fill("layer_norm")
    expect(view.locator(".etv-table [data-row]")).to_have_count(3)
    assert all("layer_norm" in row for row in rows(view))
    lab.page.wait_for_timeout(500)
    assert python(lab, "print(inspection.filter)").strip() == "layer_norm"
    python(lab, "inspection.filter = 'nothing-like-this'")
    expect(view.locator(".etv-table [data-row]")).to_have_count(0)


def test_light_and_dark(lab: Lab, view: Locator) -> None:
    view.locator(".etv-table [data-row]").first.click()
    expect(view.locator("svg[role=img]")).to_have_count(2)
    backgrounds = set()
    for theme in ("light", "dark"):
        lab.set_theme(theme)
        backgrounds.add(view.evaluate("e => getComputedStyle(e).backgroundColor"))
        assert lab.screenshot(f"widget-{theme}", view).stat().st_size > 20_000
    assert len(backgrounds) == 2


def test_without_a_debug_buffer_the_view_says_so_and_shows_no_number(lab: Lab, artifacts: Path) -> None:
    lab.open("no-buffer", f'import etviz\netviz.load("{artifacts.name}/etdump.etdp", pte="{artifacts.name}/model.pte")')
    lab.run_all()
    view = lab.output(".etviz")
    expect(view).to_contain_text("There is no debug buffer")
    expect(view.locator("[role=treegrid]")).to_contain_text("cumsum")
    expect(view.locator(".etv-table [data-row]")).to_have_count(0)


def test_the_same_inspection_twice_is_linked(lab: Lab, artifacts: Path) -> None:
    lab.open("twice", LOAD.format(artifacts.name), "inspection", "inspection.widget(height=400)")
    lab.run_all()
    lab.page.locator(".jp-OutputArea .etviz").nth(1).locator(".etv-table [data-row]").first.wait_for()
    first, second = (lab.page.locator(".jp-OutputArea .etviz").nth(i) for i in range(2))
    second.locator(".etv-table [data-row]", has_text="cumsum").first.click()
    expect(selected(first)).to_contain_text("cumsum")


def test_saved_without_widget_state_a_table_is_left(lab: Lab, view: Locator) -> None:
    data = next(output["data"] for cell in lab.outputs() for output in cell if "text/html" in output.get("data", {}))
    html = "".join(data["text/html"])
    assert "<table" in html
    assert "<script" not in html
    assert "matches the reference" in html
    assert "Compared" in "".join(data["text/plain"])
