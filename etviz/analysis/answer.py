"""Did the answer change? The classes that an output with scores puts first, at reference and runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOP: Final = 5


def is_scores(value: Any) -> bool:
    """True for a tensor that looks like one row of scores: floating point, of shape [1, classes]."""
    shape = getattr(value, "shape", ())
    return len(shape) == 2 and shape[0] == 1 and shape[1] > 1 and value.is_floating_point()


def answer(outputs: Iterable[tuple[Any, Any]]) -> tuple[str, bool] | None:
    """Whether the largest score, and the five largest, are the same at reference and runtime.

    Parameters
    ----------
    outputs
        Final outputs of all executions: reference and runtime.

    Returns
    -------
    str, bool
        A text, and whether a largest score changed; None if no output looks like scores, or one holds NaN.
    """
    firsts: list[tuple[int, int]] = []
    alike = fives = 0
    for reference, runtime in outputs:
        if not (is_scores(reference) and is_scores(runtime) and reference.shape == runtime.shape):
            continue
        if bool(reference.isnan().any()) or bool(runtime.isnan().any()):
            return None
        firsts.append((int(reference.argmax()), int(runtime.argmax())))
        if reference.shape[1] > _TOP:
            fives += 1
            best = [set(side[0].topk(_TOP).indices.tolist()) for side in (reference, runtime)]
            alike += best[0] == best[1]
    if not firsts:
        return None
    changed = [pair for pair in firsts if pair[0] != pair[1]]
    if len(firsts) == 1:
        (was, now), five = firsts[0], ("" if not fives else ", top-5 the same" if alike else ", top-5 changes")
        text = f"top-1 changes from {was} to {now}" if changed else f"top-1 is the same ({was})"
    else:
        five = f", top-5 in {alike} of {fives}" if fives else ""
        text = f"top-1 is the same in {len(firsts) - len(changed)} of {len(firsts)} outputs"
    return text + five, bool(changed)
