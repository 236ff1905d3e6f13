"""The view at 50,000 rows and 100,000 nodes, in headless Chromium: ``python -m benchmarks.view``.

The payload is that of a real deep program, repeated until it is large enough, in a report. Times are those of the page:
from an event until the frame after it was painted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import etviz
from etviz.view.pages.container import laid_out, packed
from etviz.view.pages.html import view_page
from etviz.view.payload.program_payload import build_payload
from tests.browser.chromium import FLAGS, find_chromium
from tests.programs import EncoderBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

ROWS: Final = 50_000
NODES: Final = 100_000
BLOCKS: Final = 8
_FRAME: Final = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"


class Deep(nn.Module):
    """Encoder blocks, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(16) for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[1, n, 16]`` to the same shape."""
        for block in self.blocks:
            x = block(x)
        return x


class Blown:
    """A payload whose rows and nodes are repeated."""

    def __init__(self, payload: dict[str, Any], buffers: list[bytes]) -> None:
        self._old = buffers
        self.buffers: list[bytes] = []
        program = payload["trees"]["program"]
        self.times = max(-(-ROWS // payload["rows"]), -(-NODES // (program["nodes"] - 1)))
        rows = min(self.times, -(-ROWS // payload["rows"]))
        self.payload = payload | {
            "rows": payload["rows"] * rows,
            "compared": payload["rows"] * rows,
            "columns": [self._column(column, rows) for column in payload["columns"]],
            "unused": self._add(np.tile(self._array(payload["unused"]), rows), payload["unused"]),
            "zoomable": None,
            "zooms": [],
            "trees": {name: self._tree(tree, rows) for name, tree in payload["trees"].items()},
            "edges": self._add(self._array(payload["edges"]), payload["edges"]),
        }
        self.payload["summary"] = payload["summary"] | {"finding": None}

    def _array(self, about: dict[str, Any]) -> Any:
        return np.frombuffer(self._old[about["buffer"]], about["dtype"])

    def _add(self, values: Any, about: dict[str, Any]) -> dict[str, Any]:
        self.buffers.append(np.ascontiguousarray(values, about["dtype"]).tobytes())
        return {"buffer": len(self.buffers) - 1, "dtype": about["dtype"], "length": len(values)}

    def _column(self, column: dict[str, Any], rows: int) -> dict[str, Any]:
        """Numbers differ a little in each copy, so that sorting has something to do."""
        values = self._array(column["values"])
        tiled = np.tile(values, rows)
        if column["name"] == "instruction":
            tiled = tiled + np.repeat(np.arange(rows), len(values)) * (values.max() + 1)
        elif column["kind"] == "number" and column["name"] != "event_block":
            tiled = tiled * np.random.default_rng(0).uniform(0.5, 2, len(tiled))
        found = column | {"values": self._add(tiled, column["values"])}
        if "limits" in column:
            found["limits"] = [self._add(np.tile(self._array(ends), rows), ends) for ends in column["limits"]]
        return found

    def _tree(self, tree: dict[str, Any], rows: int) -> dict[str, Any]:
        """All nodes below the root stand there several times."""
        nodes = tree["nodes"] - 1
        times = max(rows, -(-NODES // nodes))
        found = tree | {"nodes": 1 + nodes * times}
        for name in ("depth", "size", "instruction", "latency", "operators"):
            values = self._array(tree[name])
            found[name] = self._add(np.concatenate([values[:1], np.tile(values[1:], times)]), tree[name])
        found["size"] = self._add(
            np.concatenate([[1 + nodes * times], np.tile(self._array(tree["size"])[1:], times)]), tree["size"]
        )
        for name in ("kind", "label", "backend", "op", "shape", "module", "source", "stack"):
            values = self._array(tree[name])
            found[name] = self._add(np.concatenate([values[:1], np.tile(values[1:], times)]), tree[name])
        places = self._array(tree["row_node"])
        shifts = np.repeat(np.arange(rows), len(places)) * nodes
        tiled = np.tile(places, rows)
        found["row_node"] = self._add(np.where(tiled > 0, tiled + shifts, tiled), tree["row_node"])
        return found


def write_page(path: Path) -> tuple[int, int]:
    """A report of the repeated program; returns its rows and nodes."""
    torch.manual_seed(0)
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    inspection = etviz.debug(Deep().eval(), (torch.randn(1, 8, 16),), partitioner=[XnnpackPartitioner()])
    blown = Blown(*build_payload(inspection.analysis))
    path.write_bytes(view_page("deep", "", packed(laid_out((blown.payload, blown.buffers), {}, {}, {}))))
    return blown.payload["rows"], blown.payload["trees"]["program"]["nodes"]


def timed(page: Page, act: str) -> float:
    """Milliseconds from an event until the frame after it."""
    return page.evaluate(f"async () => {{ const start = performance.now(); {act}; return (await {_FRAME}) - start; }}")


def scrolled(page: Page, by: str) -> list[float]:
    """Milliseconds of each of 120 frames in which the table is scrolled."""
    return page.evaluate(
        f"""async () => {{
            const table = document.querySelector(".etv-table"), took = [];
            let last = await {_FRAME.replace("setTimeout(() => done(performance.now()))", "done(performance.now())")};
            for (let k = 0; k < 120; k++) {{
                table.scrollTop = {by};
                const now = await new Promise((done) => requestAnimationFrame(done));
                took.push(now - last);
                last = now;
            }}
            return took;
        }}"""
    )


_PAINTED: Final = """async () => {
    while (!performance.getEntriesByName("etviz-painted").length) await new Promise(requestAnimationFrame);
}"""
"""Waits for the page's own mark, which its content policy lets no string do."""
CLICK: Final = "document.querySelector('{}').click()"
ROW: Final = "document.querySelectorAll('.etv-table [data-row]')[{}].click()"
TYPE: Final = (
    "const box = document.querySelector('.etv-search input'); box.value = '{}'; "
    "box.dispatchEvent(new Event('input', {{bubbles: true}}))"
)


def measure(page: Page, repeat: int) -> dict[str, tuple[float, float]]:
    """What was measured, and what it should be at most at full speed, in milliseconds (the heap in MB)."""

    def median(act: Callable[[int], str]) -> float:
        return statistics.median(timed(page, act(k)) for k in range(repeat))

    columns = ["rmse", "severity"]
    found = {
        "first paint": (
            page.evaluate(
                "performance.getEntriesByName('etviz-painted')[0].startTime"
                " - performance.getEntriesByName('etviz-data')[0].startTime"
            ),
            300.0,
        ),
        "click a row": (median(lambda k: ROW.format(k % 8)), 100.0),
        "sort by numbers": (median(lambda k: CLICK.format(f"[data-column={columns[k % 2]}]")), 50.0),
        "sort by text": (median(lambda k: CLICK.format("[data-column=op]")), 100.0),
        "filter key": (median(lambda k: TYPE.format("layer_norm"[: 1 + k % 10])), 50.0),
        "filter by a limit": (median(lambda k: TYPE.format(f"severity>{k % 5}")), 50.0),
    }
    timed(page, TYPE.format(""))
    found |= {
        "toggle a node": (median(lambda k: CLICK.format(".etv-twisty-on")), 16.0),
        "scroll, p95 of a frame": (float(np.percentile(scrolled(page, "table.scrollTop + 90"), 95)), 33.0),
        "jump, p95 of a frame": (
            float(np.percentile(scrolled(page, "(k * 7919 % 1000) / 1000 * table.scrollHeight"), 95)),
            33.0,
        ),
        "heap (MB)": (page.evaluate("(gc(), performance.memory.usedJSHeapSize)") / 1e6, 60.0),
    }
    return found


def main() -> None:
    """Measure and print."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(prog="python -m benchmarks.view", description=__doc__)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--slower", type=float, default=1, metavar="TIMES", help="slow the page's processor down")
    parser.add_argument("--json", type=Path, help="also write the figures to a file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        rows, nodes = write_page(path)
        flags = [*FLAGS, "--enable-precise-memory-info", "--js-flags=--expose-gc"]
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=flags)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": options.slower})
        page.goto(path.as_uri())
        page.locator(".etv-table [data-row]").first.wait_for()
        page.evaluate(_PAINTED)
        found = measure(page, options.repeat)
        browser.close()
    table = Table(
        title=f"The view of {rows:,} rows and {nodes:,} nodes, medians of {options.repeat}, {options.slower:g}x slower"
    )
    for head in ("what", "ms", "at most"):
        table.add_column(head, justify="left" if head == "what" else "right")
    for name, (took, most) in found.items():
        table.add_row(name, f"{took:.1f}", f"{most:.0f}", style="" if took <= most else "red")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({name: took for name, (took, _) in found.items()}, indent=1), "utf-8")


if __name__ == "__main__":
    main()
