"""The anywidget: the traits of a view state, and answers to the view's questions.

A kernel subshell thread answers while a cell runs, but not before the kernel was idle once, so the payload is part of
the initial state: the first paint never waits.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final

import anywidget
import traitlets
from IPython.display import display

from etviz.analysis.analysis import Analysis, Change
from etviz.errors import EtvizError, UsageError
from etviz.settings import options
from etviz.view.pages.html import STATIC
from etviz.view.payload.tensor import BUILDERS, build_tensor
from etviz.view.payload.timeline import build_timeline
from etviz.view.payload.wire import Answer
from etviz.view.widget.explanations import explain, offered
from etviz.view.widget.jobs import Job, Jobs, Progress
from etviz.view.widget.panel import NO_PANEL, Area, PanelPlace, is_place, listed, place, settle
from etviz.view.widget.state import SHARED, ViewState

logger = logging.getLogger(__name__)

_MOST_BINS = 4096
KEPT: Final[deque[ViewState]] = deque(maxlen=8)
"""Programs of the newest views, which stay although nobody else holds them: ipywidgets keeps every open widget."""
_OFF_PAGE: Final[weakref.WeakSet[InspectionWidget]] = weakref.WeakSet()
"""Widgets whose last view was taken off the page: without their program, they are closed."""
_LET_GO: Final = "this view's program is not in memory any more: nothing holds it but older views; run the cell again"


def _nothing() -> None:
    pass


@functools.cache
def _bundle(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _opening(_value: None, widget: InspectionWidget) -> dict[str, Any] | None:
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
    panel
        A place in a side panel (`etviz.view.widget.panel`), or None for the cell.
    commands
        Commands that the view runs when it opens, each with its argument; the key ``?`` lists them: ``["row.select 8",
        "tab.map", "filter.set is:fault"]``.
    options
        Initial values of the traits of `state`, and ``layout=``; others raise a `TypeError`.
    """

    # not paths: anywidget watches those, and keeps every widget for it
    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)

    selected = traitlets.Int(None, min=0, allow_none=True).tag(sync=True, echo_update=False)
    row = traitlets.Int(0, min=0).tag(sync=True)
    """The row that was selected last, so that a slider can be linked to it."""
    sort_by = traitlets.Unicode("introduced_severity").tag(sync=True, echo_update=False)
    descending = traitlets.Bool(True).tag(sync=True, echo_update=False)
    filter = traitlets.Unicode("").tag(sync=True, echo_update=False)
    expanded = traitlets.List(traitlets.Int(min=0)).tag(sync=True, echo_update=False)
    height = traitlets.Int(620, min=200, max=4000).tag(sync=True, echo_update=False)
    commands = traitlets.List(traitlets.Unicode()).tag(sync=True, echo_update=False)
    panel = traitlets.Dict(None, allow_none=True).tag(sync=True, echo_update=False)
    _opening = traitlets.Any(None, read_only=True).tag(sync=True, to_json=_opening)

    _tied = _closed = _own_layout = False  # ipywidgets closes a widget in __del__, also one that was refused

    def __init__(
        self, state: ViewState, *, panel: PanelPlace | None = None, commands: Sequence[str] = (), **options: Any
    ) -> None:
        unknown = sorted(set(options) - {*SHARED, "layout"})
        if unknown:
            raise TypeError(f"unknown option {unknown[0]!r}; a widget has {', '.join(SHARED)}, commands, layout")
        layout = options.pop("layout", {"width": "100%"})
        self._own_layout = not isinstance(layout, traitlets.HasTraits)
        self._program: Callable[[], ViewState | None] = weakref.ref(state)
        with state.hold_trait_notifications():
            for name, value in options.items():
                setattr(state, name, value)
        self._changes = 0
        self._lock = threading.Lock()
        shared = {name: getattr(state, name) for name in SHARED}
        super().__init__(panel=panel, commands=list(commands), layout=layout, **shared)
        self._methods: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "hello": lambda params: ({"protocol": 1, "changes": self._changes}, []),
            "payload": lambda params: self.payload(),
            "tensor": self._tensor,
            "timeline": lambda params: build_timeline(self.state.analysis, params),
            "cancel": self._stop,
            "note": self._note,
        } | {name: functools.partial(self._build, build) for name, build in BUILDERS.items()}
        self._cached_tensor = functools.lru_cache(64)(
            lambda row, bins: build_tensor(self.state.analysis, row, bins, beside=self.state.beside)
        )
        jobs: dict[str, Job] = {"method": self._choose, "attribution": self._attribute, "explain": self._explain}
        self._jobs = Jobs(lambda: self.state.analysis, self.send, jobs)
        self._tie(state)
        self.on_msg(self._answer)
        self._view_count = 0  # from here on the page counts its views
        for old in [other for other in _OFF_PAGE if other._program() is None]:
            old.close()
        title = state.title
        self.observe(lambda change: settle(self, title, change.new), "panel")
        if panel is not None:
            settle(self, title, panel)

    @traitlets.default("_esm")
    def _script(self) -> str:
        return _bundle("index.js")

    @traitlets.default("_css")
    def _style(self) -> str:
        return _bundle("index.css")

    @property
    def state(self) -> ViewState:
        """Raises `UsageError` if the view is closed, or its program was let go."""
        state = self._program()
        if state is None:
            raise UsageError("this view is closed" if self._closed else _LET_GO)
        return state

    def shows(self, state: ViewState) -> bool:
        return self._program() is state

    def _let_go(self, _program: object) -> None:
        self._cached_tensor.cache_clear()

    @traitlets.observe("_view_count")
    def _count_views(self, change: Any) -> None:
        (_OFF_PAGE.add if change.new == 0 and change.old else _OFF_PAGE.discard)(self)

    @traitlets.observe("selected", "row")
    def _follow_row(self, change: Any) -> None:
        if change.new is not None:
            self.selected = self.row = change.new

    @traitlets.validate("selected", "row", "sort_by", "expanded")
    def _check_shared(self, proposal: Any) -> Any:
        name = proposal["trait"].name
        return getattr(self.state, f"check_{'selected' if name == 'row' else name}")(proposal)

    @traitlets.validate("panel")
    def _check_panel(self, proposal: Any) -> Any:
        if not is_place(proposal["value"]):
            raise traitlets.TraitError("panel must be a place in a side panel, or None")
        return proposal["value"]

    def close(self) -> None:
        state = self._program() if self._tied else None
        if state is not None:
            self._untie(state)
            settle(self, state.title, None)
            self._jobs.cancel()
            self._let_go(state)
            if state in KEPT:
                KEPT.remove(state)
            self._closed, self._program = True, _nothing
        super().close()
        if self._own_layout and self.layout is not None:
            self.layout.close()

    def _tie(self, state: ViewState) -> None:
        self._program, self._tied = weakref.ref(state, self._let_go), True
        for name in SHARED:
            setattr(self, name, getattr(state, name))
        self.observe(self._tell_state, SHARED)
        state.observe(self._hear_state, SHARED)
        for shown in state.analyses:
            shown.changed.connect(self._follow)
        if state in KEPT:
            KEPT.remove(state)
        KEPT.append(state)

    def _untie(self, state: ViewState) -> None:
        self._tied = False
        self.unobserve(self._tell_state, SHARED)
        state.unobserve(self._hear_state, SHARED)
        for shown in state.analyses:
            shown.changed.disconnect(self._follow)

    def _tell_state(self, change: Any) -> None:
        state = self._program()
        if state is not None:
            setattr(state, change.name, change.new)

    def _hear_state(self, change: Any) -> None:
        setattr(self, change.name, change.new)

    def _attribute(self, params: dict[str, Any], progress: Progress, _cancel: threading.Event) -> dict[str, Any]:
        self.state.attribute(params, progress)
        return {}

    def _explain(self, params: dict[str, Any], progress: Progress, _cancel: threading.Event) -> dict[str, Any]:
        progress(0, 0)
        return explain(self.state, params)

    def _note(self, params: dict[str, Any]) -> Answer:
        self.state.analysis.note(params.get("row"), params.get("text"))
        return {"ok": True}, []

    def _choose(self, params: dict[str, Any], progress: Progress, _cancel: threading.Event) -> dict[str, Any]:
        name = params.get("method")
        if not isinstance(name, str):
            raise UsageError(f"method must be a name, found {str(name)[:40]}")
        progress(0, 1)
        other = self.state.state_of(name)
        with self._lock:
            for shared in ("sort_by", "descending", "height"):
                setattr(other, shared, getattr(self.state, shared))
            self._untie(self.state)
            self._tie(other)
        self._follow()
        return {}

    def payload(self) -> Answer:
        changes = self._changes
        result, buffers = self.state.payload()
        more = {"methods": list(self.state.methods), "changes": changes, "explanations": offered(self.state)}
        return result | more, buffers

    def _follow(self, _change: Change | None = None) -> None:
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
        except Exception as error:
            if not isinstance(error, EtvizError):
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
    """A viewer takes the richest form."""
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
    """Display the widget; raises as `panel.place` does."""
    data, metadata = mimebundle(state, text, place(state.title, sidebar))
    display(data, metadata=metadata, raw=True)


def open_listed(token: str, area: Area) -> None:
    """Open an entry of the list in a side panel; a `UsageError` if it is gone, or `area` is no side."""
    state = listed(token)
    widget = InspectionWidget(state, panel=place(state.title, area))
    widget.observe(lambda change: widget.close() if change.new is None else None, "panel")
