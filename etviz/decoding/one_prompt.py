"""One prompt at reference and runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from etviz.calls.driver import Call, Driver
from etviz.calls.session import Session
from etviz.decoding.forced import follow
from etviz.decoding.sequence import Decoded, Position
from etviz.errors import PairingError, UsageError

Own = Callable[[torch.Tensor], Any]


def decode_one(
    session: Session,
    number: int,
    prompt: Sequence[int],
    steps: int,
    prefill: int | None,
    logits_of: Own | None,
    *,
    fed: Sequence[int] = (),
    stops: Collection[int] = (),
) -> Decoded:
    """`fed` are tokens after the prompt, in place of the reference's first ones; it chooses none after a stop."""
    driver, needed = session.drivers[number], len(prompt) + max(steps - 1, 0)
    if logits_of is not None and session.encoder is not None:
        logits_of = partial(_from_source, logits_of, session.encoder.sources[number])
    if driver.room is not None and needed > driver.room:
        raise UsageError(
            f"prompt {number} has {len(prompt)} tokens, and {steps} follow; the program has room for {driver.room}"
        )
    ids, waiting = [*prompt, *fed], list(driver.prefill(prompt, prefill))
    waiting += [driver.step(ids[: at + 1], at) for at in range(len(prompt), len(ids))]
    writer = _Prompted(driver, ids, len(prompt) + steps, waiting, logits_of, stops)
    try:
        peak = follow(session.replay, writer.ask)
    except PairingError as error:
        if not writer.outputs:
            raise
        raise UsageError(_ended(number, writer.calls[len(writer.outputs)].position, needed, error)) from error
    runtime = session.runtime(writer.calls)
    positions = writer.positions()
    if not positions:
        raise UsageError(f"prompt {number} has one token; give steps=1 or more")
    places = [(position.call, position.row) for position in positions]
    expected = torch.stack([writer.outputs[call][row] for call, row in places])
    if logits_of is not None:
        whole = _own(logits_of, writer.ids, expected.shape[1])
        expected = torch.stack([whole[position.position] for position in positions])
    return Decoded(
        tuple(writer.ids),
        len(prompt),
        tuple(writer.calls),
        tuple(positions),
        expected,
        torch.stack([runtime[call][row] for call, row in places]),
        peak=peak,
    )


@dataclass(slots=True)
class _Prompted:
    driver: Driver
    ids: list[int]
    length: int
    waiting: list[Call]
    own: Own | None
    stops: Collection[int] = ()
    calls: list[Call] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)

    def ask(self, last: Sequence[torch.Tensor]) -> list[list[Any]]:
        self.outputs.extend(last)
        if len(self.calls) == len(self.outputs) > 0 and not self.waiting and len(self.ids) < self.length:
            self._choose(last[-1])
        waiting, self.waiting = self.waiting, []
        self.calls.extend(waiting)
        return [tree_leaves(call.inputs) for call in waiting]

    def _choose(self, last: torch.Tensor) -> None:
        row = rows_of(self.calls[-1], last)[-1][1]
        logits = last[row] if self.own is None else _own(self.own, self.ids, last.shape[1])[-1]
        self.ids.append(int(torch.nan_to_num(logits, -torch.inf).argmax()))
        if len(self.ids) < self.length and self.ids[-1] not in self.stops:
            self.waiting.append(self.driver.step(self.ids, len(self.ids) - 1))

    def positions(self) -> list[Position]:
        positions: dict[int, Position] = {}
        for at, (call, logits) in enumerate(zip(self.calls, self.outputs, strict=True)):
            for position, row in rows_of(call, logits):
                if position < len(self.ids) - 1:
                    positions.setdefault(position, Position(at, row, position))
        return list(positions.values())


def rows_of(call: Call, logits: torch.Tensor) -> list[tuple[int, int]]:
    count, rows = len(call.ids), len(logits)
    if rows >= count:
        return [(call.position + row, row) for row in range(count)]
    if rows == 1:
        return [(call.position + count - 1, 0)]
    raise UsageError(f"a call with {count} tokens returns {rows} rows of logits; expected one for each, or one")


def by_position(
    calls: Sequence[Call], logits: Sequence[torch.Tensor], first: int = 0
) -> dict[int, tuple[int, torch.Tensor]]:
    rows: dict[int, tuple[int, torch.Tensor]] = {}
    for number, (call, values) in enumerate(zip(calls, logits, strict=True)):
        for position, row in rows_of(call, values) if number >= first else ():
            rows.setdefault(position, (number, values[row]))
    return rows


def _ended(number: int, position: int, needed: int, error: PairingError) -> str:
    return (
        f"prompt {number}: the program can't go on at position {position}, and {needed} positions are needed; its "
        f"context may be that long: give a shorter prompt or fewer steps ({error.problem})"
    )


def _from_source(function: Callable[..., Any], source: Sequence[Any], ids: torch.Tensor) -> Any:
    return function(ids, *source)


def _own(function: Own, ids: Sequence[int], vocabulary: int) -> torch.Tensor:
    try:
        with torch.no_grad():
            logits = function(torch.tensor([list(ids)]))
    except Exception as error:
        raise UsageError(f"reference: it fails on {len(ids)} ids: {type(error).__name__}: {error}") from error
    logits = getattr(logits, "logits", logits)
    if not isinstance(logits, torch.Tensor) or not logits.is_floating_point():
        raise UsageError(f"reference: it must return logits, found {type(logits).__name__}")
    rows = logits.detach().float().reshape(-1, logits.shape[-1])
    if rows.shape != (len(ids), vocabulary):
        raise UsageError(
            f"reference: expected logits of {len(ids)} positions and {vocabulary} tokens, found {list(logits.shape)}"
        )
    return rows
