"""The anywidget: the traits of a view state, and answers to the view's questions.

State is small and lives in traits; the view asks for data by message. A kernel subshell thread may answer while a cell
runs, but not before the kernel was idle once. The payload is therefore part of the state that a view opens with: the
first paint never waits for the cells below.
"""

from __future__ import annotations

import functools
import logging
import threading
from html import escape
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from etviz.errors import EtvizError, UsageError
from etviz.settings import options
from etviz.view.pages.html import STATIC
from etviz.view.payload.program import build_payload
from etviz.view.payload.tensor import BUILDERS, build_tensor
from etviz.view.payload.timeline import build_timeline
from etviz.view.widget.jobs import Jobs, Progress
from etviz.view.widget.panel import NO_PANEL, Area, PanelPlace, is_place, listed, place, settle
from etviz.view.widget.state import SHARED, ViewState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etviz.analysis.analysis import Analysis, Change

logger = logging.getLogger(__name__)

Answer = tuple[dict[str, Any], list[bytes]]
_MOST_BINS = 4096


def _closed(row: int, bins: int) -> Answer:
    raise UsageError("this view is closed")


def _opening(_value: None, widget: InspectionWidget) -> dict[str, Any] | None:
    """The payload as a part of the state that a view opens with; without it, the view asks for it."""
    try:
        result, buffers = widget.payload()
    except Exception:
        logger.debug("a view opens without its payload", exc_info=True)
        return None
    return {"result": result, "buffers": buffers}


class InspectionWidget(anywidget.AnyWidget):
    """The linked view of an Inspection.

    Parameters
    ----------
    state
        State of the view; its traits and the widget's are the same.
    panel
        A place in a side panel (`etviz.view.widget.panel`), or None for the cell.
    commands
        Commands that the view runs when it opens, each with its argument; the key ``?`` lists them:
        ``["row.select 8", "tab.map", "filter.set is:fault"]``.
    options
        Initial values of `selected`, `sort_by`, `descending`, `filter`, `expanded`, `height`, and ``layout=``.

    Raises
    ------
    TypeError
        If an option is unknown.
    """

    _esm = STATIC / "index.js"
    _css = STATIC / "index.css"

    selected = traitlets.Int(None, min=0, allow_none=True).tag(sync=True, echo_update=False)
    sort_by = traitlets.Unicode("introduced_severity").tag(sync=True, echo_update=False)
    descending = traitlets.Bool(True).tag(sync=True, echo_update=False)
    filter = traitlets.Unicode("").tag(sync=True, echo_update=False)
    expanded = traitlets.List(traitlets.Int(min=0)).tag(sync=True, echo_update=False)
    height = traitlets.Int(620, min=200, max=4000).tag(sync=True, echo_update=False)
    commands = traitlets.List(traitlets.Unicode()).tag(sync=True, echo_update=False)
    panel = traitlets.Dict(None, allow_none=True).tag(sync=True, echo_update=False)
    _opening = traitlets.Any(None, read_only=True).tag(sync=True, to_json=_opening)

    _links: Sequence[Any] = ()  # ipywidgets closes a widget in __del__, also one that was refused

    def __init__(
        self, state: ViewState, *, panel: PanelPlace | None = None, commands: Sequence[str] = (), **options: Any
    ) -> None:
        unknown = sorted(set(options) - {*SHARED, "layout"})
        if unknown:
            raise TypeError(f"unknown option {unknown[0]!r}; a widget has {', '.join(SHARED)}, commands, layout")
        layout = {"layout": options.pop("layout")} if "layout" in options else {"layout": {"width": "100%"}}
        self.state = state
        with state.hold_trait_notifications():
            for name, value in options.items():
                setattr(state, name, value)
        self._changes = 0
        self._lock = threading.Lock()
        shared = {name: getattr(state, name) for name in SHARED}
        super().__init__(panel=panel, commands=list(commands), **shared, **layout)
        self._methods: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "hello": lambda params: ({"protocol": 1, "changes": self._changes}, []),
            "payload": lambda params: self.payload(),
            "tensor": self._tensor,
            "timeline": lambda params: build_timeline(self.state.analysis, params),
            "cancel": self._stop,
        } | {name: functools.partial(self._build, build) for name, build in BUILDERS.items()}
        self._cached_tensor = functools.lru_cache(64)(
            lambda row, bins: build_tensor(self.state.analysis, row, bins, beside=self.state.beside)
        )
        self._jobs = Jobs(state.analysis, self.send, {"method": self._choose})
        self._tie()
        self.on_msg(self._answer)
        title = state.title
        self.observe(lambda change: settle(self, title, change.new), "panel")
        if panel is not None:
            settle(self, title, panel)

    @traitlets.validate("selected")
    def _check_selected(self, proposal: Any) -> Any:
        return self.state.check_selected(proposal)

    @traitlets.validate("sort_by")
    def _check_sort_by(self, proposal: Any) -> Any:
        return self.state.check_sort_by(proposal)

    @traitlets.validate("panel")
    def _check_panel(self, proposal: Any) -> Any:
        if not is_place(proposal["value"]):
            raise traitlets.TraitError("panel must be a place in a side panel, or None")
        return proposal["value"]

    def close(self) -> None:
        tied = bool(self._links)
        self._untie()
        if tied:
            settle(self, self.state.title, None)
            self._jobs.cancel()
            # anywidget keeps every widget for good: it must not keep its program, with its files
            self._methods, self._cached_tensor = {}, functools.lru_cache(1)(_closed)
            del self.state, self._jobs
        super().close()

    def _tie(self) -> None:
        self._links = [traitlets.link((self.state, name), (self, name)) for name in SHARED]
        for shown in self.state.analyses:
            shown.changed.connect(self._follow)

    def _untie(self) -> None:
        for link in self._links:
            link.unlink()
        if self._links:
            for shown in self.state.analyses:
                shown.changed.disconnect(self._follow)
        self._links = []

    def _choose(
        self, _analysis: Analysis, params: dict[str, Any], progress: Progress, _cancel: threading.Event
    ) -> dict[str, Any]:
        name = params.get("method")
        if not isinstance(name, str):
            raise UsageError(f"method must be a name, found {str(name)[:40]}")
        progress(0, 1)
        other = self.state.method(name)
        with self._lock:
            for shared in ("sort_by", "descending", "height"):
                setattr(other, shared, getattr(self.state, shared))
            self._untie()
            self.state = other
            self._jobs.analysis = other.analysis
            self._tie()
        self._changes += 1
        self._cached_tensor.cache_clear()
        self.send({"event": "changed"})
        return {}

    def payload(self) -> Answer:
        """Everything that a view shows before it asks for a tensor, and the number of changes in it."""
        changes = self._changes
        result, buffers = build_payload(self.state.analysis, self.state.beside)
        return result | {"methods": list(self.state.methods), "changes": changes}, buffers

    def _follow(self, _change: Change) -> None:
        self._changes += 1
        self._cached_tensor.cache_clear()
        self.send({"event": "changed"})

    def _answer(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if not isinstance(content, dict) or not isinstance(content.get("id"), (int, str)):
            return
        name, params = content.get("method"), content.get("params") or {}
        try:
            if not isinstance(name, str) or not isinstance(params, dict):
                raise UsageError("a question is a method's name and a table of parameters")
            if name in getattr(self, "_jobs", ()):
                self._jobs.start(content["id"], name, dict(params))
                return
            method = self._methods.get(name)
            if method is None:
                raise UsageError(f"there is no method {name[:40]!r}")
            with self._lock:
                result, buffers = method(params)
        except EtvizError as error:
            self.send({"id": content["id"], "error": {"type": type(error).__name__, "message": str(error)}})
        except Exception as error:
            logger.exception("a question of the view failed")
            self.send({"id": content["id"], "error": {"type": type(error).__name__, "message": str(error)}})
        else:
            self.send({"id": content["id"], "result": result}, buffers)

    def _stop(self, _params: dict[str, Any]) -> Answer:
        self._jobs.cancel()
        return {"ok": True}, []

    def _build(self, build: Callable[[Analysis, dict[str, Any]], Answer], params: dict[str, Any]) -> Answer:
        return build(self.state.analysis, params)

    def _tensor(self, params: dict[str, Any]) -> Answer:
        try:
            row, bins = int(params["row"]), int(params.get("bins", 64))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"tensor needs a row and a number of bins, found {str(params)[:200]}") from error
        if not 1 <= bins <= _MOST_BINS:
            raise UsageError(f"bins must be from 1 to {_MOST_BINS}, found {bins}")
        return self._cached_tensor(row, bins)


def mimebundle(state: ViewState, text: str, panel: PanelPlace | None = None, **kwargs: Any) -> Any:
    """Widget, static table and `text`, from which a viewer takes the richest; or the embedded report."""
    if options.embed:
        return {"text/plain": text, "text/html": state.embedded_html()}, {}
    widget = InspectionWidget(state, panel=panel)
    bundle = widget._repr_mimebundle_(**kwargs)  # pyright: ignore[reportPrivateUsage]
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
    html = state.static_html()
    if panel is not None:
        text, html = f"{NO_PANEL}\n{text}", f"<p><i>{escape(NO_PANEL)}</i></p>{html}"
    data = dict(data) | {"text/plain": text, "text/html": html}
    return data, metadata


def show(state: ViewState, text: str, sidebar: bool | Area = False) -> None:
    """Display the widget in the current cell, or in a side panel.

    Raises
    ------
    UsageError
        If `sidebar` is not True, False, ``"left"`` or ``"right"``.
    """
    from IPython.display import display

    data, metadata = mimebundle(state, text, place(state.title, sidebar))
    display(data, metadata=metadata, raw=True)


def open_listed(token: str, area: Area) -> None:
    """Open an entry of the side panels' list in a side panel, without a cell.

    Raises
    ------
    UsageError
        If the entry is gone, or `area` is no side.
    """
    state = listed(token)
    widget = InspectionWidget(state, panel=place(state.title, area))
    widget.observe(lambda change: widget.close() if change.new is None else None, "panel")
