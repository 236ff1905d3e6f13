"""The graph around the selected node, in a report: it shows the edges of the program, and the mouse moves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, expect

import etviz
from tests.programs import Executed


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_graph_shows_what_the_selected_node_reads(
    browser: Browser,
    executed: Callable[[str], Executed],
    tmp_path_factory: pytest.TempPathFactory,
    screenshots: Path,
    scheme: Literal["light", "dark"],
) -> None:
    inspection = executed("residual_cnn").inspection
    path = inspection.to_html(tmp_path_factory.mktemp("graph") / "report.html", tensors="none")
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri())
    page.get_by_role("button", name="Graph").click()
    expect(page.locator(".etv-graph-node[aria-pressed=true]")).to_have_count(1)
    page.locator(".etv-table [data-row]", has_text="cumsum").first.click()
    selected = page.locator(".etv-graph-node[aria-pressed=true]")
    expect(selected).to_contain_text("cumsum")
    node = int(selected.get_attribute("data-node") or -1)
    shown = {int(one.get_attribute("data-node") or -1) for one in page.locator(".etv-graph-node").all()}
    assert {edge.source for edge in inspection.analysis.edges if edge.target == node} - inner(inspection) <= shown
    assert {edge.target for edge in inspection.analysis.edges if edge.source == node} - inner(inspection) <= shown
    page.screenshot(path=screenshots / f"graph-{scheme}.png")
    picture = page.locator(".etv-graph-svg")
    look = picture.get_attribute("viewBox")
    drag(picture, selected)
    expect(picture).not_to_have_attribute("viewBox", look or "")
    expect(selected).to_contain_text("cumsum")
    page.get_by_role("button", name="Fit").click()
    page.locator(".etv-graph-node", has_text="mean").first.click()
    expect(page.locator(".etv-table [aria-selected=true]")).to_contain_text("mean")
    context.close()
    assert problems == []


def inner(inspection: etviz.Inspection) -> set[int]:
    """Operators inside of delegates: a closed delegate stands for them."""
    return {node for node, kind in enumerate(inspection.tree.kind) if kind == "inner"}


def drag(picture: Locator, node: Locator) -> None:
    """Drag the picture by a node, and zoom out with the wheel."""
    box = node.bounding_box()
    assert box is not None
    mouse = picture.page.mouse
    mouse.move(box["x"] + 20, box["y"] + 10)
    mouse.down()
    mouse.move(box["x"] + 60, box["y"] + 50, steps=4)
    mouse.up()
    mouse.wheel(0, 200)
