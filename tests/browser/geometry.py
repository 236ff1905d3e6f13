"""What a picture of the view would show: where its parts are, and whether one can read them."""

from __future__ import annotations

from itertools import combinations

from playwright.sync_api import FloatRect, Locator

LEGIBLE = 4.5
"""Contrast of small text, at least, as WCAG 2.2 has it (success criterion 1.4.3)."""
CONTRAST = """(element) => {
    const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const layers = [];
    for (let at = element; at; at = at.parentElement ?? at.getRootNode().host) layers.unshift(at);
    context.fillStyle = "white";
    context.fillRect(0, 0, 1, 1);
    const light = () => {
        const linear = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) =>
            value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const paint = (color) => { context.fillStyle = color; context.fillRect(0, 0, 1, 1); return light(); };
    let below = 1;
    for (const layer of layers) below = paint(getComputedStyle(layer).backgroundColor);
    const text = paint(getComputedStyle(element).color);
    return (Math.max(text, below) + 0.05) / (Math.min(text, below) + 0.05);
}"""
SCROLLING = """(view) => [...view.querySelectorAll("*")].filter((one) =>
    ["auto", "scroll"].includes(getComputedStyle(one).overflowY) && one.scrollHeight > one.clientHeight + 1
).map((one) => one.classList[0])"""


def assert_laid_out(view: Locator, *, stacked: bool = False) -> None:
    """The panes lie beside one another inside of the view, or `stacked` below one another, and can be read.

    Stacked, the view is as high as its panes, and nothing in it scrolls up and down by itself.
    """
    whole = box(view)
    boxes = [box(pane) for pane in view.locator(".etv-pane").all()]
    assert len(boxes) == 3
    if stacked:
        table, tensor = (box(view.locator(f".etv-{name}-pane")) for name in ("table", "tensor"))
        assert table["y"] + table["height"] <= tensor["y"] + 1
        assert all(one["width"] >= whole["width"] - 20 for one in boxes)
        assert view.evaluate(SCROLLING) == []
    else:
        assert all(inside(one, whole) for one in boxes)
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
    assert view.evaluate("(element) => element.scrollWidth <= element.clientWidth")
    names = view.locator(".etv-table [data-row], [role=treegrid] [data-node], .etv-detail-head, .etv-verdict")
    legible = [name for name in names.all() if name.is_visible()]
    assert legible
    for name in legible:
        assert name.evaluate(CONTRAST) >= LEGIBLE, name.inner_text()


def box(element: Locator) -> FloatRect:
    """Where an element is."""
    found = element.bounding_box()
    assert found is not None
    assert found["width"] > 0
    assert found["height"] > 0
    return found


def inside(one: FloatRect, whole: FloatRect, slack: float = 1.0) -> bool:
    """Whether a box lies in another."""
    return all(
        one[start] >= whole[start] - slack and one[start] + one[size] <= whole[start] + whole[size] + slack
        for start, size in (("x", "width"), ("y", "height"))
    )


def overlap(a: FloatRect, b: FloatRect, slack: float = 1.0) -> bool:
    """Whether two boxes have a common part."""
    return all(
        min(a[start] + a[size], b[start] + b[size]) - max(a[start], b[start]) > slack
        for start, size in (("x", "width"), ("y", "height"))
    )
