"""Makes the pictures of the README and of these pages from the demo, so that they never lie: ``make pictures``.

The first minute is what a stranger sees: the real output of ``etviz demo``, then its report in Chromium.
"""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

import etviz
from benchmarks.mobilenet import mobilenet
from etviz.artifacts.program.raw_values import write_inputs
from etviz.demo.language_model import run_language_demo
from etviz.pipeline.lower import lower
from tests.backend.loops import LoopsPartitioner
from tests.backend.test_inside import Net
from tests.browser.chromium import launch
from tests.browser.lab import open_lab
from tests.browser.server import JupyterServer
from tests.calls.decoders import Decoder
from tests.cpp_runner import build
from tests.kernels import Kernels
from tests.kinds.making import Made, make
from tests.parity.test_port_card import Original, Words
from tests.shelf import Shelf

if TYPE_CHECKING:
    import pandas as pd

IMAGES: Final = Path(__file__).parent / "images"
SIZE: Final = {"width": 1280, "height": 860}
LARGEST: Final = 1_000_000
"""Bytes of the moving picture."""
_LOOK: Final = 180.0
"""Seconds for the look inside of the culprit's delegate."""
_COLUMNS: Final = 96
_TERMINAL: Final = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #11151c; color: #dde3ea; font: 14px/1.45 "DejaVu Sans Mono", monospace; }}
header {{ padding: 8px 20px; background: #1c222c; color: #9aa7b5; }}
pre {{ margin: 0; padding: 14px 20px; font: inherit; white-space: pre-wrap; }}
</style><header>{title}</header><pre>{text}</pre>"""
_FRAME: Final = """<!doctype html><meta charset="utf-8"><style>
main {{ display: inline-block; padding: 12px 16px; color: #1b2027; font: 13px/1.5 system-ui, sans-serif; }}
pre {{ margin: 0 0 8px; color: #56606c; font: 13px "DejaVu Sans Mono", monospace; }}
table {{ border-collapse: collapse; border: 0; }}
td, th {{ padding: 3px 12px; border: 0; border-bottom: 1px solid #e1e5ea; text-align: right; white-space: nowrap; }}
td:nth-child(-n+2), th:nth-child(-n+2) {{ text-align: left; }}
</style><main><pre>{title}</pre>{table}</main>"""
_PANEL: Final = (
    'import etviz\ninspection = etviz.load("planted/etdump.etdp", etrecord="planted/etrecord.bin",\n'
    '                        debug_buffer="planted/debug_buffer.bin", pte="planted/model.pte")',
    "inspection.show(sidebar=True)",
)


@dataclass(frozen=True, slots=True)
class Line:
    """What a command had printed after some seconds."""

    seconds: float
    text: str


def main(which: str = "") -> None:
    """Make all pictures, or those of one kind (``python -m docs.pictures findings``, ``tokens`` or ``ethos``)."""
    IMAGES.mkdir(exist_ok=True)
    if which == "ethos":
        with tempfile.TemporaryDirectory(prefix="etviz-pictures-") as scratch, sync_playwright() as playwright:
            return ethos(launch(playwright), Path(scratch))
    if which in ("", "tokens"):
        with tempfile.TemporaryDirectory(prefix="etviz-pictures-") as scratch, sync_playwright() as playwright:
            tokens(launch(playwright), Path(scratch))
        if which:
            return None
    os.environ["ETVIZ_LOOK_INSIDE"] = "auto"  # the tests' own setting is to leave it
    with tempfile.TemporaryDirectory(prefix="etviz-pictures-") as scratch:
        kernels = Kernels(Path(scratch), lowers=False)
        server = JupyterServer(Path(scratch) / "jupyter", kernels)
        try:
            folder = server.root / "etviz-demo"
            demo = list(run(server.root, "demo", "--out", "etviz-demo"))
            why = list(run(server.root, "why", "etviz-demo/planted"))
            with sync_playwright() as playwright:
                browser = launch(playwright)
                findings(browser, folder, Path(scratch) / "findings")
                if which == "findings":
                    return browser.close()
                frames = [*terminal(browser, "make demo", demo), *report(browser, folder / "report.html")]
                save_moving(frames, IMAGES / "first-minute.gif")
                still(browser, "etviz why etviz-demo/planted", why[-1].text, IMAGES / "why.png")
                panel(browser, server, folder)
                browser.close()
        finally:
            server.stop()
            kernels.stop()


def run(root: Path, *arguments: str) -> Iterator[Line]:
    """Run a command as in a terminal; gives what it had printed, line by line, as it comes."""
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(_COLUMNS), "TQDM_DISABLE": "1", "TERM": "xterm"}
    command = [sys.executable, "-u", "-m", "etviz.cli", *arguments]
    start, text = time.perf_counter(), ""
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    ) as process:
        for line in process.stdout or ():
            text += line
            yield Line(time.perf_counter() - start, text)
    if process.returncode not in ((0, 1) if arguments[0] == "why" else (0,)):  # 1: there is a fault to tell of
        raise SystemExit(f"etviz {' '.join(arguments)} ended with {process.returncode}")


def _html(text: str) -> str:
    """Terminal output as HTML."""
    console = Console(record=True, file=io.StringIO(), width=_COLUMNS, force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text), end="")
    return console.export_html(theme=DIMMED_MONOKAI, inline_styles=True, code_format="{code}")


def _page(browser: Browser, size: Any = SIZE) -> Page:
    return browser.new_context(viewport=size, color_scheme="light").new_page()


def terminal(browser: Browser, title: str, lines: list[Line]) -> Iterator[tuple[bytes, int]]:
    """A frame for each line that came after a while, and one for the end; with the milliseconds that each stays."""
    page = _page(browser)
    shown = [line for line, after in itertools.pairwise(lines) if after.seconds - line.seconds > 0.3]
    for line in [*shown, lines[-1]]:
        page.set_content(_TERMINAL.format(title=f"$ {title}", text=_html(line.text)))
        page.evaluate("() => window.scrollTo(0, document.body.scrollHeight)")
        yield page.screenshot(), 700 if line is not lines[-1] else 5000
    page.context.close()


def report(browser: Browser, path: Path) -> Iterator[tuple[bytes, int]]:
    """What one sees and clicks in the report; its first sight is the README's picture of the view."""
    page = _page(browser)
    page.goto(path.as_uri())
    page.locator(".etviz .etv-table [data-row]").first.wait_for()
    page.wait_for_timeout(600)
    yield page.screenshot(), 3500
    for name in ("Error map", "Channels"):
        page.get_by_role("tab", name=name).click()
        page.mouse.move(0, 0)
        page.wait_for_timeout(400)
        yield page.screenshot(), 2500
    wide = _page(browser, {"width": 1400, "height": 860})
    wide.goto(path.as_uri())
    wide.locator(".etviz .etv-table [data-row]").first.click()  # the delegate, whose map the report holds
    wide.get_by_role("tab", name="Error map").click()
    wide.wait_for_timeout(600)
    wide.screenshot(path=IMAGES / "widget.png")
    smaller(IMAGES / "widget.png")
    for other in (page, wide):
        other.context.close()


def findings(browser: Browser, folder: Path, scratch: Path) -> None:
    """What the docs tell of: timeline, compare view, stage ladder, ledger, heat map of steps, a delegate that logs."""
    scratch.mkdir()
    fine, planted = etviz.load(folder), etviz.load(folder / "planted")
    for inspection in (fine, planted):
        inspection.look_inside()
    fine.to_html(scratch / "fine.html")
    view(browser, scratch / "fine.html", "timeline", {"width": 1280, "height": 620}, "m")
    etviz.compare(fine, planted, labels=["fine", "planted"]).to_html(scratch / "compare.html")
    view(browser, scratch / "compare.html", "compare", {"width": 1280, "height": 760})
    ledger = fine.time.ledger()[
        ["instruction", "name", "backend", "operator_count", "bytes_in", "bytes_out", "latency_ms"]
    ]
    whole = dict.fromkeys(("operator_count", "bytes_in", "bytes_out"), "Int64")
    frame(browser, "inspection.time.ledger()", ledger.astype(whole), "ledger")
    stages = fine.ladder()
    stages = stages[stages["operator"].isin(["", "layer_norm"]) | (stages["operator"] == stages["operator"].iloc[0])]
    columns = ["operator", "module", "stage", "against", "rmse", "sqnr_db", "severity", "status"]
    frame(browser, "inspection.ladder()", stages[columns].head(12), "ladder")
    shelf = Shelf(scratch / "shelf")
    steps(shelf)
    logging_delegate(browser, shelf, scratch)


def tokens(browser: Browser, folder: Path) -> None:
    """The planted fault of ``etviz demo --llm``, with its cache and what shifted the margin; and a port card."""
    run = run_language_demo(folder, lambda said: None).planted
    run.to_html(folder / "tokens.html", title="Llama, 8da4w")
    view(browser, folder / "tokens.html", "tokens", {"width": 1280, "height": 760})
    port: Any = Decoder()
    weight = port.layers[1].out.weight
    weight.data = weight.data.T.clone()
    xnnpack: dict[str, Any] = {"partitioner": [XnnpackPartitioner()]}
    words = Words()
    ported = etviz.decode(port, "w3 w1 w4 w1 w5", tokenizer=words, steps=5, **xnnpack)
    ported.card = etviz.port_card(port, Original(), "w3 w1 w4 w1 w5 w9", tokenizer=words, **xnnpack)
    ported.to_html(folder / "card.html")
    view(browser, folder / "card.html", "port-card", {"width": 1280, "height": 860})


def ethos(browser: Browser, folder: Path) -> None:
    """MobileNetV2 in int8 for Ethos-U55, with its delegates open; in .venv-tosa, after ``make test-tosa`` made that."""
    torch.manual_seed(0)
    images = [(torch.randn(1, 3, 64, 64),) for _ in range(8)]
    recipe = etviz.recipe("ethos-u55", calibration=images)
    inspection = etviz.debug(mobilenet(), images[0], recipe, runner="emulated", workdir=folder)
    inspection.look_inside()
    inspection.to_html(folder / "ethos.html", title="MobileNetV2, int8, Ethos-U55")
    view(browser, folder / "ethos.html", "ethos-u55", {"width": 1280, "height": 760})


def view(browser: Browser, path: Path, name: str, size: Any, *keys: str) -> None:
    """A report, after some keys were pressed on its first row."""
    page = _page(browser, size)
    page.goto(path.as_uri())
    page.locator(".etviz .etv-table [data-row]").first.focus()
    for key in keys:
        page.keyboard.press(key)
    page.mouse.move(0, 0)
    page.wait_for_timeout(800)
    page.screenshot(path=IMAGES / f"{name}.png")
    smaller(IMAGES / f"{name}.png")
    page.context.close()


def frame(browser: Browser, title: str, table: pd.DataFrame, name: str) -> None:
    """A table as a notebook shows it."""
    page = _page(browser, {"width": 900, "height": 100})
    page.set_content(_FRAME.format(title=title, table=table.to_html(index=False, float_format="{:.3g}".format)))
    page.locator("main").screenshot(path=IMAGES / f"{name}.png")
    smaller(IMAGES / f"{name}.png")
    page.context.close()


def steps(shelf: Shelf) -> None:
    """Executions × layers of a program that ran on several inputs."""

    def made(name: str) -> Made:
        return make(name, shelf, made)

    axes = made("different").load("exact").plot.steps()
    if figure := axes.get_figure(root=True):
        figure.savefig(IMAGES / "steps.png", dpi=100, bbox_inches="tight")
    smaller(IMAGES / "steps.png")


def logging_delegate(browser: Browser, shelf: Shelf, scratch: Path) -> None:
    """A delegate that logs its values: its operators are rows of the run itself."""
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(3, 6)
    lowered = lower(model, (x,), scratch, partitioner=[LoopsPartitioner()])
    files = write_inputs(scratch, [x])
    build(shelf, tracer=True)(scratch, "--model", lowered.pte, "--inputs", files[0], "--dump-intermediate-outputs")
    inspection = etviz.load(
        scratch / "etdump.etdp",
        debug_buffer=scratch / "debug_output.bin",
        pte=lowered.pte,
        record=lowered.record,
        etrecord=lowered.etrecord,
        inputs=(x,),
    )
    inspection.to_html(scratch / "inside.html")
    view(browser, scratch / "inside.html", "inside", {"width": 1280, "height": 560})


def still(browser: Browser, title: str, text: str, path: Path) -> None:
    """A terminal at rest, as high as its text."""
    page = _page(browser, {"width": 900, "height": 100})
    page.set_content(_TERMINAL.format(title=f"$ {title}", text=_html(text)))
    page.screenshot(path=path, full_page=True)
    smaller(path)
    page.context.close()


def panel(browser: Browser, server: JupyterServer, folder: Path) -> None:
    """The side panel of JupyterLab."""
    (folder / "planted").rename(server.root / "planted")
    with open_lab(browser, server, IMAGES) as lab:
        lab.open("panel", *_PANEL)
        lab.run_all()
        lab.page.locator(".etviz-panel .etv-table [data-inner]").first.wait_for(timeout=_LOOK * 1000)
        lab.page.wait_for_timeout(1000)
        smaller(lab.screenshot("panel"))


def smaller(path: Path, colors: int | None = None) -> None:
    """Pack a picture as well as PNG can: every colour as it is, or so many."""
    picture = Image.open(path).convert("RGB")
    if colors is not None:
        picture = picture.quantize(colors, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)


def save_moving(frames: list[tuple[bytes, int]], path: Path) -> None:
    """Write the frames as a GIF that plays again and again.

    Raises
    ------
    SystemExit
        If it is larger than a README's picture may be.
    """
    plain = (Image.open(io.BytesIO(data)).convert("RGB") for data, _ in frames)
    first, *others = (picture.quantize(128, dither=Image.Dither.NONE) for picture in plain)
    durations = [stay for _, stay in frames]
    first.save(path, save_all=True, append_images=others, duration=durations, loop=0, optimize=True)
    if path.stat().st_size > LARGEST:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes, more than {LARGEST:,}")


if __name__ == "__main__":
    main(*sys.argv[1:])
