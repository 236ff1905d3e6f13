"""The tokens of a small trained language model: in a cell, in the side panel and in a report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, expect

import etviz
from etviz.decoding.result import Decode
from tests.browser.accessibility import serious
from tests.browser.geometry import box
from tests.browser.lab import Lab
from tests.decoding.trained import Characters, program, prompts
from tests.shelf import Shelf

STEPS = 6
DECODE = """
    import etviz
    from tests.decoding.trained import Characters, prompts
    run = etviz.decode({0!r}, prompts(1, 6), tokenizer=Characters(), steps={1})
"""


class Hostile(Characters):
    """A tokenizer whose texts hold markup, control characters and marks of direction."""

    def decode(self, ids: Sequence[int]) -> str:
        return f"<img src=x onerror=alert(1)>\u202e\x07{super().decode(ids)}"


@pytest.fixture(scope="module")
def trained(shelf: Shelf) -> Path:
    return program(shelf, "custom_8da4w")


@pytest.fixture(scope="module")
def run(trained: Path) -> Decode:
    return etviz.decode(trained, prompts(1, 6), tokenizer=Hostile(), steps=STEPS)


@pytest.fixture(scope="module")
def report(run: Decode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report that holds two calls."""
    for step in (4, 8):
        run.view.state_of(f"0:{step}")
    return run.to_html(tmp_path_factory.mktemp("tokens") / "tokens.html")


@pytest.fixture
def opened(browser: Browser, report: Path) -> Iterator[Callable[..., Locator]]:
    contexts = []

    def make(width: int = 1440, scheme: Literal["light", "dark"] = "light") -> Locator:
        context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.goto(report.as_uri())
        view = page.locator(".etviz")
        view.locator(".etv-token").first.wait_for()
        return view

    yield make
    for context in contexts:
        context.close()


def chosen(view: Locator) -> Locator:
    return view.locator(".etv-token[aria-selected=true]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_keeps_anyone_out(
    opened: Callable[..., Locator], scheme: Literal["light", "dark"], screenshots: Path
) -> None:
    for width in (1440, 480):
        view = opened(width, scheme)
        assert serious(view) == []
        assert view.evaluate("(view) => view.scrollWidth <= view.clientWidth")
        assert box(view.locator(".etv-token-list"))["width"] > 0.9 * box(view)["width"]
        view.page.screenshot(path=screenshots / f"tokens-{scheme}-{width}.png")


def test_texts_of_a_tokenizer_are_shown_and_never_followed(opened: Callable[..., Locator], run: Decode) -> None:
    view = opened()
    texts = view.locator(".etv-token bdi").all_inner_texts()
    assert len(texts) == len(run.steps)
    assert all(text.startswith("<img src=x onerror=alert(1)><U+202E><U+0007>") for text in texts)
    assert view.locator("img").count() == 0
    expect(chosen(view)).to_have_attribute("aria-label", re.compile("position 4, call 4: .*KL .* nats; margin"))


def test_keys_go_from_token_to_token_and_its_call_is_shown(opened: Callable[..., Locator], run: Decode) -> None:
    """Figures on screen are those of Python's table and of that call's Inspection."""
    view = opened()
    expect(chosen(view)).to_have_attribute("data-token", "4")
    expect(view.locator("input[type=search]")).to_have_value("run:4")
    largest = (
        run.at(4).gaps.query("input_index == 4").drop(index=list(run.at(4).analysis.tables.unused), errors="ignore")
    )
    first = view.locator(".etv-table [data-row][aria-rowindex='2']")
    expect(first).to_have_attribute("data-row", str(largest["introduced_severity"].idxmax()))
    view.locator(".etv-token-list").focus()
    for _ in range(4):
        view.page.keyboard.press("]")
    expect(chosen(view)).to_have_attribute("data-token", "8")
    expect(view.locator("input[type=search]")).to_have_value("run:8")
    view.page.keyboard.press("[")
    expect(view.locator(".etv-token-reading")).to_contain_text("does not hold that call")
    kl = run.steps["kl"][7]
    said = re.search(r"KL (\S+) nats", view.locator(".etv-token-reading").inner_text())
    assert said is not None
    assert float(said[1]) == pytest.approx(kl, rel=5e-3)


def test_the_map_has_the_worst_introduced_severity_of_each_layer(opened: Callable[..., Locator], run: Decode) -> None:
    view = opened()
    gaps = run.at(8).gaps
    rows = gaps[(gaps["input_index"] == 8) & gaps["module"].str.contains("layers.1")]
    plot = view.locator(".etv-step-map-plot")
    place = box(plot)
    layers = view.locator(".etv-step-map-head")
    for share in (0.05, 0.3, 0.55, 0.8, 0.95):
        plot.hover(position={"x": place["width"] * 8.5 / 11, "y": place["height"] * share})
        if "layers.1, call 8" in layers.inner_text():
            break
    expect(layers).to_contain_text("layers.1, call 8")
    shown = float(layers.inner_text().rsplit(" ", 1)[1])
    assert shown == pytest.approx(rows["introduced_severity"].max(), rel=6e-3)


def test_a_click_opens_a_call_in_a_cell_and_in_the_side_panel(lab: Lab, trained: Path) -> None:
    lab.open(
        "tokens",
        "import sys; sys.path[:0] = [" + repr(str(Path(__file__).parents[2])) + "]",
        DECODE.format(str(trained), STEPS),
        "run",
    )
    lab.run_all()
    view = lab.output(".etviz")
    expect(view.locator(".etv-token")).to_have_count(11)
    expect(view.locator(".etv-empty-title")).to_have_text("No call is open")
    view.locator("[data-token='2']").click()
    expect(view.locator(".etv-table [data-row]").first).to_be_visible(timeout=120_000)
    expect(view.locator("input[type=search]")).to_have_value("run:2")
    lab.wait_for_python("run.view.opened[0].call", (0, 2))
    lab.screenshot("tokens-cell", view)
    view.get_by_role("button", name="Move to the side panel").click()
    panel = lab.page.locator("#jp-right-stack .etviz-panel:not(.lm-mod-hidden)")
    expect(panel.locator(".etv-token")).to_have_count(11)
    panel.locator(".etv-table [data-row]").first.wait_for()
    lab.screenshot("tokens-panel")
    assert lab.console_errors == []
