"""`etviz mcp`: a Model Context Protocol server, so that an agent can open artifacts and ask what went wrong.

It speaks over standard input and output, and opens only files below the folder that it was started in.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from etviz.artifacts.files import path_of
from etviz.artifacts.ledger import identity
from etviz.cli import artifacts as given
from etviz.cli.console import plain_json
from etviz.errors import EtvizError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.mcpserver import MCPServer

    from etviz.inspection import Inspection

_OPEN: Final = 8
"""Programs that are held open; the one that was opened first goes first."""
_MOST_ROWS: Final = 100
_PICTURES: Final = ("gaps", "histogram", "error_map")
_ABOUT: Final = (
    "Tells which operator broke the numerics of a PyTorch model on its way to ExecuTorch, and why. Open a folder of "
    "artifacts first; `culprits` ranks values by what their operator itself added (introduced), `look_inside` opens a "
    "delegate, `attribute` says which share of the final output's error each instruction caused."
)


def mcp(
    folder: Annotated[Path, typer.Argument(help="Only files below this folder are opened.")] = Path(),
) -> None:
    """Serve an agent by the Model Context Protocol, over standard input and output."""
    serving = server(folder)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own would wait for the thread that reads the input
    serving.run("stdio")


def server(folder: Path) -> MCPServer:
    """The server; see `mcp`.

    Raises
    ------
    UsageError
        If the SDK is not installed, or there is no such folder.
    """
    if importlib.util.find_spec("mcp") is None:
        raise UsageError("etviz mcp needs the Model Context Protocol's Python SDK: pip install 'etviz[mcp]'")
    from mcp.server.mcpserver import Image, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    desk = _Desk(folder)
    made = MCPServer("etviz", instructions=_ABOUT)

    def tool(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function whose errors are told to the agent in their own words."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def told(*arguments: Any, **named: Any) -> Any:
                try:
                    return plain_json(function(*arguments, **named))
                except EtvizError as error:
                    raise ToolError(str(error)) from error

            return made.tool(**options)(told)

        return register

    @tool()
    def open_artifacts(path: str) -> dict[str, Any]:
        """Open an ETDump, or a folder of artifacts, below the server's folder; returns verdict, facts and notes."""
        inspection = desk.open(path)
        digest = inspection.digest
        facts = {fact.label: fact.value for fact in digest.facts}
        return {"title": inspection.title, "verdict": digest.verdict, "facts": facts, "notes": list(digest.notes)}

    @tool()
    def culprits(path: str, n: int = 5, by: str = "introduced_severity") -> list[dict[str, Any]]:
        """The n worst rows of the gap table by a metric: the operators to look at first."""
        return desk.records(desk.open(path).worst(_few(n), by))

    @tool()
    def look_inside(path: str, row: int, n: int = 10) -> dict[str, Any]:
        """Look inside the delegate call of a row: its operators, worst first, and whether the run is faithful."""
        inner = desk.open(path).zoom(row)
        return {"faithful": inner.faithful, "message": inner.fidelity, "operators": desk.records(inner.worst(_few(n)))}

    @tool()
    def attribute(path: str, n: int = 10) -> dict[str, Any]:
        """Which share of the final output's error each instruction caused; the shares sum to about 1."""
        frame = desk.open(path).attribution()
        return {"sum": frame.attrs["sum"], "note": frame.attrs["note"], "shares": desk.records(frame.head(_few(n)))}

    @tool()
    def diagnose(path: str) -> dict[str, Any]:
        """The whole diagnosis: culprit, shares, fingerprints, the line of code, and what to do next."""
        return desk.open(path).diagnosis()

    @tool(structured_output=False)
    def picture(path: str, kind: str = "gaps", row: int = 0) -> Any:
        """A PNG: "gaps" of the whole program; "histogram" or "error_map" of one row."""
        return Image(data=desk.draw(path, kind, row), format="png")

    return made


def _few(n: int) -> int:
    """How many rows an agent gets that asks for so many."""
    return min(max(n, 1), _MOST_ROWS)


class _Desk:
    """What is open, and the folder that nothing leads out of."""

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()
        if not self._root.is_dir():
            raise UsageError(f"{folder}: there is no such folder")
        self._open: dict[Path, tuple[dict[str, str], Inspection]] = {}

    def open(self, path: str) -> Inspection:
        """The Inspection of a folder or an ETDump as it is now; a `UsageError` for what is not below the root."""
        place = self._below(self._root / path_of(path, "a folder of artifacts"))
        files = given.find(place).files() if place.is_dir() else [place]
        state = {str(self._below(item)): identity(item) for item in files if item.exists()}
        if place not in self._open or self._open[place][0] != state:
            self._open.pop(place, None)
            found = given.find(place)
            while len(self._open) >= _OPEN:
                self._open.pop(next(iter(self._open)))
            self._open[place] = state, found.load()
        return self._open[place][1]

    def _below(self, path: Path) -> Path:
        place = path.resolve()
        if not place.is_relative_to(self._root):
            raise UsageError(f"{path.name}: only files below {self._root.name}/ are opened")
        return place

    def records(self, frame: Any) -> list[dict[str, Any]]:
        """Rows as JSON can hold them."""
        from etviz.cli.gaps import records

        return json.loads(json.dumps(records(frame), default=lambda value: value.item()))

    def draw(self, path: str, kind: str, row: int) -> bytes:
        """A picture as PNG."""
        if kind not in _PICTURES:
            raise UsageError(f"kind must be one of {', '.join(_PICTURES)}, found {kind!r}")
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots()
        plot = self.open(path).plot
        if kind == "gaps":
            plot.gaps(axes)
        elif kind == "histogram":
            plot.histogram(row, ax=axes)
        else:
            plot.error_map(row, ax=axes)
        data = io.BytesIO()
        figure.savefig(data, format="png", bbox_inches="tight")
        plt.close(figure)
        return data.getvalue()
