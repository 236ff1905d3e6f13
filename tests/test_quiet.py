"""What upstream's libraries say about themselves does not stand above a result, and nobody else is silenced."""

from __future__ import annotations

import builtins
import logging
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import etviz
from etviz.upstream.executorch import quietly
from tests.programs import Executed

CALLS: dict[str, Callable[[Executed, Path], object]] = {
    "recipe": lambda program, folder: etviz.recipe("xnnpack-int8"),
    "probe": lambda program, folder: etviz.probe(program.path("record"), workdir=folder),
    "bundle": lambda program, folder: etviz.bundle(
        program.path("pte"), program.inputs, folder / "model.bpte", expected=program.inputs
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_may_import_executorch_first_is_quiet(
    name: str, executed: Callable[[str], Executed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first import of a process brings torchao, which logs that it has libraries for other machines."""
    program, levels = executed("counter"), list[int]()
    real = builtins.__import__

    def watched(name: str, *given: Any, **named: Any) -> Any:
        if name.partition(".")[0] in ("executorch", "torchao"):
            levels.append(logging.getLogger("torchao").getEffectiveLevel())
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", watched)
    CALLS[name](program, tmp_path)
    assert levels[0] == logging.CRITICAL


def test_only_upstream_is_kept_quiet(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    theirs = logging.LogRecord("root", logging.WARNING, "/v/site-packages/executorch/exir/a.py", 1, "theirs", (), None)
    with quietly():
        logging.getLogger("torchao").error("of no concern")
        root.handle(theirs)
        logging.getLogger("mine").warning("the third image is empty")
        root.warning("so is the fourth")
    root.handle(theirs)
    assert caplog.messages == ["the third image is empty", "so is the fourth", "theirs"]


def test_it_ends_with_the_last_of_several_threads() -> None:
    before = logging.getLogger("torchao").level, list(warnings.filters), list(logging.getLogger().filters)
    inside, outside = threading.Event(), threading.Event()

    def wait() -> None:
        with quietly():
            inside.set()
            outside.wait(60)

    thread = threading.Thread(target=wait)
    with quietly():
        thread.start()
        assert inside.wait(60)
    assert logging.getLogger("torchao").level == logging.CRITICAL
    outside.set()
    thread.join()
    assert (logging.getLogger("torchao").level, list(warnings.filters), list(logging.getLogger().filters)) == before
