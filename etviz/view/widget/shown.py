"""Members of objects that notebooks show as a view."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal

from etviz.view.widget.state import ViewState


class _OfView:
    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, shown: Shown | None, owner: type) -> Any:
        return self if shown is None else getattr(shown.view, self._name)

    def __set__(self, shown: Shown, value: Any) -> None:
        setattr(shown.view, self._name, value)


class Shown:
    """An object that notebooks show as a view.

    Attributes
    ----------
    view
        State of its views.
    selected
        Index of the selected row, or None; set it to select a row in every view.
    """

    selected = _OfView()

    def __init__(self, view: ViewState) -> None:
        self.view = view
        view.shown = weakref.ref(self)

    def __setattr__(self, name: str, value: Any) -> None:
        settable = {"view", *(known for kind in type(self).__mro__ for known in vars(kind).get("__annotations__", ()))}
        if not name.startswith("_") and name not in settable and not hasattr(type(self), name):
            hint = f"; set view.{name}" if self.view.has_trait(name) else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r} to set{hint}")
        super().__setattr__(name, value)

    def observe(self, handler: Callable[[Any], None], names: str | Sequence[str] = "selected") -> None:
        """Call a function when a trait of `view` changes, such as ``selected`` when somebody clicks a row."""
        self.view.observe(handler, names)

    def widget(self, **options: Any) -> Any:
        """The widget; `options` are initial traits (``height=800``, ``sort_by="rmse"``), and ipywidgets' ``layout=``.

        A `TypeError` if an option is unknown.
        """
        from etviz.view.widget.widget import InspectionWidget

        return InspectionWidget(self.view, **options)

    def show(self, sidebar: bool | Literal["left", "right"] = False) -> None:
        """Display the widget; a `UsageError` for other values of `sidebar`.

        Parameters
        ----------
        sidebar
            ``"left"`` or ``"right"``: in this side panel of JupyterLab, in which it replaces the panel of this title;
            True for the last side of this title's panel, at first the right one. Without side panels, the cell shows
            the view and a hint.
        """
        from etviz.view.widget.widget import show

        show(self.view, repr(self), sidebar)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        from etviz.view.widget.widget import mimebundle

        return mimebundle(self.view, repr(self), **kwargs)
