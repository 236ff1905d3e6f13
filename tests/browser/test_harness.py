"""JupyterLab, kernel, browser and anywidget work together here before etviz is tried in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.network import leaves_machine
from tests.browser.server import SIDE_PANEL

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


def test_the_side_panel_that_is_installed_is_the_one_that_was_built() -> None:
    """JupyterLab here takes the built one, whatever is installed; `make install` brings it to where users' looks."""
    installed = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "etviz"
    for built in SIDE_PANEL.rglob("*"):
        if built.is_file():
            assert (installed / built.relative_to(SIDE_PANEL)).read_bytes() == built.read_bytes()
    assert (SIDE_PANEL / "package.json").exists()


@pytest.fixture(scope="module")
def failure(lab: Lab) -> str:
    """A notebook in the single-document view whose last cell raises, and how running it failed."""
    lab.open("harness", DOUBLER, "21 * 2", "print('done')", "1 / 0", mode="doc")
    with pytest.raises(AssertionError) as found:
        lab.run_all()
    return str(found.value)


def test_a_cell_that_raises_fails_the_run_with_its_traceback(failure: str) -> None:
    assert "ZeroDivisionError" in failure


@pytest.mark.usefixtures("failure")
def test_a_click_reaches_the_kernel_and_its_answer_the_page(lab: Lab) -> None:
    widget = lab.output(".doubler")
    for expected in ("2", "4", "8"):
        widget.locator("button").click()
        expect(widget.locator("output")).to_have_text(expected)
    assert lab.console_errors == []


@pytest.mark.usefixtures("failure")
def test_outputs_are_those_of_the_notebook(lab: Lab) -> None:
    _, (value,), (text,), _ = lab.outputs()
    assert value["data"]["text/plain"] == "42"
    assert "".join(text["text"]) == "done\n"


@pytest.mark.usefixtures("failure")
def test_requests_that_leave_the_machine_are_stopped_and_counted(lab: Lab) -> None:
    asked = "https://example.org/library.js"
    fetch = "(url) => fetch(url).then(() => 'answered', () => 'stopped')"
    assert lab.page.evaluate(fetch, asked) == "stopped"
    with pytest.raises(AssertionError, match=r"example\.org"):
        lab.offline.assert_offline()
    lab.offline.requests.clear()


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
