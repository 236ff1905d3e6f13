"""Why it is wrong, in JupyterLab: who caused the error, what each operator introduced, where in a tensor it is."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab
from tests.browser.test_widget import python, selected, view

__all__ = ["view"]


def choose(view: Locator, name: str) -> None:
    """Rank by something else."""
    view.locator(".etv-table-pane").get_by_role("button", name=name, exact=True).click()


def first_row(view: Locator) -> int:
    """The row on top of the table."""
    return int(view.locator(".etv-table [data-row][aria-rowindex='2']").get_attribute("data-row") or -1)


def test_rows_are_ranked_by_what_they_introduce_in_one_click(lab: Lab, view: Locator) -> None:
    choose(view, "introduced")
    expect(view.locator("[role=columnheader][aria-sort='descending']")).to_contain_text("introduced")
    worst = int(python(lab, "print(inspection.gaps.introduced_severity.idxmax())"))
    assert first_row(view) == worst
    assert view.locator(".etv-table [data-row] .etv-gauge-part").count() > 0


def test_the_error_of_the_output_is_attributed(lab: Lab, view: Locator, screenshots: Path) -> None:
    view.get_by_role("button", name="Attribute the output's error").click()
    bar = view.get_by_role("group", name="Shares of the output's error")
    bar.wait_for()
    total = float(python(lab, "print(inspection.attribution().attrs['sum'])"))
    said = view.locator(".etv-sum").inner_text().replace("Σ", "").replace("%", "")
    assert abs(float(said) / 100 - total) < 0.002
    expect(view.get_by_role("progressbar")).to_have_count(0)
    choose(view, "attribution")
    largest = int(python(lab, "print(inspection.attribution().share.idxmax())"))
    expect(view.locator(".etv-table [data-row][aria-rowindex='2']")).to_have_attribute("data-row", str(largest))
    bar.get_by_role("button").first.click()
    expect(selected(view)).to_have_attribute("data-row", str(largest))
    for theme in ("light", "dark"):
        lab.set_theme(theme)
        lab.screenshot(f"attribution-{theme}", view)


def test_the_map_reads_the_largest_error_and_its_element(lab: Lab, view: Locator) -> None:
    row = view.locator(".etv-table [data-row]", has_text="cumsum").first
    row.click()
    view.get_by_role("tab", name="Error map").click()
    grid = view.locator(".etv-grid")
    expect(grid).to_have_count(1)
    found = python(
        lab,
        f"""
reference, runtime = inspection.tensors({row.get_attribute("data-row")})
error = (runtime.double() - reference.double()).abs()
print(float(error.max()), [int(i[0]) for i in (error == error.max()).nonzero(as_tuple=True)])
""",
    )
    largest, index = found.split(" ", 1)
    grid.focus()
    lab.page.keyboard.press("ArrowRight")
    reading = view.locator(".etv-grid-reading")
    expect(reading).to_contain_text(index.strip())
    shown = re.search(r"\|error\| (\S+)", reading.inner_text())
    assert shown is not None
    assert abs(float(shown[1]) / float(largest) - 1) < 1e-3
    painted = grid.locator("canvas").evaluate(
        "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"
        ".filter((value, at) => at % 4 === 3 && value > 0).length"
    )
    assert painted > 0


def test_slices_and_axes_are_chosen(lab: Lab, view: Locator) -> None:
    view.locator(".etv-table [data-row]", has_text="cumsum").first.click()
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


def test_a_delegate_is_zoomed_into(lab: Lab, view: Locator, screenshots: Path) -> None:
    view.locator(".etv-table [data-row]", has_text="conv2d, relu").first.click()
    call = int(selected(view).get_attribute("data-row") or -1)
    view.locator(".etv-detail-head").get_by_role("button", name="Zoom").click()
    badge = view.locator(".etv-detail-head .etv-faithful")
    expect(badge).to_be_visible(timeout=120_000)
    faithful = python(lab, f"print(inspection.zoomed({call}).faithful)").strip()
    expect(badge).to_contain_text({"True": "bit for bit", "False": "differs", "None": "not checked"}[faithful])
    inside = int(python(lab, f"print(len(inspection.zoomed({call}).gaps))"))
    inner = view.locator(".etv-table [data-row][data-inner]")
    expect(inner).to_have_count(inside)
    expect(view.locator("[role=treegrid] [data-node][aria-level='3'] .etv-gauge").first).to_be_visible()
    expect(view.get_by_role("progressbar")).to_have_count(0)
    inner.first.click()
    expect(view.locator("svg[role=img]")).to_have_count(2)
    lab.screenshot("zoomed", view)
    view.locator(".etv-detail-body").get_by_role("button", name=re.compile("Inside the delegate")).click()
    expect(selected(view)).to_have_attribute("data-row", str(call))
