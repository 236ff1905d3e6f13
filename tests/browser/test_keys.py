"""Keys in the view are the view's: a notebook in command mode would take letters as commands. Chords are the host's."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab
from tests.browser.test_widget import LOAD

CELLS = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(
    (cell) => [cell.cell_type, cell.getSource()])"""
DIRTY = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
PLACES = (".etv-table [data-row][tabindex='0']", "[role=treegrid] [data-node][tabindex='0']", ".etv-edge")


@pytest.fixture(scope="module")
def notebook(lab: Lab, artifacts: Path) -> Lab:
    """Shows an Inspection above another cell."""
    lab.front("keys", LOAD.format(artifacts.name), "inspection", "1 + 1")
    return lab


@pytest.fixture
def view(notebook: Lab) -> Locator:
    """The widget of a new Inspection."""
    notebook.run_all()
    view = notebook.output(".etviz")
    view.locator(".etv-table [data-row]").first.wait_for()
    return view


def cells(lab: Lab) -> list[Any]:
    """Kind and source of each cell."""
    return lab.page.evaluate(CELLS)


@pytest.mark.parametrize("place", PLACES)
def test_no_letter_on_a_focused_part_changes_the_notebook(lab: Lab, view: Locator, place: str) -> None:
    before, runs = cells(lab), lab.python("print(len(In))")
    for key in [*string.ascii_lowercase, *string.ascii_uppercase, *string.digits, "d", "d", "Escape", "Shift+Enter"]:
        view.locator(place).first.focus()
        lab.page.keyboard.press(key)
        # A command of the view may take the part away: the letter after it is the view's too.
        for undo in (key, "x"):
            if not view.locator(place).first.is_visible():
                lab.page.keyboard.press(undo)
                lab.page.wait_for_timeout(100)
    lab.page.wait_for_timeout(300)
    assert cells(lab) == before
    assert lab.python("print(len(In))") == runs
    expect(view.locator(".etv-table [data-row]").first).to_be_visible()


def test_the_chord_that_saves_saves(lab: Lab, view: Locator) -> None:
    view.locator(".etv-table [data-row]").first.click()
    assert lab.page.evaluate(DIRTY)
    lab.page.keyboard.press("Control+s")
    lab.page.wait_for_function(f"() => !({DIRTY})()")
