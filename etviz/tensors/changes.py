"""Describes how one version of a weight became another: ``row 17 of mlp.0.weight is ×−1``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from etviz.tensors.blocks import Floats, floats

if TYPE_CHECKING:
    import torch


_LISTED: Final = 3
_ALL_ORDERS: Final = 4
_EXACT: Final = 1e-2
"""Share of a change that may remain after ``×f`` or ``+c``, since changed weights are rounded."""


def describe_change(name: str, before: torch.Tensor, after: torch.Tensor) -> str:
    """The difference between two versions of a weight as a clause; empty if no simple change explains it.

    Examples
    --------
    >>> import torch
    >>> weight = torch.arange(6.0).reshape(2, 3)
    >>> describe_change("w", weight, weight * torch.tensor([[1.0], [-1.0]]))
    'row 1 of w is ×−1'
    """
    a, b = floats(before), floats(after)
    if a.shape != b.shape or not a.size:
        return ""
    one_sided = np.isfinite(a) != np.isfinite(b)
    if one_sided.any():
        return _non_finite(name, a, b, one_sided)
    a, b = (np.nan_to_num(numbers, nan=0.0, posinf=0.0, neginf=0.0) for numbers in (a, b))
    if (a == b).all():
        return ""
    if not b.any():
        return f"{name} is 0 everywhere"
    return _rearranged(name, a, b) or _changed_part(name, a, b)


def same_values(before: Floats, after: Floats) -> bool:
    return before.size == after.size and bool((np.sort(before, None) == np.sort(after, None)).all())


def rearrangements(shape: Sequence[int]) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Whole rearrangements of a weight: words, order of the axes, roll per axis, axes to reverse."""
    straight, axes = tuple(range(len(shape))), [axis for axis, size in enumerate(shape) if size > 1]
    for order in itertools.permutations(straight) if len(shape) <= _ALL_ORDERS else ():
        if [axis for axis in order if axis in axes] == axes:
            continue
        swapped = order == (1, 0) and shape[0] == shape[1]
        yield "is transposed" if swapped else f"is stored with its axes in the order {order}", order, (), ()
    for axis in axes:
        for step in (1, -1) if shape[axis] > 2 else (1,):
            steps = tuple(step if k == axis else 0 for k in range(len(shape)))
            yield f"is rolled by {signed_number(step)} along axis {axis}", (), steps, ()
        if shape[axis] > 2:
            yield f"is reversed along axis {axis}", (), (), (axis,)


def rearrange(weight: torch.Tensor, order: Sequence[int], steps: Sequence[int], reverse: Sequence[int]) -> torch.Tensor:
    if order:
        return weight.permute(*order).reshape(weight.shape)
    if steps:
        return weight.roll(list(steps), list(range(weight.dim())))
    return weight.flip(list(reverse))


def _rearranged(name: str, a: Floats, b: Floats) -> str:
    if not same_values(a, b):
        return ""
    for words, order, steps, reverse in rearrangements(a.shape):
        moved = a.transpose(order).reshape(a.shape) if order else np.flip(a, reverse) if reverse else None
        if steps:
            moved = np.roll(a, steps, range(a.ndim))
        if moved is not None and (moved == b).all():
            return f"{name} {words}"
    for axis in range(a.ndim):
        places = _places(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0))
        if places is None:
            continue
        size, moved = len(places), [i for i, source in enumerate(places) if i != source]
        step = (moved[0] - places[moved[0]]) % size
        if all((i - source) % size == step for i, source in enumerate(places)):
            return f"{name} is rolled by {signed_number(step)} along axis {axis}"
        if len(moved) == 2:
            return f"{part_name(a.ndim, axis, moved)} of {name} are swapped"
        return f"{len(moved)} of {size} {_plural(a.ndim, axis)} of {name} are in another order"
    return f"{name} has its values in another order"


def _places(a: Floats, b: Floats) -> list[int] | None:
    rows: dict[bytes, list[int]] = {}
    for i, row in enumerate(a):
        rows.setdefault(row.tobytes(), []).append(i)
    places = []
    for i, row in enumerate(b):
        equal = rows.get(row.tobytes(), [])
        if not equal:
            return None
        places.append(equal.pop(equal.index(i) if i in equal else 0))
    return places


def _non_finite(name: str, a: Floats, b: Floats, one_sided: npt.NDArray[np.bool_]) -> str:
    count, before, after = int(np.count_nonzero(one_sided)), a[one_sided], b[one_sided]
    if count > 1:
        return f"{count:,} elements of {name} are NaN or Inf{' on one side alone' if np.isfinite(after).any() else ''}"
    was, became = ("NaN" if math.isnan(value) else signed_number(value) for value in (before[0], after[0]))
    return f"element {_place(one_sided)} of {name} is {became} instead of {was}"


def _place(chosen: npt.NDArray[np.bool_]) -> str:
    place = [str(int(at[0])) for at in np.nonzero(chosen)]
    return place[0] if len(place) == 1 else f"({', '.join(place)})"


def _changed_part(name: str, a: Floats, b: Floats) -> str:
    changed = a != b
    if np.count_nonzero(changed) == 1 and a.size > 1:
        was, became = float(a[changed][0]), float(b[changed][0])
        simple = not became or (was and abs(float(f"{became / was:.2g}") * was - became) <= 1e-3 * abs(became))
        what = _became(a[changed], b[changed]) if simple else f"{became:.3g} instead of {was:.3g}"
        return f"element {_place(changed)} of {name} is {what.replace('-', '−')}"
    lines = [np.flatnonzero(changed.any(tuple(k for k in range(a.ndim) if k != axis))) for axis in range(a.ndim)]
    axis = min(range(a.ndim), key=lambda k: len(lines[k]) / a.shape[k], default=0)
    if a.ndim and len(lines[axis]) < a.shape[axis]:
        at = lines[axis]
        what = _became(a.take(at, axis), b.take(at, axis))
        if len(at) > _LISTED:
            words = f"{len(at)} of {a.shape[axis]} {_plural(a.ndim, axis)} of {name}"
        else:
            words = f"{part_name(a.ndim, axis, at.tolist())} of {name}"
        verb = "is" if len(at) == 1 else "are"
        return f"{words} {verb} {what}" if what else f"{words} {'differs' if len(at) == 1 else 'differ'}"
    what = _became(a, b)
    return f"{name} is {what}" if what else ""


def _became(a: Floats, b: Floats) -> str:
    if not b.any():
        return "0"
    norm, change = float(np.sum(a * a)), float(np.sum((b - a) ** 2))
    factor = float(np.sum(a * b)) / norm if norm else math.nan
    offset = float(np.mean(b - a))
    if norm and float(np.sum((b - factor * a) ** 2)) <= _EXACT**2 * change:
        return f"×{shortest_number(factor, 1e-3 * abs(factor))}"
    if float(np.sum((b - a - offset) ** 2)) <= _EXACT**2 * change:
        return signed_number(float(shortest_number(offset, 1e-3 * abs(offset)).replace("−", "-")), plus=True)
    return ""


def part_name(ndim: int, axis: int, indices: Sequence[int]) -> str:
    """Indices of an axis of a weight in words.

    Examples
    --------
    >>> part_name(2, 0, [3]), part_name(2, 1, [1, 2]), part_name(4, 1, [0]), part_name(4, 3, [1])
    ('row 3', 'columns 1 and 2', 'input channel 0', 'index 1 of axis 3')
    """
    one, many, place = _axis_words(ndim, axis)
    texts = [str(int(index)) for index in indices]
    listed = " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
    return f"{many if len(texts) > 1 else one} {listed}{place}"


def _plural(ndim: int, axis: int) -> str:
    _, many, place = _axis_words(ndim, axis)
    return f"{many}{place}"


def _axis_words(ndim: int, axis: int) -> tuple[str, str, str]:
    if ndim == 1:
        return "element", "elements", ""
    if ndim == 2:
        return ("row", "rows", "") if axis == 0 else ("column", "columns", "")
    if axis < 2:
        return ("channel", "channels", "") if axis == 0 else ("input channel", "input channels", "")
    return "index", "indices", f" of axis {axis}"


def shortest_number(value: float, error: float) -> str:
    """The shortest text, up to three digits, within the error of a fitted number.

    Examples
    --------
    >>> shortest_number(0.2513, 0.004), shortest_number(0.2513, 0.0), shortest_number(-4.0, 0.1)
    ('0.25', '0.251', '−4')
    >>> shortest_number(30.0, 0.1)
    '30'
    """
    texts = (f"{value:.{digits}g}" for digits in (1, 2, 3))
    text = f"{float(next((text for text in texts if abs(float(text) - value) <= error), f'{value:.3g}')):g}"
    return text.replace("-", "−", 1) if value < 0 else text


def signed_number(value: float, *, plus: bool = False) -> str:
    """A number with a real minus sign, and with a plus sign if asked.

    Examples
    --------
    >>> signed_number(-1), signed_number(0.5, plus=True)
    ('−1', '+0.5')
    """
    sign = "−" if value < 0 else "+" if plus else ""
    return f"{sign}{abs(value):.6g}"
