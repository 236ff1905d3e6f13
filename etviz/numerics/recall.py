"""Reference tensors that the comparison did not keep, computed again once for all rows and kept in a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.ir import Node
from etviz.numerics.comparison import Gap
from etviz.numerics.reference import Evaluator, Value, flat_values
from etviz.numerics.spill import SpillFile

if TYPE_CHECKING:
    import torch

KEPT_BYTES: Final = 256 << 20
"""Reference tensors up to this many bytes stay in memory."""


class Recall:
    """Computes the references of all executions again when the first one is asked for.

    Parameters
    ----------
    fresh
        Makes an evaluator with the model's initial state.
    runs
        Flat inputs of each execution, in order.
    """

    def __init__(self, fresh: Callable[[], Evaluator], runs: Sequence[Sequence[Any]]) -> None:
        self._fresh, self._runs = fresh, runs
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
        evaluator = self._fresh()
        with SpillFile() as file:
            for run, inputs in enumerate(self._runs):

                def keep(node: Node, value: Value, run: int = run) -> None:
                    if node.instruction < 0:
                        return
                    for output, item in enumerate(flat_values(value.reference)):
                        if isinstance(item, torch.Tensor):
                            found[run, node.instruction, output] = file.put(item)

                evaluator.run(inputs, keep)
        return found
