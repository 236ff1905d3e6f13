"""Runs of one program: later runs reuse what the first one read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.record.weights import CachedTensors
from etviz.artifacts.scratch import Scratch
from etviz.errors import ExecutionError
from etviz.evaluation.interpreter import Prepared
from etviz.graph.ir import Graph
from etviz.graph.labels import describe, owners_of, row_name

if TYPE_CHECKING:
    from etviz.evidence.subject import Subject
    from etviz.loading.paired import Paired

BUFFER: Final = 32 << 20
"""Bytes of debug buffer for the executions of one load."""
NAMING: Final = ("kind", "op", "backend", "reference_ops", "module", "source", "name")


@dataclass(frozen=True, slots=True)
class Ran:
    inputs: Sequence[Sequence[Any]]
    paired: Paired
    folder: Scratch

    def of(self, places: Sequence[int]) -> Ran:
        executions = tuple(self.paired.executions[at] for at in places)
        paired = replace(self.paired, executions=executions)
        return replace(self, inputs=[self.inputs[at] for at in places], paired=paired)


class Running:
    """`base` has the values of the first run."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.base: Paired | None = None
        self._running = Lock()

    def run(
        self, inputs: Sequence[Sequence[Any]], timeout: float | None = None, cancel: threading.Event | None = None
    ) -> Ran:
        folder = Scratch()
        try:
            with self._running:  # one child process suffices
                run = self.subject.run(inputs, Path(folder.name), timeout, cancel)
            paired = self.subject.pair(run, self.base)
            if len(paired.executions) != len(inputs):
                raise ExecutionError(f"{len(inputs)} inputs left {len(paired.executions)} executions in the ETDump")
        except BaseException:
            folder.cleanup()
            raise
        if self.base is None:
            if paired.has_reference:
                paired = replace(paired, constants=CachedTensors(paired.evaluator().constants), prepared=Prepared())
            self.base = paired
        return Ran(inputs, paired, folder)


def operators_of(graph: Graph) -> list[dict[str, Any]]:
    """A row for each output: ``instruction``, ``output`` and `NAMING`."""
    owners, rows = owners_of(graph), []
    for node in graph.walk():
        for output in range(max(len(node.outputs), 1) if node.instruction >= 0 else 0):
            about = describe(owners.get(node.instruction, graph), node, output)
            about["name"] = row_name(about["kind"], about["op"], about["reference_ops"], about["module"], output)
            rows.append({"instruction": node.instruction, "output": output} | {key: about[key] for key in NAMING})
    return sorted(rows, key=lambda row: (row["instruction"], row["output"]))
