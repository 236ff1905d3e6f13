"""Computes dropped reference tensors again, once for all rows, into a file."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import torch

from etviz.errors import ExecutionError
from etviz.evaluation.replay import Replay, question
from etviz.evaluation.series import Series
from etviz.evaluation.spill import SpillFile
from etviz.evaluation.values import flat_values

if TYPE_CHECKING:
    from etviz.comparison.gap import Gap
    from etviz.evaluation.values import Value
    from etviz.graph.ir import Node

KEPT_BYTES: Final = 16 << 20
"""Maximum bytes of reference tensors that stay in memory; fresh memory for more takes longer than it saves."""


class References:
    """Computed when the first is requested; if a child process ends on that, it is not asked again for each row."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._lock = threading.Lock()
        self._tensors: dict[tuple[int, int, int], torch.Tensor] | ExecutionError | None = None

    def reference(self, gap: Gap) -> torch.Tensor | None:
        with self._lock:
            if self._tensors is None:
                try:
                    self._tensors = reference_values(self._replay)
                except ExecutionError as error:
                    self._tensors = error
        if isinstance(self._tensors, ExecutionError):
            raise self._tensors.with_traceback(None)
        return self._tensors.get((gap.run, gap.instruction, gap.output))


@question
def reference_values(replay: Replay) -> dict[tuple[int, int, int], torch.Tensor]:
    tensors: dict[tuple[int, int, int], torch.Tensor] = {}
    evaluator, inputs = replay.fresh(), [execution.inputs for execution in replay.executions]
    series = Series(evaluator)
    with SpillFile() as file:
        for run, given in enumerate(inputs):

            def keep(node: Node, value: Value, run: int = run) -> None:
                for output, computed in enumerate(flat_values(value.reference) if node.instruction >= 0 else ()):
                    if isinstance(computed, torch.Tensor):
                        tensors[run, node.instruction, output] = file.put(computed)

            series.look_ahead(run, inputs[run:])
            evaluator.known = series.known(run, given)
            evaluator.run(given, keep)
    return tensors
