"""Fingerprints: cheap tests of a pair of tensors that name the likely class of bug.

A fingerprint predicts the runtime's values p from the reference's. Its score is the explained share of the squared
error, ``1 − (Σ(q − p)² / (n − k)) / (Σ(q − r)² / n)``: the adjusted coefficient of determination (H. Theil, "Economic
Forecasts and Policy", 1961) with `k` fitted parameters, so fitting noise scores zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from etviz.tensors.blocks import Floats, Ints, blocks, check_pair, dot, pairs, take
from etviz.tensors.changes import shortest_number
from etviz.tensors.channels import axis_sums
from etviz.tensors.metrics import Sums, level, severity

FEWEST: Final = 8
"""Minimum number of pairs that differ from chance."""
LEAST: Final = 0.6
SAMPLE: Final = 1 << 13
_LIKELY: Final = 0.5
"""Minimum share of the sample's error that a likely guess explains."""
_KNOWN: Final = 0.9
"""Minimum share of the pairs that a prediction covers."""
_MARGIN: Final = 0.02
NAMES: Final = (
    *("constant output", "permuted layout", "dtype truncation", "wrong zero-point", "clipping", "border pixels"),
    *("single bad channel", "scale factor", "constant offset", "bias"),
)
"""The more specific first, which decides between equal scores."""

SETTING: Final = "another setting"
FORMULA: Final = "another formula"
WEIGHTS: Final = "other weights"
"""Names of findings of `comparison.hypotheses`."""

_SPECIAL_CASES: Final = {
    "constant offset": ("wrong zero-point",),
    "bias": ("constant offset", "wrong zero-point", "single bad channel"),
}
"""Special cases: if one fits equally well, the general one is not reported."""

Predict = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A likely class of bug.

    `name` is one of `NAMES`, or `SETTING`, `FORMULA` or `WEIGHTS`. `score`, from 0 to 1, is the explained share of the
    squared error, less the share expected by chance.
    """

    name: str
    score: float
    evidence: str


@dataclass(slots=True)
class Moments:
    """r the reference, q the runtime, d = q − r, over the finite pairs."""

    count: int = 0
    sd: float = 0.0
    dd: float = 0.0
    rr: float = 0.0
    qq: float = 0.0
    rd: float = 0.0
    low_r: float = math.inf
    high_r: float = -math.inf
    low_q: float = math.inf
    high_q: float = -math.inf

    def add(self, r: Floats, q: Floats) -> None:
        if not len(r):
            return
        d = q - r
        self.count += len(r)
        self.sd += float(d.sum())
        self.dd += dot(d, d)
        self.rr += dot(r, r)
        self.qq += dot(q, q)
        self.rd += dot(r, d)
        self.low_r, self.high_r = min(self.low_r, float(r.min())), max(self.high_r, float(r.max()))
        self.low_q, self.high_q = min(self.low_q, float(q.min())), max(self.high_q, float(q.max()))


class TensorPair:
    def __init__(self, reference: torch.Tensor, runtime: torch.Tensor, scale: float | None = None) -> None:
        self.reference, self.runtime = reference.detach(), runtime.detach()
        self.shape = tuple(runtime.shape)
        self.scale = scale

    @cached_property
    def moments(self) -> Moments:
        moments = Moments()
        with np.errstate(over="ignore", invalid="ignore"):
            for r, q in pairs(self.reference, self.runtime):
                moments.add(r, q)
        return moments

    @cached_property
    def sample(self) -> tuple[Ints, Floats, Floats]:
        n = self.runtime.numel()
        at = np.arange(n) if n <= SAMPLE else np.sort(np.random.default_rng(0).integers(0, n, SAMPLE))
        r, q = take(self.reference, at), take(self.runtime, at)
        keep = np.isfinite(r) & np.isfinite(q)
        return at[keep], r[keep], q[keep]

    def likely(self, predicted: Floats, least: float) -> bool:
        _, r, q = self.sample
        return share_explained(r, q, predicted) >= least

    def confirmed(self, predict: Predict, parameters: int = 0) -> float:
        return self._score(((r, q, predict(r)) for r, q in pairs(self.reference, self.runtime)), parameters)

    def confirmed_by(self, reference: torch.Tensor, runtime: torch.Tensor, predicted: torch.Tensor) -> float:
        return self._score(blocks(reference, runtime, predicted), 0)

    def _score(self, triples: Iterable[tuple[Floats, ...]], parameters: int) -> float:
        seen = known = 0
        error = left = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for r, q, p in triples:
                finite = np.isfinite(r) & np.isfinite(q)
                use = finite & np.isfinite(p)
                seen += np.count_nonzero(finite)
                d, e = (q - r)[use], (q - p)[use]
                known += len(d)
                error += dot(d, d)
                left += dot(e, e)
        if known < _KNOWN * seen or known <= parameters:
            return 0.0
        return adjusted(left, error, known, parameters)


def adjusted(left: float, error: float, count: int, parameters: int = 0) -> float:
    if not (error > 0.0 and math.isfinite(error) and count > parameters):
        return 0.0
    explained = 1.0 - (left / (count - parameters)) / (error / count)
    return max(0.0, min(1.0, explained)) if math.isfinite(explained) else 0.0


def share_explained(r: Floats, q: Floats, predicted: Floats) -> float:
    """The explained share of finite `r` and `q`; elements with NaN in `predicted` are skipped."""
    use = np.isfinite(predicted)
    if np.count_nonzero(use) < _KNOWN * len(r):
        return 0.0
    d, e = (q - r)[use], (q - predicted)[use]
    return adjusted(dot(e, e), dot(d, d), len(d))


_GUESS: Final = ", as"
"""Start of the operator parameter that would cause an observation."""
_EXPLAINS: Final = ": this explains"


def explaining(name: str, score: float, text: str, where: str = "") -> Fingerprint:
    return Fingerprint(name, score, f"{text}{_EXPLAINS} {percent(score)} of the squared error{where}.")


def in_short(evidence: str, *, several: bool) -> str:
    """The evidence without its share, and without the guessed parameter for `several` operators.

    Examples
    --------
    >>> evidence = "Each index has another offset, as of another bias: this explains 95 % of the squared error."
    >>> in_short(evidence, several=False)
    'Each index has another offset, as of another bias'
    >>> in_short(evidence, several=True)
    'Each index has another offset'
    """
    text = evidence.partition(_EXPLAINS)[0].rstrip(".")
    return text.partition(_GUESS)[0] if several else text


def percent(share: float) -> str:
    """A share for a sentence.

    Examples
    --------
    >>> percent(0.98765), percent(1.0), percent(0.99999)
    ('98.8 %', '100 %', 'over 99.9 %')
    """
    if 0.9995 <= share < 1.0:
        return "over 99.9 %"
    return f"{100 * share:.3g} %"


def fingerprints(
    reference: torch.Tensor, runtime: torch.Tensor, *, scale: float | None = None, force: bool = False
) -> list[Fingerprint]:
    """Likely classes of bug of a pair with a score of `LEAST` or more, best first; several may apply.

    Raises `UsageError` if the tensors can't be compared. Pairs that are not finite in both are skipped. `force` also
    tests a pair whose error its precision explains.
    """
    check_pair(reference, runtime)
    pair = TensorPair(reference, runtime, scale)
    moments = pair.moments
    if moments.count < FEWEST or not 0.0 < moments.dd < math.inf:
        return []
    if not force and not is_bad(moments, runtime.dtype, scale):
        return []
    constant = list(constant_output(pair))
    if constant:
        return constant
    best: dict[str, Fingerprint] = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for fingerprint in (fingerprint for test in _TESTS for fingerprint in test(pair)):
            if fingerprint.score >= LEAST and (
                fingerprint.name not in best or fingerprint.score > best[fingerprint.name].score
            ):
                best[fingerprint.name] = fingerprint
    told = [fingerprint for fingerprint in best.values() if not _is_general(fingerprint, best)]
    return sorted(told, key=lambda fingerprint: (-round(fingerprint.score, 3), NAMES.index(fingerprint.name)))


def is_bad(sums: Sums | Moments, dtype: torch.dtype, scale: float | None) -> bool:
    if not sums.count:
        return False
    name = str(dtype).removeprefix("torch.")
    value = severity(math.sqrt(sums.dd / sums.count), math.sqrt(sums.rr / sums.count), name, scale)
    return level("severity", value, name) != "ok"


def _is_general(fingerprint: Fingerprint, others: dict[str, Fingerprint]) -> bool:
    special = (others[name] for name in _SPECIAL_CASES.get(fingerprint.name, ()) if name in others)
    return any(other.score >= fingerprint.score - _MARGIN for other in special)


_FEWEST_CLIPPED: Final = 4


def truncation(pair: TensorPair) -> Iterator[Fingerprint]:
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


def _guessed(pair: TensorPair, name: str, guesses: Iterable[tuple[str, Predict]]) -> Iterator[Fingerprint]:
    _, r, _ = pair.sample
    for text, predict in guesses:
        if pair.likely(predict(r), _LIKELY):
            yield explaining(name, pair.confirmed(predict), text)


def _rounded(dtype: str) -> Predict:
    target = getattr(torch, dtype)
    return lambda r: torch.from_numpy(r).to(target).double().numpy()


def _cut(r: Floats) -> Floats:
    bits = r.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def constant_output(pair: TensorPair) -> Iterator[Fingerprint]:
    m = pair.moments
    if m.low_q == m.high_q and m.low_r < m.high_r:
        text = f"Every runtime value is {m.low_q:.4g}; the reference ranges from {m.low_r:.4g} to {m.high_r:.4g}."
        yield Fingerprint("constant output", 1.0, text)


def offset(pair: TensorPair) -> Iterator[Fingerprint]:
    m = pair.moments
    mean = m.sd / m.count
    score = adjusted(max(0.0, m.dd - m.sd * mean), m.dd, m.count, 1)
    yield explaining("constant offset", score, f"The runtime is the reference {_signed(mean)}")


def factor(pair: TensorPair) -> Iterator[Fingerprint]:
    """One factor. The two must be proportional, because unrelated values also look shrunk."""
    m = pair.moments
    if not (m.rr > 0.0 and m.qq > 0.0):
        return
    change = m.rd / m.rr
    left = max(0.0, m.dd - m.rd * change)
    proportional = adjusted(left, m.qq, m.count, 1)
    score = min(adjusted(left, m.dd, m.count, 1), proportional)
    yield explaining("scale factor", score, f"The runtime is {_factor(change)} × the reference")


def zero_point(pair: TensorPair) -> Iterator[Fingerprint]:
    """An offset of whole quantization steps; values beyond the range are clipped."""
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
    text = f"{_signed(number * step)}, {number:+d} steps of the quantization scale {step:.4g}"
    yield explaining("wrong zero-point", score, f"The runtime is the reference {text}")


def clipping(pair: TensorPair) -> Iterator[Fingerprint]:
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
    text = f"The runtime has no values {where}, the {count} of the reference beyond are at the bound"
    yield explaining("clipping", min(1.0, explained), text)


_AT_BOUND: Final = 0.02
"""Minimum share of the reference's values at a bound like a relu's 0."""
FEWEST_EACH: Final = 4
_SURE: Final = 0.9
"""Minimum score if a number is fitted for each channel."""


def bias(pair: TensorPair) -> Iterator[Fingerprint]:
    """An offset for each channel; after a relu, only above its bound."""
    at, r, q = pair.sample
    low = float(r.min()) if len(r) else 0.0
    free = r > low if len(r) and np.mean(r == low) >= _AT_BOUND and float(q.min()) == low else np.ones(len(r), bool)
    at, r, q = at[free], r[free], q[free]
    for axis in sorted({1, len(pair.shape) - 1}) if len(pair.shape) > 1 else ():
        size = pair.shape[axis]
        if size < 2 or len(r) < FEWEST_EACH * size:
            continue
        channel = at // math.prod(pair.shape[axis + 1 :]) % size
        both = np.ones(len(r), bool) if free.all() else q > low
        counts = np.maximum(np.bincount(channel[both], minlength=size), 1)
        offsets = np.bincount(channel[both], (q - r)[both], size) / counts
        predicted = r + offsets[channel]
        left, error = q - (predicted if free.all() else np.maximum(predicted, low)), q - r
        score = adjusted(dot(left, left), dot(error, error), len(r), size)
        what = f"from {_signed(float(offsets.min()))} to {_signed(float(offsets.max()))}"
        where = "" if free.all() else f", where the reference is above its bound {low:.6g}"
        text = f"Each index of axis {axis} is the reference plus another offset ({what}){_GUESS} of another bias"
        if score >= _SURE:
            yield explaining("bias", score, text, where)


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


_ALL_ORDERS: Final = 4
"""Maximum number of axes for all orders; beyond, swaps and moves of one axis."""
_CONFIRMED: Final = 2
_TRIED: Final = 2048

Order = tuple[int, ...]


def permutation(pair: TensorPair) -> Iterator[Fingerprint]:
    """The reference with its axes in another order, read in the runtime's shape.

    Transposed tensors, and one layout read as another (NHWC as NCHW).
    """
    axes = [axis for axis, size in enumerate(pair.shape) if size > 1]
    sizes = [pair.shape[axis] for axis in axes]
    at, r, q = pair.sample
    every = slice(None, None, max(1, len(at) // _TRIED))
    at, r, q = at[every], r[every], q[every]
    if len(axes) < 2 or not len(at):
        return
    shares = {
        order: share_explained(r, q, take(pair.reference, _source(at, sizes, order))) for order in _orders(len(axes))
    }
    likely = sorted(((share, order) for order, share in shares.items() if share >= _LIKELY), reverse=True)
    for _, order in likely[:_CONFIRMED]:
        moved = pair.reference.reshape(sizes).permute(order).reshape(pair.shape)
        score = pair.confirmed_by(pair.reference, pair.runtime, moved)
        yield explaining("permuted layout", score, _words([axes[k] for k in order], axes, pair.shape))


def _orders(count: int) -> Iterator[Order]:
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


_WIDTHS: Final = (1, 2, 3)
_LARGEST_IMAGE: Final = 1 << 22
"""Maximum number of spatial positions for a test of the border."""
_LARGEST: Final = 0.6
"""Maximum size of a region that confines an error, as a share."""
_WRONG: Final = 0.1
_CHANCE: Final = 0.05
"""Maximum probability that chance confines an error to a tested region."""
_FEWEST_LINES: Final = 32
"""Minimum number of lines for one element to count as a channel."""


@dataclass(slots=True)
class _Maps:
    dd: Floats
    d4: Floats
    rr: Floats
    each: int

    def over(self, axes: tuple[int, ...]) -> _Maps:
        each = self.each * math.prod(self.dd.shape[axis] for axis in axes)
        return _Maps(self.dd.sum(axes), self.d4.sum(axes), self.rr.sum(axes), each)

    def score(self, region: npt.NDArray[np.bool_], tested: int) -> tuple[float, float, float]:
        """Score of an error's confinement to a region, the region's share of Σd², and its share of the elements.

        The share of Σd² counts beyond the region's shares of the elements and of the reference's energy, since rounding
        errors are large where values are large. A tenth of the region must be wrong by the participation ratio (Σd²)² /
        Σd⁴, so that a few outliers do not count. Chernoff's bound of a binomial distribution, ``tested·exp(-n·KL)``,
        limits chance in one of the `tested` regions.
        """
        share, fraction = _part(self.dd[region].sum(), self.dd.sum()), float(region.mean())
        expected = max(fraction, _part(self.rr[region].sum(), self.rr.sum()))
        elements = np.count_nonzero(region) * self.each
        if not share > expected or fraction > _LARGEST or (elements < 2 and region.size < _FEWEST_LINES):
            return 0.0, share, fraction
        total = _part(self.dd.sum() ** 2, self.d4.sum())
        if total * _divergence(share, fraction) < math.log(tested / _CHANCE):
            return 0.0, share, fraction
        wrong = _part(self.dd[region].sum() ** 2, self.d4[region].sum())
        return (share - expected) / (1.0 - expected) * min(1.0, wrong / elements / _WRONG), share, fraction


def _divergence(share: float, fraction: float) -> float:
    parts = ((share, fraction), (1.0 - share, 1.0 - fraction))
    return sum(one * math.log(one / other) for one, other in parts if one > 0)


def small_region(pair: TensorPair) -> Iterator[Fingerprint]:
    spatial = _spatial(pair.shape)
    first = spatial[0] if spatial else len(pair.shape)
    channels: list[_Channel] = []
    for axis in range(first):
        channels.append(_channel(_maps(pair, pair.shape, axis), axis))
    if spatial:
        image = tuple(pair.shape[axis] for axis in spatial)
        maps = _maps(pair, (*pair.shape[:first], math.prod(image)), first)
        maps.dd, maps.d4, maps.rr = (part.reshape(image) for part in (maps.dd, maps.d4, maps.rr))
        yield _border(maps, first)
        for k, axis in enumerate(spatial):
            lines = maps.over(tuple(other for other in range(len(image)) if other != k))
            channels.append(_channel(lines, axis, edges=len(pair.shape) < 4))
    worst = max(channels, key=lambda channel: (channel.score, -channel.fraction), default=None)
    if worst is not None:
        yield Fingerprint("single bad channel", worst.score, _told(pair, worst))


def _maps(pair: TensorPair, shape: tuple[int, ...], axis: int) -> _Maps:
    sums = axis_sums(pair.reference.reshape(shape), pair.runtime.reshape(shape), axis)
    return _Maps(sums.dd, sums.d4, sums.rr, math.prod(shape) // shape[axis])


def _spatial(shape: Sequence[int]) -> list[int]:
    axes = list(range(2, len(shape))) if len(shape) >= 4 else [1, 2] if len(shape) == 3 else []
    return axes if math.prod(shape[axis] for axis in axes) <= _LARGEST_IMAGE else []


@dataclass(frozen=True, slots=True)
class _Channel:
    axis: int
    size: int
    index: int
    score: float = 0.0
    share: float = 0.0
    fraction: float = 1.0


def _channel(lines: _Maps, axis: int, *, edges: bool = True) -> _Channel:
    worst, size = int(np.argmax(lines.dd)), len(lines.dd)
    if size < 2 or (not edges and worst in (0, size - 1)):
        return _Channel(axis, size, worst)
    score, share, fraction = lines.score(np.arange(size) == worst, size)
    return _Channel(axis, size, worst, round(score, 6), share, fraction)


def _told(pair: TensorPair, channel: _Channel) -> str:
    place = f"Index {channel.index} of axis {channel.axis} (of {channel.size})"
    moments = Moments()
    for r, q in pairs(*(tensor.select(channel.axis, channel.index) for tensor in (pair.reference, pair.runtime))):
        moments.add(r, q)
    m = moments
    if m.count >= FEWEST and channel.score >= LEAST:
        times = 1.0 + m.rd / m.rr if m.rr > 0 else math.nan
        plus = m.sd / m.count
        scaled, shifted = (_part(part, m.dd) for part in (m.rd * m.rd / m.rr if m.rr > 0 else 0.0, m.sd * plus))
        if max(scaled, shifted) >= _KNOWN:
            left = (1.0 - scaled) * m.dd / (m.count - 1)
            factor = shortest_number(times, 2.0 * math.sqrt(max(left, 0.0) / m.rr)) if m.rr > 0 else ""
            what = f"×{_factor(times - 1.0) if factor == '1' else factor}" if scaled >= shifted else ""
            what = what or f"the reference {_signed(plus)}"
            share = percent(channel.share * max(scaled, shifted))
            return f"{place} is {what}: this explains {share} of the squared error."
    return f"{place} holds {percent(channel.share)} of the squared error."


def _border(maps: _Maps, first: int) -> Fingerprint:
    best = Fingerprint("border pixels", 0.0, "")
    frames = [(width, *frame) for width in _WIDTHS for frame in _frames(maps.dd.shape, width, first)]
    for width, where, region in frames:
        score, share, fraction = maps.score(region, len(frames))
        if score > best.score + 1e-3:
            pixels = "pixel" if width == 1 else f"{width} pixels"
            text = f"The outermost {pixels} {where} ({percent(fraction)} of the elements) hold {percent(share)}"
            best = Fingerprint(best.name, score, f"{text} of the squared error.")
    return best


def _frames(image: Sequence[int], width: int, first: int) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    nowhere = np.zeros(tuple(image), bool)
    sides: list[tuple[str, npt.NDArray[np.bool_]]] = []
    opposite: list[tuple[str, npt.NDArray[np.bool_]]] = []
    for axis, size in enumerate(image):
        if size < 2 * width + 1:
            continue
        place = np.arange(size).reshape([-1 if k == axis else 1 for k in range(len(image))])
        start, end = place < width, place >= size - width
        name = f"axis {first + axis}"
        sides += [(f"at the start of {name}", nowhere | start), (f"at the end of {name}", nowhere | end)]
        opposite.append((f"at both ends of {name}", nowhere | start | end))
    yield from sides
    yield from opposite
    if len(opposite) > 1:
        yield "on all sides", np.logical_or.reduce([mask for _, mask in opposite])


def _part(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 and math.isfinite(whole) else 0.0


_TESTS: Final = (permutation, truncation, zero_point, clipping, small_region, factor, offset, bias)
