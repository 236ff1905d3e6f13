"""Interpreters of delegates: each runs what a backend made of a delegate and returns inner values by operator.

An interpreter is a function ``(graph, payload, names, inputs, path) -> ShownInside``:

- `graph`: the delegate's subgraph, whose operators carry debug handles;
- `payload`: the bytes that the delegate executes, and the named data that belongs to them;
- `names`: operators of the graph whose values are wanted; others may be left out, with a reason;
- `inputs`: one for each user input of the graph, as the runtime had them;
- `path`: where it may write one file.

It returns the delegate's own outputs followed by the wanted values. It runs in a child process. A backend without an
interpreter lowers the subgraph again.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from etviz.upstream.xnnpack import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable

_INTERPRETERS: Final = {BACKEND: "etviz.pipeline.piece_program:show_inside"}


def register(backend_id: str, function: str) -> None:
    """Register the interpreter of a backend as ``module:function``; the module is imported in the child process."""
    _INTERPRETERS[backend_id] = function


def interpreter_of(backend_id: str) -> str:
    return _INTERPRETERS.get(backend_id, "")


def load_interpreter(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)
