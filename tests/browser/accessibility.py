"""axe-core over a part of a page: what it calls serious or critical."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_RUN = """async (element) => (await axe.run(element, { resultTypes: ["violations"] })).violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 160)).join("; ")}`)"""


def serious(view: Locator) -> list[str]:
    """The findings in an element and below it, in words."""
    if not view.page.evaluate("'axe' in window"):
        view.page.evaluate(AXE.read_text("utf-8"))
    return view.evaluate(_RUN)
