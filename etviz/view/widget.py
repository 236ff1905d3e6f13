"""The anywidget: an Inspection's traits, and answers to the view's questions.

State is small and lives in traits; data is asked for by message, so that it is neither stored in notebooks nor sent
twice. Answers may be computed on a kernel subshell thread while a cell runs.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets

from etviz.errors import EtvizError, UsageError
from etviz.inspection import Inspection
from etviz.settings import options
from etviz.view.fallback import html_table
from etviz.view.jobs import WORK, Jobs
from etviz.view.panel import NO_PANEL, Area, Place, place, settle
from etviz.view.payload import build_payload, build_tensor
from etviz.view.tensor_payload import BUILDERS

logger = logging.getLogger(__name__)

STATIC: Final = Path(__file__).parent / "static"
_SHARED: Final = ("selected", "sort_by", "descending", "filter", "expanded", "height")
Answer = tuple[dict[str, Any], list[bytes]]


class InspectionWidget(anywidget.AnyWidget):
    """The linked view of an Inspection.

    Parameters
    ----------
    inspection
        What to show; its traits and the widget's are the same.
    panel
        Where to show it: a place in a side panel (`etviz.view.panel`), or None for the cell.
    options
        Initial values of `selected`, `sort_by`, `descending`, `filter`, `expanded`, `height`.

    Raises
    ------
    TypeError
        If there is no such option.
    """

    _esm = STATIC / "index.js"
    _css = STATIC / "index.css"

    selected = traitlets.Int(None, allow_none=True).tag(sync=True, echo_update=False)
    sort_by = traitlets.Unicode("severity").tag(sync=True, echo_update=False)
    descending = traitlets.Bool(True).tag(sync=True, echo_update=False)
    filter = traitlets.Unicode("").tag(sync=True, echo_update=False)
    expanded = traitlets.List(traitlets.Int()).tag(sync=True, echo_update=False)
    height = traitlets.Int(620, min=200, max=4000).tag(sync=True, echo_update=False)
    panel = traitlets.Dict(None, allow_none=True).tag(sync=True, echo_update=False)

    _links: Sequence[Any] = ()  # ipywidgets closes a widget in __del__, also one that was refused

    def __init__(self, inspection: Inspection, *, panel: Place | None = None, **options: Any) -> None:
        unknown = sorted(set(options) - set(_SHARED))
        if unknown:
            raise TypeError(f"unknown option {unknown[0]!r}; a widget has {', '.join(_SHARED)}")
        for name, value in options.items():
            setattr(inspection, name, value)
        super().__init__(panel=panel, **{name: getattr(inspection, name) for name in _SHARED})
        self.inspection = inspection
        self._lock = threading.Lock()
        self._links = [traitlets.link((inspection, name), (self, name)) for name in _SHARED]
        self._methods: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "hello": lambda params: ({"protocol": 1}, []),
            "payload": lambda params: build_payload(inspection),
            "tensor": self._tensor,
            "cancel": self._stop,
        } | {name: functools.partial(build, inspection) for name, build in BUILDERS.items()}
        self._cached_tensor = functools.lru_cache(64)(functools.partial(build_tensor, inspection))
        self._jobs = Jobs(inspection, self.send)
        self.on_msg(self._answer)
        self.observe(lambda change: settle(self, inspection.title, change.new), "panel")
        if panel is not None:
            settle(self, inspection.title, panel)

    def close(self) -> None:
        """Remove the widget and untie it from the Inspection."""
        for link in self._links:
            link.unlink()
        self._links = []
        super().close()

    def refresh(self) -> None:
        """Tell the views that the Inspection has changed."""
        self.send({"event": "changed"})

    def _answer(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if not isinstance(content, dict) or "id" not in content:
            return
        name = str(content.get("method"))
        try:
            if name in WORK:
                self._jobs.start(content["id"], name, dict(content.get("params") or {}))
                return
            method = self._methods.get(name)
            if method is None:
                raise UsageError(f"there is no method {content.get('method')!r}")
            with self._lock:
                result, buffers = method(content.get("params") or {})
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

    def _tensor(self, params: dict[str, Any]) -> Answer:
        try:
            row, bins = int(params["row"]), int(params.get("bins", 64))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"tensor needs a row and a number of bins, found {params}") from error
        return self._cached_tensor(row, bins)


def mimebundle(inspection: Inspection, panel: Place | None = None, **kwargs: Any) -> Any:
    """Widget, static table and text: the richest that the viewer can show is taken. The report, if it is embedded."""
    if options.embed:
        from etviz.view.embedded import embedded

        return embedded(inspection), {}
    widget = InspectionWidget(inspection, panel=panel)
    bundle = widget._repr_mimebundle_(**kwargs)  # pyright: ignore[reportPrivateUsage]
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
    text, html = repr(inspection), html_table(inspection)
    if panel is not None:
        text, html = f"{NO_PANEL}\n{text}", f"<p><i>{escape(NO_PANEL)}</i></p>{html}"
    data = dict(data) | {"text/plain": text, "text/html": html}
    return data, metadata


def show(inspection: Inspection, sidebar: bool | Area = False) -> None:
    """Display the widget in the current cell, or in a side panel.

    Raises
    ------
    UsageError
        If `sidebar` is not True, False, ``"left"`` or ``"right"``.
    """
    from IPython.display import display

    data, metadata = mimebundle(inspection, place(inspection, sidebar))
    display(data, metadata=metadata, raw=True)
