"""Longer work for a view: it runs on a thread, reports progress, and can be cancelled.

A kernel that computes on its main thread receives no messages meanwhile, not even a cancellation.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from etviz.analysis.analysis import Analysis
from etviz.analysis.answer import is_one_row, score_outputs
from etviz.errors import EtvizError, UsageError
from etviz.json_numbers import as_text

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
Work = Callable[[Analysis, dict[str, Any], Progress, threading.Event], dict[str, Any]]
Job = Callable[[dict[str, Any], Progress, threading.Event], dict[str, Any]]
_INTERVAL: Final = 0.1


class CancelledError(EtvizError):
    """The work was stopped because a view asked for it."""


class Jobs:
    def __init__(
        self, analysis: Callable[[], Analysis], send: Callable[[dict[str, Any]], None], jobs: Mapping[str, Job]
    ) -> None:
        self._analysis = analysis
        self._send = send
        self._own = jobs
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in WORK

    def start(self, ident: Any, name: str, params: dict[str, Any]) -> None:
        """Its end answers the message `ident`; a `UsageError` if another one is running."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise UsageError("Another computation is running; wait for it, or cancel it")
            self._cancel = threading.Event()
            arguments = (self._run, ident, name, params, self._cancel)
            context = contextvars.copy_context()  # the kernel's, from which its messages take their parent
            self._thread = threading.Thread(target=context.run, args=arguments, daemon=True, name=f"etviz-{name}")
            self._thread.start()

    def cancel(self) -> None:
        self._cancel.set()

    def wait(self, timeout: float | None = None) -> bool:
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def _run(self, ident: Any, name: str, params: dict[str, Any], cancel: threading.Event) -> None:
        try:
            result = self._work(name, params, cancel)
        except Exception as error:
            stopped = cancel.is_set()
            if not stopped and not isinstance(error, EtvizError):
                logger.exception("%s failed", name)
            shown = CancelledError(f"{name} was cancelled") if stopped else error
            self._send({"id": ident, "error": {"type": type(shown).__name__, "message": str(shown)}})
        else:
            self._send({"id": ident, "result": {"ok": True} | result})

    def _work(self, name: str, params: dict[str, Any], cancel: threading.Event) -> dict[str, Any]:
        try:
            report = self._reporter(name, cancel)
            if name in self._own:
                return self._own[name](params, report, cancel)
            return WORK[name](self._analysis(), params, report, cancel)
        finally:  # takes the progress off every view, also those that did not ask for the job
            self._send({"event": "progress", "label": "", "done": 0, "total": 0})

    def _reporter(self, name: str, cancel: threading.Event) -> Progress:
        last = [0.0]

        def report(done: int, total: int) -> None:
            if cancel.is_set():
                raise CancelledError(f"{name} was cancelled")
            now = time.monotonic()
            if now - last[0] >= _INTERVAL or done == total:
                last[0] = now
                self._send({"event": "progress", "label": name, "done": done, "total": total})

        return report


def _zoom(analysis: Analysis, params: dict[str, Any], progress: Progress, cancel: threading.Event) -> dict[str, Any]:
    zoom = analysis.zoom(params.get("row"), progress=progress, cancel=cancel).findings.zoom
    return {"faithful": zoom and zoom.faithful, "message": zoom.message if zoom else ""}


def _what_if(analysis: Analysis, params: dict[str, Any], progress: Progress, cancel: threading.Event) -> dict[str, Any]:
    rows = params.get("rows")
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"what_if needs a list of rows, found {rows!r}")
    replaced = analysis.what_if(rows)
    runs = [analysis.tables.compared.runs[number] for number in replaced.runs]
    numbers = {run.event_block: number for run, number in zip(runs, replaced.runs, strict=True)}
    reference = [value for run in runs for value in run.comparison.reference_outputs]
    runtime = [value for run in runs for value in run.comparison.runtime_outputs]
    scores, outputs = score_outputs(analysis.findings), list[dict[str, Any]]()
    for at in range(len(replaced.before)):
        was, now = replaced.before.iloc[at], replaced.after.iloc[at]
        sides = (reference[at], runtime[at], replaced.outputs[at])
        judged = scores[int(was["output"])] and all(map(is_one_row, sides))
        label = f"run {numbers[int(was['event_block'])]}, " if len(runs) > 1 else ""
        outputs.append(
            {
                "name": f"{label}{int(was['output'])}: {list(was['shape'])} {was['dtype']}",
                "before": as_text(was["rmse"]),
                "after": as_text(now["rmse"]),
                "top1": [int(side.argmax()) for side in sides] if judged else None,
            }
        )
    return {"rows": rows, "outputs": outputs}


WORK: Final[dict[str, Work]] = {"zoom": _zoom, "what_if": _what_if}
