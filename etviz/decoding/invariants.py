"""`invariants`: what must hold of a program's calls, whatever the reference says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch
from torch.utils._pytree import tree_leaves
from tqdm.auto import tqdm

from etviz.artifacts.scratch import Scratch
from etviz.calls.driver import Call, Driver, Make
from etviz.calls.lint import Form
from etviz.calls.session import Session, open_session
from etviz.calls.tokens import tokenizer_of
from etviz.decoding.entry import ids_of
from etviz.decoding.forced import noise_of_logits
from etviz.decoding.one_prompt import by_position
from etviz.errors import ExecutionError, UsageError, checked
from etviz.evaluation.replay import Replay, question
from etviz.evaluation.values import flat_values
from etviz.tensors.metrics import EPS, THRESHOLD, figure

HOLDS, WITHIN, BROKEN, SKIPPED = "holds", "within noise", "broken", "not applicable"
COLUMNS: Final = (
    *("invariant", "status", "prompt", "call", "position", "module", "operator", "severity", "max_abs", "detail"),
)
_HALF: Final = math.sqrt(EPS["float32"])
"""Relative difference at which half of the digits of a float32 number are lost."""


@dataclass(frozen=True, slots=True)
class Way:
    """One of two ways to feed a sequence; `first` is the first call that feeds the compared one."""

    calls: tuple[Call, ...]
    first: int
    said: str

    @property
    def one_method(self) -> bool:
        return not any(call.method for call in self.calls)


class Invariants:
    """What holds of a program's calls. Made by `etviz.invariants`.

    Attributes
    ----------
    table
        A row for each invariant and prompt: ``invariant``, ``status`` (``holds`` bit for bit, ``within noise``,
        ``broken`` or ``not applicable``), ``prompt``, the first ``call`` and ``position`` that break it, the ``module``
        and the ``operator`` where the reference's values differ first, ``severity`` (RMSE of that position's logits
        over their noise), ``max_abs`` (of all logits) and ``detail``.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table

    @property
    def broken(self) -> pd.DataFrame:
        """The broken rows of `table`."""
        return self.table[self.table["status"] == BROKEN]

    @property
    def holds(self) -> bool:
        """True if nothing is broken."""
        return not len(self.broken)

    def summary(self) -> str:
        """A line for each invariant, the broken ones first."""
        tried = self.table[self.table["status"] != SKIPPED]
        head = f"{len(self.broken)} of {len(tried)} invariants are broken." if len(tried) else "Nothing could be tried."
        order = {BROKEN: 0, WITHIN: 1, HOLDS: 2, SKIPPED: 3}
        lines = [
            (order[status], f"{status}: {invariant}, prompt {prompt}: {detail}")
            for status, invariant, prompt, detail in self.table[["status", "invariant", "prompt", "detail"]].to_numpy()
        ]
        return "\n".join([head, *(said for _, said in sorted(lines, key=lambda line: line[0]))])

    def __repr__(self) -> str:
        return self.summary()


@checked
def invariants(
    program: Any,
    prompts: Any,
    *,
    driver: Driver | Make | Sequence[Any] | None = None,
    encoder: str | None = None,
    sources: Any = None,
    tokenizer: Any = None,
    method: str | None = None,
    strict: bool = False,
    timeout: float | None = None,
    **lowering: Any,
) -> Invariants:
    """Check what must hold of a program's calls, without another model to compare with.

    The program is fed the same tokens in different ways, which must give the same logits: twice; in chunks of every
    length and token by token; after another sequence, after a reset, and from the initial state; partly by another
    method that keeps the same state; with other tokens as padding, and in the other rows of a batch; up to its last
    position, beyond which it must refuse. Differences are compared with measured rounding noise.

    Parameters
    ----------
    program, prompts, driver, encoder, sources, tokenizer, method, strict, timeout, lowering
        As for `etviz.decode`.

    Raises
    ------
    UsageError
        If an argument makes no sense, or no driver fits.
    LoweringError
        If upstream refuses the model.
    ExecutionError
        If a run fails within the program's room.

    Examples
    --------
    >>> etviz.invariants("model.pte", [[1, 5, 9]]).summary()  # doctest: +SKIP
    """
    words = tokenizer_of(tokenizer)
    ids, sources = ids_of(words, prompts, encoder, sources)
    with Scratch() as scratch:
        given = (driver, Path(scratch), method, strict, timeout, lowering, encoder, sources)
        session = open_session(program, ids, 0, *given)
        checker = _Checker(session)
        rows: list[dict[str, Any]] = []
        for number in tqdm(range(len(ids)), desc="etviz", unit="prompt", leave=False):
            for row in _all(checker, session.drivers, ids, number):
                rows.append({"prompt": number, **row})
    return Invariants(pd.DataFrame(rows, columns=list(COLUMNS)))


def _all(checker: _Checker, drivers: Sequence[Driver], prompts: Sequence[Sequence[int]], number: int) -> Iterator[Any]:
    driver, ids = drivers[number], list(prompts[number])
    if driver.room is not None and len(ids) > driver.room:
        raise UsageError(f"prompt {number} has {len(ids)} tokens, and the program has room for {driver.room}")
    plain = _way(driver, ids, 1, "token by token")
    yield checker.compare("the same run twice", plain, replace(plain, said="again"), twice=True)
    yield from _chunks(checker, driver, ids, plain)
    yield _sequences(checker, drivers, prompts, number, plain)
    yield _after_reset(checker, drivers, prompts, number, plain)
    yield from _methods(checker, driver, ids, plain)
    yield _padding(checker, driver, ids)
    yield _batch(checker, driver, plain)
    yield from _context(checker, driver, ids)


def _way(driver: Driver, ids: Sequence[int], size: int, said: str) -> Way:
    return Way(tuple(driver.prefill(ids, size)), 0, said)


def _skipped(invariant: str, why: str) -> dict[str, Any]:
    return {"invariant": invariant, "status": SKIPPED, "detail": why}


def _chunks(checker: _Checker, driver: Driver, ids: Sequence[int], plain: Way) -> Iterator[Any]:
    name = "chunks = token by token"
    sizes = range(2, min(driver.chunk, len(ids)) + 1)
    if not sizes:
        yield _skipped(name, "a call takes one token" if driver.chunk < 2 else "the prompt has one token")
    for size in sizes:
        yield checker.compare(name, plain, _way(driver, ids, size, f"{size} tokens a call"))


def _sequences(
    checker: _Checker, drivers: Sequence[Driver], prompts: Sequence[Sequence[int]], number: int, plain: Way
) -> dict[str, Any]:
    name = "after another sequence = alone"
    driver = drivers[number]
    if driver.stateless:
        return _skipped(name, "the program keeps no state")
    if not Form.of(driver).positions:
        return _skipped(name, "the calls say no position, so a sequence cannot begin anew without a reset")
    before = _before(drivers, prompts, number)
    way = Way((*before, *plain.calls), len(before), "after another sequence")
    return checker.compare(name, plain, way)


def _before(drivers: Sequence[Driver], prompts: Sequence[Sequence[int]], number: int) -> tuple[Call, ...]:
    other = (number + 1) % len(prompts)
    ids = list(prompts[other]) if other != number else list(reversed(prompts[number]))
    return tuple(drivers[other].prefill(ids, 1))


def _after_reset(
    checker: _Checker, drivers: Sequence[Driver], prompts: Sequence[Sequence[int]], number: int, plain: Way
) -> dict[str, Any]:
    name, method = "after reset = fresh", checker.session.reset_method()
    if not method:
        return _skipped(name, "the program has no method without inputs whose name holds 'reset'")
    before = (*_before(drivers, prompts, number), Call((), (), 0, method))
    way = Way((*before, *plain.calls), len(before), f"after another sequence and {method}()")
    return checker.compare(name, plain, way)


def _methods(checker: _Checker, driver: Driver, ids: Sequence[int], plain: Way) -> Iterator[Any]:
    name, others = "methods share their state", {} if driver.stateless else checker.session.other_drivers()
    if not others or len(ids) <= 1:
        yield _skipped(name, "no other method takes tokens and keeps a state" if not others else "one token")
    for method, other in others.items():
        if len(ids) <= other.chunk and Form.of(other).padded:
            yield _skipped(name, f"{method} takes {other.chunk} tokens, and the prompt has {len(ids)}")
            continue
        count = min(other.chunk, len(ids) - 1)
        first = tuple(replace(call, method=method) for call in other.prefill(ids[:count], count))
        calls = (*first, *(driver.step(ids[: at + 1], at) for at in range(count, len(ids))))
        yield checker.compare(name, plain, Way(calls, len(first), f"the first {count} tokens by {method}"))


def _batch(checker: _Checker, driver: Driver, plain: Way) -> dict[str, Any]:
    name, form = "other rows of the batch have no effect", Form.of(driver)
    tokens = tree_leaves(plain.calls[0].inputs)[form.tokens]
    if tokens.ndim < 2 or tokens.shape[0] < 2:
        return _skipped(name, "a call takes one sequence")
    calls = tuple(replace(call, inputs=_beside(call, form)) for call in plain.calls)
    return checker.compare(name, plain, Way(calls, 0, "with other tokens in the other rows"))


def _beside(call: Call, form: Form) -> tuple[Any, ...]:
    flat = tree_leaves(call.inputs)
    tokens = flat[form.tokens].clone()
    tokens[1:] = torch.where(tokens[1:] == 1, 2, 1)
    flat[form.tokens] = tokens
    return tuple(flat)


def _padding(checker: _Checker, driver: Driver, ids: Sequence[int]) -> dict[str, Any]:
    name = "padding has no effect"
    form = Form.of(driver) if driver.chunk > 1 else None
    if form is None or not form.padded:
        return _skipped(name, "calls are not padded")
    size = max(1, min(driver.chunk, len(ids)) // 2)
    plain = _way(driver, ids, size, "as it is")
    calls = tuple(replace(call, inputs=_padded(call, form)) for call in plain.calls)
    return checker.compare(name, plain, Way(calls, 0, "with other tokens as padding"))


def _padded(call: Call, form: Form) -> tuple[Any, ...]:
    flat = tree_leaves(call.inputs)
    tokens = flat[form.tokens].clone()
    row = tokens.view(-1)
    row[len(call.ids) :] = row[0] if int(row[0]) != 0 else 1
    flat[form.tokens] = tokens
    return tuple(flat)


def _context(checker: _Checker, driver: Driver, ids: Sequence[int]) -> Iterator[Any]:
    name = "the whole room"
    if driver.room is None or driver.stateless:
        said = "each call takes the whole sequence" if driver.stateless else "the program does not say its room"
        yield _skipped(name, said)
        return
    whole = (list(ids) * (driver.room // len(ids) + 1))[: driver.room]
    plain = _way(driver, whole, 1, "token by token")
    size = min(driver.chunk, len(whole))
    yield checker.compare(name, plain, _way(driver, whole, size, f"{size} tokens a call"), twice=size == 1)
    beyond = replace(driver, room=None).call(whole[:1], driver.room)
    try:
        checker.run((*plain.calls, beyond))
    except ExecutionError:
        yield {"invariant": "beyond the room", "status": HOLDS, "detail": "the program refuses the call"}
        return
    said = f"the program accepts position {driver.room}, and has room for {driver.room}: its result means nothing"
    yield {
        **{"invariant": "beyond the room", "status": BROKEN, "call": len(plain.calls), "position": driver.room},
        "detail": said,
    }


class _Checker:
    def __init__(self, session: Session) -> None:
        self.session = session
        self._known: dict[int, tuple[tuple[Call, ...], list[torch.Tensor]]] = {}
        self._noises: dict[int, tuple[tuple[Call, ...], dict[int, float]]] = {}

    def run(self, calls: tuple[Call, ...], *, again: bool = False) -> list[torch.Tensor]:
        known = self._known.get(id(calls))
        if known is None or again:
            logits = self.session.runtime(calls)
            self._known[id(calls)] = (calls, logits)  # keeps the calls, so that their id stays theirs
            return logits
        return known[1]

    def compare(self, name: str, plain: Way, other: Way, *, twice: bool = False) -> dict[str, Any]:
        first, second = self.run(plain.calls), self.run(other.calls, again=twice)
        one, two = by_position(plain.calls, first, plain.first), by_position(other.calls, second, other.first)
        shared = [position for position in one if position in two]
        if not shared:
            return _skipped(name, f"{other.said}: no position has logits both ways")
        gaps = {at: (one[at][1] - two[at][1]).double() for at in shared}
        finite = all(bool(one[at][1].isfinite().all() and two[at][1].isfinite().all()) for at in shared)
        most = max(float(gap.nan_to_num(0.0).abs().max()) for gap in gaps.values())
        row = {"invariant": name, "max_abs": most, "severity": 0.0}
        if finite and most == 0:
            return {**row, "status": HOLDS, "detail": f"{other.said}: {len(shared)} positions, bit for bit"}
        noise = {at: self._noise(plain, other, at) for at in shared}
        ratios = {at: _severity(float(gap.square().mean().sqrt()), noise[at]) for at, gap in gaps.items()}
        wrong = [at for at, ratio in ratios.items() if not ratio < THRESHOLD]
        row["severity"] = max(ratios.values())
        if finite and not wrong:
            most = figure(row["severity"], 2)
            return {**row, "status": WITHIN, "detail": f"{other.said}: {most} times the noise at most"}
        at = min(wrong, default=min(shared))
        module, operator, said = self._where(plain, other)
        return {
            **row,
            **{"status": BROKEN, "call": two[at][0], "position": at, "module": module, "operator": operator},
            "severity": ratios[at],
            "detail": f"{other.said}, call {two[at][0]}: the logits of position {at} differ from {plain.said} by "
            f"{figure(ratios[at], 2)} times the noise; {said}",
        }

    def _noise(self, plain: Way, other: Way, position: int) -> float:
        sides = (plain, other if other.one_method else plain)
        return math.hypot(*(self._noise_of(way).get(position, 0.0) for way in sides))

    def _noise_of(self, way: Way) -> dict[int, float]:
        known = self._noises.get(id(way.calls))
        if known is None:
            waiting = [tree_leaves(call.inputs) for call in way.calls]
            by_call = noise_of_logits(self.session.replay, waiting, self.run(way.calls)[0].shape[1])
            logits = [torch.tensor([[row[0]] for row in call]) for call in by_call]
            noises = {at: float(row) for at, (_, row) in by_position(way.calls, logits, way.first).items()}
            known = self._noises[id(way.calls)] = (way.calls, noises)
        return known[1]

    def _where(self, plain: Way, other: Way) -> tuple[str, str, str]:
        if not other.one_method:
            names = ", ".join(sorted({call.method for call in other.calls if call.method}))
            return "", "", f"{names} and {self.session.subject.method} do not see the same state"
        sides = []
        for way in (plain, other):
            inputs = [tree_leaves(call.inputs) for call in way.calls]
            counts = [len(call.ids) for call in way.calls]
            values = values_of(self.session.replay, inputs, way.first)
            sides.append(_rows_by_module(values, counts[way.first :]))
        for name, (operator, rows) in sides[0].items():
            mine, theirs = rows, sides[1].get(name, ("", {}))[1]
            for at in sorted(set(mine) & set(theirs)):
                gap = float((mine[at] - theirs[at]).norm())
                if not gap <= _HALF * float(mine[at].norm()):
                    return name, operator, f"the program's graph breaks it in {name} ({operator}), at position {at}"
        return "", "", "the program's graph does not break it, so its kernels do: compare them with etviz.decode"


def _severity(rmse: float, noise: float) -> float:
    if rmse == 0:
        return 0.0
    return rmse / noise if noise else math.inf


@question
def values_of(replay: Replay, calls: Sequence[Sequence[Any]], first: int) -> list[list[list[Any]]]:
    """The last value of each module, for each call from the `first` on: module, operator, value."""
    evaluator = replay.fresh()
    values: list[list[list[Any]]] = []
    for number, inputs in enumerate(calls):
        last: dict[str, list[Any]] = {}

        def seen(node: Any, value: Any, last: dict[str, list[Any]] = last) -> None:
            for tensor in flat_values(getattr(value, "reference", value)):
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.ndim > 1:
                    last.pop(node.module or node.name, None)
                    last[node.module or node.name] = [node.module or node.name, node.target, tensor.clone()]

        evaluator.run(inputs, seen, replay=False)
        if number >= first:
            values.append(list(last.values()))
    return values


def _rows_by_module(
    calls: Sequence[Sequence[Sequence[Any]]], counts: Sequence[int]
) -> dict[str, tuple[str, dict[int, torch.Tensor]]]:
    by_module: dict[str, tuple[str, dict[int, torch.Tensor]]] = {}
    position = 0
    for call, count in zip(calls, counts, strict=True):
        for name, operator, value in call:
            if value.shape[1] >= count:
                rows = by_module.setdefault(name, (operator, {}))[1]
                rows |= {
                    position + at: value[:1, at].double().flatten()
                    for at in range(count)
                    if value.shape[1] <= 4 * count
                }
        position += count
    return by_module
