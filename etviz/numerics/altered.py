"""Fingerprints of values that a function of the reference's value gives: sign, rounding, range, offset, scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from etviz.numerics.blocks import Floats, pairs
from etviz.numerics.evidence import Fingerprint, Pair, Predict, adjusted, percent

_LEAST: Final = 0.5
"""Share of the sample's error that a guess must explain to be tried on all elements."""
_FEWEST_CLIPPED: Final = 4
"""Elements beyond a bound from which it is one: the bound itself is fitted to them."""


def sign(pair: Pair) -> Iterator[Fingerprint]:
    """All signs flipped, or lost."""
    guesses: tuple[tuple[str, Predict], ...] = (
        ("The runtime has −reference", np.negative),
        ("The runtime has |reference|", np.abs),
        ("The runtime has −|reference|", lambda r: -np.abs(r)),
    )
    yield from _guessed(pair, "sign", guesses)


def truncation(pair: Pair) -> Iterator[Fingerprint]:
    """The reference rounded to a narrower dtype than the runtime's."""
    dtype = str(pair.runtime.dtype).removeprefix("torch.")
    if not pair.runtime.dtype.is_floating_point:
        return
    narrower = {
        "float64": ("float32", "float16", "bfloat16"),
        "float32": ("float16", "bfloat16"),
        "float16": ("bfloat16",),
    }
    guesses: list[tuple[str, Predict]] = [
        (f"The runtime has the reference rounded to {name}", _rounded(name)) for name in narrower.get(dtype, ())
    ]
    if "bfloat16" in narrower.get(dtype, ()):
        guesses.append(("The runtime has the reference cut off to bfloat16", _cut))
    names = ("rounded to whole numbers", "cut off to whole numbers", "rounded down to whole numbers")
    for name, function in zip(names, (np.rint, np.trunc, np.floor), strict=True):
        guesses.append((f"The runtime has the reference {name}", function))
    yield from _guessed(pair, "dtype truncation", guesses)


def _guessed(pair: Pair, name: str, guesses: Iterable[tuple[str, Predict]]) -> Iterator[Fingerprint]:
    _, r, _ = pair.sample
    best = Fingerprint(name, 0.0, "")
    with np.errstate(over="ignore", invalid="ignore"):
        for text, predict in guesses:
            if pair.likely(predict(r), max(_LEAST, best.score - 0.1)):
                score = pair.confirmed(predict)
                if score > best.score:
                    best = Fingerprint(name, score, f"{text}: this explains {percent(score)} of the squared error.")
    if best.score:
        yield best


def _rounded(dtype: str) -> Predict:
    import torch

    target = getattr(torch, dtype)
    return lambda r: torch.from_numpy(r).to(target).double().numpy()


def _cut(r: Floats) -> Floats:
    bits = r.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def constant_output(pair: Pair) -> Iterator[Fingerprint]:
    """Every value of the runtime is the same, those of the reference are not."""
    m = pair.moments
    if m.low_q == m.high_q and m.low_r < m.high_r:
        text = f"Every runtime value is {m.low_q:.4g}; the reference ranges from {m.low_r:.4g} to {m.high_r:.4g}."
        yield Fingerprint("constant output", 1.0, text)


def offset(pair: Pair) -> Iterator[Fingerprint]:
    """The same number added everywhere."""
    m = pair.moments
    mean = m.sd / m.count
    score = adjusted(max(0.0, m.dd - m.sd * mean), m.dd, m.count, 1)
    yield Fingerprint(
        "constant offset",
        score,
        f"The runtime is the reference {_signed(mean)}: this explains {percent(score)} of the squared error.",
    )


def factor(pair: Pair) -> Iterator[Fingerprint]:
    """The same factor everywhere; the two must also be proportional, or any unrelated values look shrunk."""
    m = pair.moments
    if not (m.rr > 0.0 and m.qq > 0.0):
        return
    change = m.rd / m.rr
    left = max(0.0, m.dd - m.rd * change)
    proportional = adjusted(left, m.qq, m.count, 1)
    score = min(adjusted(left, m.dd, m.count, 1), proportional)
    yield Fingerprint(
        "scale factor",
        score,
        f"The runtime is {_factor(change)} × the reference: this explains {percent(score)} of the squared error.",
    )


def zero_point(pair: Pair) -> Iterator[Fingerprint]:
    """An offset of a whole number of quantization steps, values that leave the range clipped."""
    step = abs(pair.scale) if pair.scale else 0.0
    _, r, q = pair.sample
    if not step or not math.isfinite(step) or not len(r):
        return
    steps = float(np.median(q - r)) / step
    number = round(steps)
    if not number or abs(steps - number) > 0.1:
        return
    m = pair.moments
    score = pair.confirmed(lambda x: np.clip(x + number * step, m.low_q, m.high_q), 1)
    yield Fingerprint(
        "wrong zero-point",
        score,
        f"The runtime is the reference {_signed(number * step)}, {number:+d} steps of the quantization scale "
        f"{step:.4g}: this explains {percent(score)} of the squared error.",
    )


def clipping(pair: Pair) -> Iterator[Fingerprint]:
    """Values beyond a bound are at the bound."""
    m = pair.moments
    typical = math.sqrt(m.dd / m.count)
    bounds = [(1.0, m.high_q)] * (m.high_r - m.high_q > typical) + [(-1.0, m.low_q)] * (m.low_q - m.low_r > typical)
    if not bounds or m.low_q == m.high_q:
        return
    gains, beyond = [0.0] * len(bounds), [0] * len(bounds)
    for r, q in pairs(pair.reference, pair.runtime):
        for k, (side, bound) in enumerate(bounds):
            over = side * r > side * bound
            x, y = r[over], q[over]
            gains[k] += float(np.square(y - x).sum() - np.square(y - bound).sum())
            beyond[k] += len(x)
    used = [k for k, gain in enumerate(gains) if gain > 0.01 * m.dd and beyond[k] >= _FEWEST_CLIPPED]
    if not used:
        return
    count, explained = sum(beyond[k] for k in used), sum(gains[k] for k in used) / m.dd
    where = " and ".join(f"{'above' if bounds[k][0] > 0 else 'below'} {bounds[k][1]:.6g}" for k in used)
    text = f"The runtime has no values {where}, the {count} of the reference beyond are at the bound: this explains"
    yield Fingerprint("clipping", min(1.0, explained), f"{text} {percent(min(1.0, explained))} of the squared error.")


def _factor(change: float) -> str:
    """A factor, given as its distance from 1.

    Examples
    --------
    >>> _factor(-0.5), _factor(1e-6)
    ('0.5', '(1 + 1e-06)')
    """
    return f"{1.0 + change:.6g}" if abs(change) >= 1e-3 else f"(1 {_signed(change)})"


def _signed(value: float) -> str:
    """A summand.

    Examples
    --------
    >>> _signed(-0.5), _signed(2.0)
    ('− 0.5', '+ 2')
    """
    return f"{'−' if value < 0 else '+'} {abs(value):.6g}"
