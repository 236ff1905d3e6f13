"""The kernel's side of JupyterLab's side panels: the place that a view takes, and the list of Inspections.

A place travels in the trait `panel`, so a reload keeps an open panel. Of several widgets with one title, the newest
(the highest serial) has the panel.
"""

from __future__ import annotations

import weakref
from typing import Any, Final, Literal, Protocol, TypedDict

from etviz.errors import UsageError
from etviz.view.widget.state import ViewState

NO_PANEL: Final = "This was asked for in a side panel, which only a running JupyterLab has."
Area = Literal["left", "right"]
_SIDES: Final = ("left", "right")


class PanelPlace(TypedDict):
    """One for each `title`; it stays beside other notebooks if `pinned`."""

    title: str
    area: Area
    pinned: bool
    serial: int


class Holder(Protocol):
    panel: Any

    def shows(self, state: ViewState) -> bool: ...


_holders: Final[weakref.WeakValueDictionary[str, Holder]] = weakref.WeakValueDictionary()
_listed: Final[weakref.WeakValueDictionary[str, ViewState]] = weakref.WeakValueDictionary()
_last: Final[dict[str, PanelPlace]] = {}


def is_place(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or set(value) != {"title", "area", "pinned", "serial"}:
        return False
    title, serial = value["title"], value["serial"]
    number = isinstance(serial, int) and not isinstance(serial, bool) and 0 <= serial < 1 << 53
    return isinstance(title, str) and value["area"] in _SIDES and isinstance(value["pinned"], bool) and number


def place(title: str, sidebar: bool | Area) -> PanelPlace | None:
    """The place that `sidebar` asks for, None for the cell; a `UsageError` if it is no bool or side."""
    if sidebar is False:
        return None
    if sidebar is not True and not (isinstance(sidebar, str) and sidebar in _SIDES):
        described = repr(sidebar[:40]) if isinstance(sidebar, str) else type(sidebar).__name__
        raise UsageError(f"sidebar must be True, False, 'left' or 'right', found {described}")
    last = _last.get(title)
    area = sidebar if isinstance(sidebar, str) else last["area"] if last else "right"
    return {
        "title": title,
        "area": area,
        "pinned": bool(last and last["pinned"]),
        "serial": last["serial"] + 1 if last else 1,
    }


def settle(widget: Holder, title: str, now: PanelPlace | None) -> None:
    if now is not None:
        _last[title] = now
        _holders[title] = widget
    elif _holders.get(title) is widget:
        del _holders[title]


def listing() -> Any:
    """The Inspections of this kernel's notebook, for the list in JupyterLab.

    Objects with `token`, `name`, `title`, `verdict`, `level` and `area`. Verdict and level are None until something
    else computed them.
    """
    from IPython.display import JSON

    return JSON([_entry(name, state) for name, state in _named()])


def listed(token: str) -> ViewState:
    state = _listed.get(token)
    if state is None:
        raise UsageError("this Inspection is gone; ask for the list again")
    return state


def _named() -> list[tuple[str, ViewState]]:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        return []
    variables = shell.user_ns
    items = [(name, value) for name, value in variables.items() if not name.startswith("_")]
    items += [(f"Out[{count}]", value) for count, value in variables.get("_oh", {}).items()]
    once: dict[int, tuple[str, ViewState]] = {}
    for name, value in items:
        view = vars(value).get("view") if hasattr(value, "__dict__") else None
        if isinstance(view, ViewState):
            once.setdefault(id(view), (name, view))
    return list(once.values())


def _entry(name: str, state: ViewState) -> dict[str, Any]:
    token, title = str(id(state)), state.title
    _listed[token] = state
    digest = state.known_digest
    holder = _holders.get(title)
    panel = holder.panel if holder is not None and holder.shows(state) else None
    return {
        "token": token,
        "name": name,
        "title": title,
        "verdict": digest and digest.verdict,
        "level": digest and digest.level,
        "area": panel and panel["area"],
    }
