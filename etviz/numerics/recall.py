"""Reference tensors that the comparison did not keep, computed again once for all rows and kept in a file."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from etviz.artifacts.ir import Node
from etviz.numerics.comparison import Gap
from etviz.numerics.reference import Value, flat_values
from etviz.numerics.replay import Replay
from etviz.numerics.spill import SpillFile

if TYPE_CHECKING:
    import torch

KEPT_BYTES: Final = 16 << 20
"""Reference tensors up to this many bytes stay in memory; fresh memory for more takes longer than it saves."""


class Recall:
    """Computes the references of all executions again when the first one is asked for.

    Parameters
    ----------
    replay
        What ran, on what.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._lock = threading.Lock()
        self._found: dict[tuple[int, int, int], torch.Tensor] | None = None

    def reference(self, gap: Gap) -> torch.Tensor | None:
        """The reference of a gap, None if the reference run does not give it."""
        with self._lock:
            if self._found is None:
                self._found = self._compute()
        return self._found.get((gap.run, gap.instruction, gap.output))

    def _compute(self) -> dict[tuple[int, int, int], torch.Tensor]:
        import torch

        found: dict[tuple[int, int, int], torch.Tensor] = {}
        evaluator = self._replay.fresh()
        with SpillFile() as file:
            for run, execution in enumerate(self._replay.executions):

                def keep(node: Node, value: Value, run: int = run) -> None:
                    if node.instruction < 0:
                        return
                    for output, item in enumerate(flat_values(value.reference)):
                        if isinstance(item, torch.Tensor):
                            found[run, node.instruction, output] = file.put(item)

                evaluator.run(execution.inputs, keep)
        return found
