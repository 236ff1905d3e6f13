"""Checks which inputs an execution had.

An ETDump lacks the program's inputs. But delegates log theirs: if they are the program's, they must equal the
reference's bit for bit. For other inputs, the first kernels must roughly agree with the reference.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.comparison.gap import COMPARED, DIFFERENT, MISMATCH
from etviz.graph.ir import Graph, Input, Ref

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from etviz.artifacts.etdump.runtime_log import RuntimeLog
    from etviz.comparison.gap import ExecutionGaps, Gap
    from etviz.graph.ir import Node

FIRST_FAR_OFF: Final = "The first operators are far off while most of the others are not: "
OTHER_SIZES: Final = "Values have other sizes than with the known inputs, and these sizes follow from the inputs: "
ROUGH: Final = 0.05
"""Relative L2 error of every first kernel from which the inputs are doubted."""
_SYMBOL: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(slots=True)
class Inputs:
    """The reference's flat inputs, and the index of their candidate (-1 if they are from the log).

    `known` is False if the run had unknown other inputs: then only introduced gaps mean something. `logged` names
    inputs that a delegate logged, so they are certain.
    """

    values: list[Any]
    index: int = 0
    known: bool = True
    note: str = ""
    logged: frozenset[str] = frozenset()


class Entrance:
    """The readers of a graph's inputs, and the delegates that log them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._users = {placeholder.name: placeholder for placeholder in graph.user_inputs()}

    @cached_property
    def _reading(self) -> list[tuple[Node, frozenset[str]]]:
        reading = ((node, self._users.keys() & node.reads()) for node in self.graph.nodes)
        return [(node, frozenset(names)) for node, names in reading if names]

    @cached_property
    def _readers(self) -> frozenset[int]:
        return frozenset(node.instruction for node, _ in self._reading if node.instruction >= 0)

    @cached_property
    def _delegates(self) -> frozenset[int]:
        return frozenset(node.instruction for node in self.graph.nodes if node.target == "delegate")

    def _logged(self, log: RuntimeLog) -> dict[str, torch.Tensor]:
        logged: dict[str, torch.Tensor] = {}
        for node, _ in self._reading:
            values = log.values(node.instruction) if node.target == "delegate" else []
            if len(values) != len(node.args) + len(node.outputs):
                continue
            for argument, value in zip(node.args, values, strict=False):
                if isinstance(argument, Ref) and argument.name in self._users and isinstance(value, torch.Tensor):
                    logged.setdefault(argument.name, value)
        return logged

    def choose(
        self,
        log: RuntimeLog,
        candidates: Sequence[Sequence[Any]],
        expected: int,
        logged: Mapping[str, Sequence[torch.Tensor]] | None = None,
    ) -> Inputs:
        if logged is None:
            logged = {name: [value] for name, value in self._logged(log).items()}
        first = [expected] if 0 <= expected < len(candidates) else []
        for index in itertools.chain(first, (at for at in range(len(candidates)) if at != expected)):
            by_name = dict(zip(self._users, candidates[index], strict=False))
            if all(any(_identical(by_name.get(name), value) for value in values) for name, values in logged.items()):
                return Inputs(list(candidates[index]), index, logged=frozenset(logged))
        if logged.keys() == self._users.keys() and all(len(values) == 1 for values in logged.values()):
            note = (
                "The run had other inputs than the reference's; the reference was computed on the inputs that were "
                "logged."
            )
            return Inputs([logged[name][0].clone() for name in self._users], -1, note=note)
        note = (
            "The run had other inputs than the reference's, and not all of them were logged, so total gaps are not "
            "known; give the run's inputs (inputs=)."
        )
        return Inputs(list(candidates[expected]), expected, known=False, note=note)

    def has_other_sizes(self, comparison: ExecutionGaps) -> bool:
        """True if a shape that follows from the inputs' sizes is not the reference's."""
        shapes = (placeholder.meta.shape for placeholder in self._users.values() if placeholder.meta is not None)
        symbols = {name for shape in shapes for size in shape for name in _SYMBOL.findall(str(size))}
        return any(gap.status == DIFFERENT and _follows(gap, symbols) for gap in comparison.gaps)

    def is_doubtful(self, comparison: ExecutionGaps, *, each: bool = False) -> bool:
        """With `each`, the readers of one input suffice."""
        if not (self._is_of_another(comparison) if each else self.starts_far_off(comparison)):
            return False
        first = self._first_kernels(comparison)
        later = [gap for gap in comparison.gaps if gap.instruction not in first and gap.introduced is not None]
        calm = [gap for gap in later if gap.introduced is not None and gap.introduced["rel_l2"] < ROUGH / 10]
        return 2 * len(calm) > len(later)

    def starts_far_off(self, comparison: ExecutionGaps) -> bool:
        first = self._first_kernels(comparison)
        gaps = [gap for gap in comparison.gaps if gap.instruction in first and gap.runtime.dtype.is_floating_point]
        return bool(gaps) and all(gap.metrics["rel_l2"] > ROUGH for gap in gaps)

    def _is_of_another(self, comparison: ExecutionGaps) -> bool:
        first = self._first_kernels(comparison)
        gaps = {gap.instruction: gap.metrics["rel_l2"] > ROUGH for gap in comparison.gaps if gap.instruction in first}
        reading = ([gaps[at] for at in self._reads(comparison, name) if at in gaps] for name in self._users)
        return any(far and all(far) for far in reading)

    def _reads(self, comparison: ExecutionGaps, name: str) -> Collection[int]:
        if comparison.readers is not None:
            return comparison.readers[name]
        return [node.instruction for node, reads in self._reading if name in reads]

    def proved(self, inputs: Inputs, comparison: ExecutionGaps) -> bool:
        """True if the log proves that the run had these inputs.

        Outputs have the reference's shapes. A delegate logged each input, or all kernels that read it agree with the
        reference up to rounding.
        """
        if inputs.index < 0:
            return inputs.known
        outputs = zip(comparison.reference_outputs, comparison.runtime_outputs, strict=False)
        if any(_differ_in_shape(expected, logged) for expected, logged in outputs):
            return False
        readers = self._readers_in(comparison)
        agrees = {gap.instruction: gap.status == COMPARED for gap in comparison.gaps if gap.instruction in readers}
        for gap in comparison.gaps:
            if gap.instruction in readers:
                agrees[gap.instruction] &= not gap.is_suspicious(introduced=False)
        for name in self._users.keys() - inputs.logged:
            agreements = [agrees[at] for at in self._reads(comparison, name) if at in agrees]
            if not agreements or not all(agreements):
                return False
        return inputs.known

    def forget_totals(self, comparison: ExecutionGaps, reason: str, *, state: bool = False) -> None:
        """Remove the gaps that a comparison on other inputs than the run's can't show.

        These are total gaps, and introduced gaps of the inputs' readers; with `state` also of readers of earlier state.
        """
        readers = self._readers_in(comparison) | self._unknowing(comparison, "user", *(["buffer"] if state else []))
        for gap in comparison.gaps:
            if gap.instruction in readers:
                gap.forget_introduced()
            gap.forget_total(reason)
        comparison.reference_outputs, comparison.judged = [], False

    def _first_kernels(self, comparison: ExecutionGaps) -> frozenset[int]:
        called = frozenset(gap.instruction for gap in comparison.gaps if gap.node.target == "delegate")
        logged = set[str]().union(*(names for node, names in self._reading if node.instruction in called))
        certain = {node.instruction for node, names in self._reading if names <= logged}
        return self._readers_in(comparison) - self._delegates - called - certain

    def _readers_in(self, comparison: ExecutionGaps) -> frozenset[int]:
        return self._readers if comparison.readers is None else frozenset().union(*comparison.readers.values())

    def keeps_state(self, comparison: ExecutionGaps) -> bool:
        """True if readers of mutable buffers agree with the state that the method itself left."""
        readers = self._unknowing(comparison, "buffer")
        gaps = [gap for gap in comparison.gaps if gap.instruction in readers]
        return bool(gaps) and not any(gap.status == MISMATCH or _is_off(gap) for gap in gaps)

    def _unknowing(self, comparison: ExecutionGaps, *kinds: str) -> set[int]:
        instructions = set[int]()
        if comparison.readers is not None:
            return instructions.union(*(comparison.followers[kind] for kind in kinds))
        wrong = {placeholder.name for placeholder in self.graph.inputs if placeholder.kind in kinds}
        logged = {gap.instruction for gap in comparison.gaps}
        for node in self.graph.nodes:
            if wrong.isdisjoint(node.reads()):
                continue
            if node.instruction in logged:
                instructions.add(node.instruction)
            else:
                wrong.add(node.name)
        return instructions


def forget(comparison: ExecutionGaps, reason: str) -> None:
    for gap in comparison.gaps:
        gap.forget_introduced()
        gap.forget_total(reason)
    comparison.reference_outputs, comparison.judged = [], False


def _follows(gap: Gap, symbols: Collection[str]) -> bool:
    meta = gap.node.outputs[gap.output] if gap.output < len(gap.node.outputs) else None
    if meta is None or meta.dtype != gap.dtype or len(meta.shape) != gap.runtime.ndim:
        return False
    open_sizes = [size for size in meta.shape if isinstance(size, str)]
    fits = all(isinstance(a, str) or a == b for a, b in zip(meta.shape, gap.runtime.shape, strict=True))
    return fits and bool(open_sizes) and all(set(_SYMBOL.findall(size)) <= {*symbols} for size in open_sizes)


def _differ_in_shape(value: Any, other: Any) -> bool:
    return hasattr(value, "shape") and hasattr(other, "shape") and value.shape != other.shape


def _is_off(gap: Gap) -> bool:
    if gap.introduced is not None:
        return gap.is_suspicious(introduced=True)
    return gap.metrics["rel_l2"] > ROUGH


def why_not(values: Sequence[Any], takes: Sequence[Input]) -> str:
    if len(values) != len(takes):
        return f"the program takes {len(takes)} inputs, found {len(values)}"
    for placeholder, value in zip(takes, values, strict=True):
        if placeholder.meta is None:
            continue
        if not isinstance(value, torch.Tensor):
            return f"input {placeholder.name} must be a tensor, found {type(value).__name__}"
        shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
        if len(shape) != len(placeholder.meta.shape) or any(
            a != b for a, b in zip(placeholder.meta.shape, shape, strict=True) if isinstance(a, int)
        ):
            return f"input {placeholder.name} must have the shape {tuple(placeholder.meta.shape)}, found {shape}"
        if dtype != placeholder.meta.dtype:
            return f"input {placeholder.name} must be {placeholder.meta.dtype}, found {dtype}"
        if value.layout is not torch.strided or value.device.type != "cpu":
            return f"input {placeholder.name} must be a dense tensor on the CPU"
    return ""


def fits(graph: Graph, values: Sequence[Any]) -> bool:
    return not why_not(values, graph.user_inputs())


def _identical(given: Any, logged: torch.Tensor) -> bool:
    if not isinstance(given, torch.Tensor) or given.shape != logged.shape or given.dtype != logged.dtype:
        return False
    if torch.equal(given, logged):
        return True
    return logged.dtype.is_floating_point and torch.equal(torch.nan_to_num(given), torch.nan_to_num(logged))
