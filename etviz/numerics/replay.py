"""What is needed to run the reference again after the comparison: for attribution, zoom, and values not kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from etviz.numerics.reference import Evaluator
from etviz.numerics.runtime_log import RuntimeLog


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution: its flat inputs, and what the runtime logged."""

    inputs: Sequence[Any]
    log: RuntimeLog


@dataclass(slots=True)
class Replay:
    """The executions of one method, in order.

    Attributes
    ----------
    fresh
        Makes an evaluator with the model's initial state; stateful executions have to follow one another on it.
    executions
        `Gap.run` counts them.
    fresh_float
        The same for the float model that was quantized; None where it is not known.
    """

    fresh: Callable[[], Evaluator]
    executions: list[Execution] = field(default_factory=list)
    fresh_float: Callable[[], Evaluator] | None = None
