"""Fingerprints of right values in the wrong place: another order of the axes in memory, a shift along an axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from etviz.numerics.blocks import take
from etviz.numerics.evidence import Fingerprint, Ints, Pair, percent, share_explained

_LEAST: Final = 0.5
_ALL_ORDERS: Final = 4
"""Axes up to which every order is tried; beyond, swaps and moves of one axis."""
_CONFIRMED: Final = 2
_TRIED: Final = 2048

Order = tuple[int, ...]


def permuted(pair: Pair) -> Iterator[Fingerprint]:
    """The reference's axes in another order, written to memory and read in the runtime's shape.

    Two cases are one: a transposed tensor (the order keeps the shape), and memory in one layout that is read as if it
    had another (NHWC read as NCHW).
    """
    axes = [axis for axis, size in enumerate(pair.shape) if size > 1]
    sizes = [pair.shape[axis] for axis in axes]
    at, r, q = pair.sample
    every = slice(None, None, max(1, len(at) // _TRIED))
    at, r, q = at[every], r[every], q[every]
    if len(axes) < 2 or not len(at):
        return
    found: list[tuple[float, Order]] = []
    for order in _orders(len(axes)):
        predicted = take(pair.reference, _source(at, sizes, order))
        share = share_explained(r, q, predicted)
        if share >= _LEAST:
            found.append((share, order))
    best = Fingerprint("permuted layout", 0.0, "")
    for _, order in sorted(found, reverse=True)[:_CONFIRMED]:
        moved = pair.reference.reshape(sizes).permute(order).reshape(pair.shape)
        score = pair.confirmed_by(pair.reference, pair.runtime, moved)
        if score > best.score:
            text = _words([axes[k] for k in order], axes, pair.shape)
            best = Fingerprint(best.name, score, f"{text}: this explains {percent(score)} of the squared error.")
    if best.score:
        yield best


def _orders(count: int) -> Iterator[Order]:
    """Every order of the axes but the first; of many axes, swaps and moves only."""
    straight = tuple(range(count))
    if count <= _ALL_ORDERS:
        yield from (order for order in itertools.permutations(straight) if order != straight)
        return
    seen = {straight}
    for a, b in itertools.permutations(straight, 2):
        swapped = list(straight)
        swapped[a], swapped[b] = b, a
        moved = [axis for axis in straight if axis != a]
        moved.insert(b, a)
        for order in (tuple(swapped), tuple(moved)):
            if order not in seen:
                seen.add(order)
                yield order


def _source(at: Ints, sizes: Sequence[int], order: Order) -> Ints:
    """Flat position in the reference of what stands at `at` after its axes were put in `order`."""
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    source = np.zeros_like(at)
    rest = at
    for axis in reversed(order):
        rest, digit = np.divmod(rest, sizes[axis])
        source += digit * strides[axis]
    return source


def _words(order: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> str:
    if [shape[axis] for axis in order] == [shape[axis] for axis in axes]:
        moved = [axis for axis, other in zip(axes, order, strict=True) if axis != other]
        if len(moved) == 2:
            return f"The runtime has the reference with axes {moved[0]} and {moved[1]} swapped"
        return f"The runtime has the reference with its axes in the order {tuple(order)}"
    if len(shape) >= 4:
        last = [0, *range(2, len(shape)), 1]
        first = [0, len(shape) - 1, *range(1, len(shape) - 1)]
        if list(order) == [axis for axis in last if axis in axes]:
            return "The runtime has the reference in channels-last memory order (NHWC), read as channels-first (NCHW)"
        if list(order) == [axis for axis in first if axis in axes]:
            return "The runtime has the reference's channels-first memory (NCHW), read as channels-last (NHWC)"
    return f"The runtime has the reference written with its axes in the order {tuple(order)} and read as {tuple(shape)}"


def shifted(pair: Pair) -> Iterator[Fingerprint]:
    """Everything one place further along an axis; what moves in at the edge is not looked at."""
    best = Fingerprint("off-by-one shift", 0.0, "")
    at, r, q = pair.sample
    for axis, size in enumerate(pair.shape):
        stride = math.prod(pair.shape[axis + 1 :])
        place = at // stride % size if size else at
        for step in (1, -1):
            inside = (place + step >= 0) & (place + step < size)
            if size < 3 or not inside.any():
                continue
            predicted = take(pair.reference, at[inside] + step * stride)
            if share_explained(r[inside], q[inside], predicted) < max(_LEAST, best.score - 0.1):
                continue
            score = _confirm_shift(pair, axis, step)
            if score > best.score:
                where = f"index i of axis {axis} has what the reference has at i {'+' if step > 0 else '−'} 1"
                text = f"The runtime's {where}: this explains {percent(score)} of the squared error away from the edge."
                best = Fingerprint(best.name, score, text)
    if best.score:
        yield best


def _confirm_shift(pair: Pair, axis: int, step: int) -> float:
    length = pair.shape[axis] - 1
    here, there = (0, 1) if step > 0 else (1, 0)
    return pair.confirmed_by(
        pair.reference.narrow(axis, here, length),
        pair.runtime.narrow(axis, here, length),
        pair.reference.narrow(axis, there, length),
    )
