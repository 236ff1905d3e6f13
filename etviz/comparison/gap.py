"""One compared value, and the comparison of one execution."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from etviz.tensors.blocks import dtype_name
from etviz.tensors.custom_metrics import CustomMetrics
from etviz.tensors.metrics import AT_LEAST, NAN, THRESHOLD, UNKNOWN, Noise, Sums, level, severity_of, unavoidable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from etviz.evaluation.noise import Samples
    from etviz.graph.ir import Node
    from etviz.tensors.fingerprints import Fingerprint


COMPARED, GROUPED, NOT_COMPARED, MISMATCH = "compared", "grouped", "not compared", "non-finite mismatch"
DIFFERENT: Final = "shape or dtype mismatch"
WRONG: Final = (MISMATCH, DIFFERENT)
EMPTY: Final = "empty"
CREATED, CARRIED, LOST = "created", "carried", "lost"
"""Roles of an instruction whose runtime inputs or outputs hold NaN or Inf."""
TOGETHER: Final = "introduced together with "
"""Start of a row's reason if earlier instructions may have introduced its error."""
_SHARED: Final = "introduced "
_ONLY_INTRODUCED: Final = ": only introduced gaps"


@dataclass(slots=True)
class Gap:
    """One compared value; `reference` is None if it was not kept.

    `introduced` compares with the same operator on the runtime's inputs, None if unknown (`introduced_problem`);
    `introduced_different` is True if shape or dtype differ there. `non_finite` is the role in `NonFinite`. `unpaired`
    says why there is no reference; then the metrics are NaN. `scale` is the step of the value's grid. `noise` and
    `introduced_noise` are the errors that a correct implementation may have, NaN if unknown. `hypothesis` is another
    setting or weight that gives the runtime's value. `operators` are the targets that the instruction executes.
    `rounds` counts executions in a loop, stacked along the first axis; 0 outside of loops.
    """

    instruction: int
    output: int
    node: Node
    runtime: torch.Tensor
    reference: torch.Tensor | None
    total: Sums
    metrics: dict[str, float]
    run: int = 0
    introduced: dict[str, float] | None = None
    introduced_problem: str = ""
    introduced_sums: Sums | None = None
    pairing: str = "exact"
    status: str = COMPARED
    non_finite: str = ""
    unpaired: str = ""
    note: str = ""
    scale: float | None = None
    source: tuple[str, int] = ("", 0)
    noise: Noise = UNKNOWN
    introduced_noise: Noise = UNKNOWN
    hypothesis: Fingerprint | None = None
    operators: frozenset[str] = frozenset()
    failed_metrics: tuple[str, ...] = ()
    rounds: int = 0
    introduced_different: bool = False

    @property
    def reason(self) -> str:
        return self.unpaired or self.introduced_problem or self.note

    def forget_total(self, reason: str) -> None:
        self.metrics = dict.fromkeys(self.metrics, NAN)
        self.total = Sums()
        known = self.introduced is not None
        if not self.uncounted:
            self.status = COMPARED if known else NOT_COMPARED
        self.unpaired = self.unpaired or (reason if known else reason.removesuffix(_ONLY_INTRODUCED))
        self.reference = None

    def forget_introduced(self) -> None:
        self.introduced, self.introduced_sums, self.introduced_different = None, None, False

    def inherit(self) -> None:
        self.introduced, self.introduced_sums = dict(self.metrics), self.total

    @property
    def dtype(self) -> str:
        return dtype_name(self.runtime.dtype)

    def is_suspicious(self, *, introduced: bool) -> bool:
        metrics = self.introduced if introduced else self.metrics
        if metrics is None or (self.uncounted if introduced else self.status in WRONG):
            return False
        return metrics["severity"] >= THRESHOLD

    def is_exact(self) -> bool:
        """True if the runtime has the reference's value, or what its inputs make."""
        known, sums = self.introduced, self.introduced_sums
        same = known is not None and known["max_abs"] == 0 and sums is not None and not sums.mismatched
        return same or (self.status == COMPARED and self.metrics["max_abs"] == 0)

    def is_bad(self) -> bool:
        severity = self.introduced["severity"] if self.introduced is not None else NAN
        return level("severity", severity, self.dtype) == "bad"

    @property
    def on_grid(self) -> bool:
        metas = self.node.outputs[self.output : self.output + 1]
        return bool(metas) and metas[0] is not None and metas[0].scale is not None

    @property
    def introduced_non_finite(self) -> int:
        return self.introduced_sums.mismatched if self.introduced_sums is not None else 0

    @property
    def uncounted(self) -> bool:
        """True if it introduced NaN, Inf or another shape, which no severity and no share counts."""
        return bool(self.introduced_non_finite or self.introduced_different)

    @property
    def level(self) -> str:
        """Whether the operator added more error than its precision explains: ``ok``, ``warn``, ``bad`` or ``unknown``.

        A different shape or dtype, and NaN or Inf that the operator creates, is ``bad``.
        """
        known = self.introduced is not None
        if self.uncounted:
            return "bad"
        if self.status == MISMATCH and (self.non_finite == CREATED or (self.non_finite == LOST and not known)):
            return "bad"
        if self.introduced is None or math.isnan(self.introduced["severity"]):
            return "unknown"
        return level("severity", self.introduced["severity"], self.dtype)

    @property
    def total_level(self) -> str:
        if self.status in WRONG:
            return "bad"
        if math.isnan(self.metrics["severity"]):
            return "unknown"
        return level("severity", self.metrics["severity"], self.dtype)

    def add_note(self, text: str) -> None:
        if text not in self.note:
            self.note = "; ".join(filter(None, (self.note, text)))

    @property
    def on_its_grid(self) -> Noise:
        return Noise(unavoidable(self.dtype, 0.0, self.scale), AT_LEAST)

    def set_noise(self, noise: Noise) -> None:
        """Judge the total gap by this noise, or by its grid's if larger."""
        self.noise = max(noise, self.on_its_grid)
        self.metrics["severity"] = severity_of(self.total, self.dtype, self.scale, self.noise)

    def set_introduced_noise(self, noise: Noise) -> None:
        self.introduced_noise = noise
        if self.introduced is not None and self.introduced_sums is not None:
            self.introduced["severity"] = severity_of(self.introduced_sums, self.dtype, self.scale, noise)


class Keeper:
    """Reference tensors up to a number of bytes; others are computed again."""

    def __init__(self, room: int = 0) -> None:
        self._room = room
        self._kept: dict[int, torch.Tensor] = {}

    def keep(self, reference: torch.Tensor) -> torch.Tensor | None:
        """None without room; a tensor that executions share is counted once."""
        if id(reference) in self._kept:  # where it is held, so its id stays its own
            return reference
        if reference.nbytes > self._room:
            return None
        self._room -= reference.nbytes
        self._kept[id(reference)] = reference
        return reference


@dataclass(slots=True)
class ExecutionGaps:
    """One execution's gaps and outputs.

    `reasons` says why an instruction has no gap; `grouped` ones are part of another's gap, `empty` ones have values
    without elements. `readers` has the instructions that read each program input, None if the reference's graph tells;
    then `followers` has, by kind of input (``user``, ``buffer``), those whose introduced gaps follow from them.
    `ill_defined` instructions make integers of NaN or Inf, which `nonfinite_inputs` hold. `undetermined` tells
    why outputs can't be judged: they "follow from …". `unexplained` try hypotheses for an instruction.
    `delegate_inputs` are each delegate's logged inputs if nothing is compared. `samples` tell its noise until it is
    judged.
    """

    gaps: list[Gap] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    reference_outputs: list[Any] = field(default_factory=list)
    runtime_outputs: list[Any] = field(default_factory=list)
    output_scales: list[float | None] = field(default_factory=list)
    output_noise: list[Noise] = field(default_factory=list)
    output_imposed: list[Noise] = field(default_factory=list)
    grows_at: list[str] = field(default_factory=list)
    grouped: set[int] = field(default_factory=set)
    empty: set[int] = field(default_factory=set)
    readers: Mapping[str, frozenset[int]] | None = None
    followers: dict[str, set[int]] = field(default_factory=dict)
    judged: bool = True
    undetermined: str = ""
    ill_defined: set[int] = field(default_factory=set)
    nonfinite_inputs: tuple[str, ...] = ()
    unexplained: list[Callable[[], None]] = field(default_factory=list)
    delegate_inputs: dict[int, list[Any]] = field(default_factory=dict)
    samples: Samples | None = None
    run: int = 0
    keeper: Keeper = field(default_factory=Keeper)
    custom: CustomMetrics = field(default_factory=CustomMetrics)


def shared_with(reason: str) -> str:
    """The part of a row's `reason` that names other instructions.

    Examples
    --------
    >>> shared_with("introduced together with instruction 3 (add), whose value was not logged; severity is …")
    'introduced together with instruction 3 (add), whose value was not logged'
    """
    return next((part for part in reason.split("; ") if part.startswith(_SHARED)), "")


class Run(NamedTuple):
    """One execution; `input_index` is -1 if its inputs are not known."""

    event_block: int
    input_index: int
    comparison: ExecutionGaps
