"""JupyterLab, kernel, browser and anywidget work together here before etviz is tried in them."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.network import leaves_machine

DOUBLER = """
    import anywidget
    import traitlets

    class Doubler(anywidget.AnyWidget):
        _esm = '''
        export default {
          render({ model, el }) {
            el.innerHTML = "<div class='doubler'><button>double</button> <output>1</output></div>";
            const output = el.querySelector("output");
            el.querySelector("button").onclick = () => model.send({ double: Number(output.value) });
            model.on("msg:custom", (answer) => { output.value = answer.value; });
          },
        };
        '''

        def __init__(self):
            super().__init__()
            self.on_msg(lambda _, content, buffers: self.send({"value": 2 * content["double"]}))

    Doubler()
"""


@pytest.mark.parametrize("mode", ["lab", "doc"])
def test_a_click_reaches_the_kernel_and_its_answer_the_page(lab: Lab, mode: Literal["lab", "doc"]) -> None:
    lab.open("doubler", DOUBLER, mode=mode)
    lab.run_all()
    widget = lab.output(".doubler")
    for expected in ("2", "4", "8"):
        widget.locator("button").click()
        expect(widget.locator("output")).to_have_text(expected)
    assert lab.console_errors == []


def test_the_theme_of_jupyterlab_can_be_changed(lab: Lab) -> None:
    lab.open("theme", "print('hello')")
    lab.run_all()
    scheme = "() => getComputedStyle(document.body).getPropertyValue('color-scheme')"
    for theme in ("dark", "light"):
        lab.set_theme(theme)
        assert theme in lab.page.evaluate(scheme)
        assert lab.screenshot(f"harness-{theme}").stat().st_size > 10_000


def test_a_cell_that_raises_fails_the_run_with_its_traceback(lab: Lab) -> None:
    lab.open("raises", "1 / 0")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        lab.run_all()


def test_requests_that_leave_the_machine_are_stopped_and_counted(lab: Lab) -> None:
    lab.open("offline", "1 + 1")
    asked = "https://example.org/library.js"
    fetch = "(url) => fetch(url).then(() => 'answered', () => 'stopped')"
    assert lab.page.evaluate(fetch, asked) == "stopped"
    with pytest.raises(AssertionError, match=r"example\.org"):
        lab.offline.assert_offline()
    lab.offline.requests.clear()


def test_outputs_are_those_of_the_notebook(lab: Lab) -> None:
    lab.open("outputs", "21 * 2", "print('done')")
    lab.run_all()
    value, text = lab.outputs()
    assert value[0]["data"]["text/plain"] == "42"
    assert json.dumps(text).count("done") == 1


@pytest.mark.parametrize(
    ("url", "leaves"),
    [
        ("http://127.0.0.1:8888/lab", False),
        ("ws://localhost:8888/api/kernels", False),
        ("data:text/plain,hello", False),
        ("blob:http://127.0.0.1:8888/1234", False),
        ("https://example.org/a.js", True),
        ("wss://example.org/socket", True),
        ("http://127.0.0.1.example.org/", True),
    ],
)
def test_only_loopback_and_inline_addresses_count_as_local(url: str, leaves: bool) -> None:
    assert leaves_machine(url) is leaves
