"""A loop, round by round.

An operator in a loop is one row of the table: its values, and the reference's, are stacked along a new first axis in
execution order, also in nested loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.evaluation.limits import Limits, nbytes
from etviz.evaluation.values import Chain, Value, flat_values

if TYPE_CHECKING:
    from etviz.evaluation.values import Logged, Perturbation, SeenTogether
    from etviz.graph.ir import Node

Join = Callable[["Sequence[Any]"], Any]
_OBJECT: Final = 2048
"""Bytes of a value beside its tensors' bytes."""
_TOO_LARGE: Final = "the values of its rounds take too much memory together"
_MISCOUNTED: Final = "how many values the runtime logged for it does not go together with its rounds"


@dataclass(slots=True)
class Course:
    carries: list[Any]
    rows: list[Any]
    operands: list[Any]
    results: list[list[Any]] = field(default_factory=list)
    _given: int = 0

    @property
    def rounds(self) -> int:
        return len(self.rows[0])

    @property
    def nbytes(self) -> int:
        return self._given + nbytes(self.carries)

    def given(self, at: int) -> list[Any]:
        return [*self.carries, *self.rows, *self.operands, at]

    def end(self, given: Sequence[Any]) -> None:
        self.carries, rest = list(given[: len(self.carries)]), given[len(self.carries) :]
        self.results = self.results or [[] for _ in rest]
        self._given += nbytes(rest) + _OBJECT * len(rest)
        for result, row in zip(self.results, rest, strict=True):
            result.append(row)

    def value(self, like: Course | None = None) -> list[Any]:
        """The last carries, and the results; parts equal to another lane's are shared."""
        known = like.value() if like is not None else []
        if like is None:
            return [*self.carries, *map(stacked, self.results)]
        both = zip(self.results, like.results, known[len(self.carries) :], strict=True)
        return [*self.carries, *(other if _same(result, rows) else stacked(result) for result, rows, other in both)]


def stacked(values: Sequence[Any]) -> Any:
    if isinstance(values[0], (list, tuple)):
        return [stacked(items) for items in zip(*values, strict=True)]
    return torch.stack([torch.as_tensor(value) for value in values])


def joined(values: Sequence[Any]) -> Any:
    if isinstance(values[0], (list, tuple)):
        return [joined(items) for items in zip(*values, strict=True)]
    return torch.cat([torch.as_tensor(value) for value in values])


def _same(values: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(a is b for a, b in zip(values, others, strict=True))


class Turns:
    def __init__(self, logged: Logged) -> None:
        self._logged = logged
        self._taken: Counter[int] = Counter()

    def __call__(self, node: Node, turn: int | None = None) -> list[Any] | None:
        turn = self._taken[node.instruction]
        self._taken[node.instruction] += 1
        return self._logged(node, turn=turn)

    def is_over(self, node: Node) -> bool:
        return self._logged(node, turn=self._taken[node.instruction]) is None


class Rounds:
    """Gathers the values of all rounds, and drops those of a node that take too much memory."""

    def __init__(self, limits: Limits, turns: Turns | None = None) -> None:
        self.nbytes = 0
        self._limits, self._turns = limits, turns
        self._found: dict[str, tuple[Node, list[Value] | None, int]] = {}

    def see(self, node: Node, values: Sequence[Value]) -> None:
        value = values[0]
        _, known, rounds = self._found.get(node.name, (node, [], 0))
        size = nbytes([value.reference, value.local, value.runtime]) + _OBJECT
        if known is not None and self._limits.has_room(self.nbytes + 2 * size):  # twice: they are copied together
            known.append(value)
            self.nbytes += size
        else:
            known = None
        self._found[node.name] = node, known, rounds + 1

    def tell(self, seen: SeenTogether) -> None:
        for node, values, rounds in self._found.values():
            over = self._turns is None or node.instruction < 0 or self._turns.is_over(node)
            seen(node, [_together(values, rounds) if over else _without(rounds, _MISCOUNTED)])


def _without(rounds: int, reason: str) -> Value:
    return Value(None, None, None, unpaired=reason, rounds=rounds, missing=reason)


def _together(values: list[Value] | None, rounds: int) -> Value:
    if values is None:
        return _without(rounds, _TOO_LARGE)
    if missing := next((value.missing for value in values if value.missing), ""):
        return _without(rounds, missing)
    paired = [value for value in values if not value.unpaired] or values
    apart = sum(max(1, value.rounds) for value in values if value.unpaired) if paired[0].unpaired == "" else 0
    try:
        return _stacked(paired, apart)
    except (RuntimeError, TypeError, ValueError) as error:
        return _without(rounds, f"the values of its rounds are not alike: {error}")


def _stacked(values: list[Value], apart: int) -> Value:
    first, apart = values[0], apart + sum(value.apart for value in values)
    count = sum(max(1, value.rounds) for value in values)
    join = joined if first.rounds else stacked  # one after the other those of a loop in this one
    told: Value = replace(first, rounds=count, apart=apart, steps=_steps(values), chain=_chain(values, join))
    told.noise = None
    told.reference = None if first.unpaired else join([value.reference for value in values])
    told.problem = next((value.problem for value in values if value.problem), "")
    if any(value.local is None for value in values):
        told.local, told.again = None, None
    else:
        lanes = [[flat_values(lane) for lane in (value.reference, value.local)] for value in values]
        same = not first.unpaired and all(_same(local, other) for other, local in lanes)
        told.local = told.reference if same else join([value.local for value in values])
        told.again = _again([value.again for value in values], join)
    runtimes = [value.runtime for value in values]
    told.runtime = None
    if all(runtime is not None for runtime in runtimes):
        each = zip(*(runtime or () for runtime in runtimes), strict=True)
        told.runtime = [None if any(item is None for item in items) else join(items) for items in each]
    elif any(runtime is not None for runtime in runtimes):
        told.missing = _MISCOUNTED
    return told


def _again(calls: Sequence[Callable[[Perturbation], Any] | None], join: Join) -> Callable[[Perturbation], Any] | None:
    known = [call for call in calls if call is not None]
    return (lambda rounding: join([call(rounding) for call in known])) if len(known) == len(calls) else None


def _steps(values: Sequence[Value]) -> list[float | None] | None:
    known = [value.steps for value in values if value.steps]
    return [max((step for step in steps if step), default=None) for steps in zip(*known, strict=True)] or None


def _chain(values: Sequence[Value], join: Join) -> Chain | None:
    chains = [value.chain for value in values if value.chain is not None]
    if not chains:
        return None
    nodes = tuple({node.name: node for chain in chains for node in chain.nodes}.values())
    whole = len(chains) == len(values)
    perturbed: Iterator[Any] = map(join, zip(*(chain.others() for chain in chains), strict=False))
    others = tuple(perturbed) if whole else ()
    plains = [chain.plain for chain in chains]
    plain = join(plains) if whole and all(item is not None for item in plains) else None
    return Chain(nodes, lambda: others, chains[-1].logged, plain)
