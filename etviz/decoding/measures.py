"""Measures of two rows of logits, in float64, and the standard errors of their means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

Numbers = npt.NDArray[np.float64]

TOP: Final = 5
_RESAMPLES: Final = 1000
_ROWS: Final = 64
PERCENTILES: Final = (50, 90, 99)


def measures(reference: torch.Tensor, runtime: torch.Tensor, tokens: Sequence[int]) -> dict[str, Numbers]:
    """Measures of each position, by column.

    With p and q the softmax of the reference's and the runtime's logits, and t the token that follows: ``kl = Σ p
    (log p − log q)``, ``entropy = −Σ p log p``, ``nll = −log p[t]``, all in nats. A token of probability 0 in p adds
    nothing to them. Rows with NaN, or with an infinite logit that is no −inf, are NaN.
    """
    parts = [
        _measures(reference[at : at + _ROWS].double(), runtime[at : at + _ROWS].double(), tokens[at : at + _ROWS])
        for at in range(0, len(reference), _ROWS)
    ]
    return {name: np.concatenate([part[name].numpy() for part in parts]) for name in (parts[0] if parts else ())}


def _measures(reference: torch.Tensor, runtime: torch.Tensor, tokens: Sequence[int]) -> dict[str, torch.Tensor]:
    usable = ~((reference.isnan() | reference.isposinf()).any(1) | (runtime.isnan() | runtime.isposinf()).any(1))
    p, q = reference.log_softmax(1), runtime.log_softmax(1)
    chance = p.exp()
    possible = chance > 0
    token = torch.as_tensor(tokens, dtype=torch.int64)[:, None]
    top = min(TOP, reference.shape[1])
    best, runner_up = _two_best(reference)
    other = runtime.scatter(1, best[1], -torch.inf).amax(1)
    chosen = runtime.gather(1, best[1])[:, 0]
    margin = best[0][:, 0] - runner_up
    shared = reference.topk(top).indices[:, :, None] == runtime.topk(top).indices[:, None, :]
    difference = torch.where(reference == runtime, 0.0, runtime - reference)  # −inf in both is equal
    measured = {
        "predicted_reference": best[1][:, 0].double(),
        "predicted_runtime": runtime.argmax(1).double(),
        "margin": margin,
        "margin_shift": chosen - other - margin,
        "kl": torch.where(possible, chance * (p - q), 0.0).sum(1).clamp_min(0.0),
        "entropy": -torch.where(possible, chance * p, 0.0).sum(1),
        "rank": 1.0 + (runtime > chosen[:, None]).sum(1),
        "nll_reference": -p.gather(1, token)[:, 0],
        "nll_runtime": -q.gather(1, token)[:, 0],
        "top5_overlap": shared.any(2).double().mean(1),
        "max_abs": difference.abs().amax(1),
        "rmse": difference.square().mean(1).sqrt(),
    }
    return {name: torch.where(usable, values, torch.nan) for name, values in measured.items()}


def _two_best(logits: torch.Tensor) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    index = logits.argmax(1, keepdim=True)
    others = logits.scatter(1, index, -torch.inf)
    return (logits.gather(1, index), index), others.amax(1)


def share(hits: Numbers) -> dict[str, float]:
    """The share of true elements, and its standard error ``√(p(1 − p)/(n + 4))`` with ``p = (k + 2)/(n + 4)``.

    p is the centre of the interval for few positions (A. Agresti, B. A. Coull, "Approximate Is Better than 'Exact' for
    Interval Estimation of Binomial Proportions", 1998). So a share of 1 has an error, too: the next position may miss.
    """
    count, right = len(hits), float(np.sum(hits))
    middle = (right + 2) / (count + 4)
    error = math.sqrt(middle * (1 - middle) / (count + 4))
    return {"value": right / count if count else math.nan, "standard_error": error if count else math.nan}


def with_errors(values: Numbers, statistics: dict[str, Callable[[Numbers], Numbers]]) -> pd.DataFrame:
    """Statistics of positions, each with its standard error by the bootstrap.

    The error is the standard deviation over 1,000 samples with replacement from a fixed seed (B. Efron, "Bootstrap
    Methods: Another Look at the Jackknife", 1979); it ignores that neighbouring positions depend on each other.
    `values` has the shape [positions, …]; a statistic reduces the first axis of [positions, samples, …].
    """
    values = values[np.isfinite(values).reshape(len(values), -1).all(1)]
    if not len(values):
        nothing = dict.fromkeys(("value", "standard_error"), np.nan)
        return pd.DataFrame([nothing] * len(statistics), index=pd.Index(list(statistics)))
    drawn = np.random.default_rng(0).integers(0, len(values), (len(values), _RESAMPLES))
    samples = values[drawn]
    rows = {
        name: {"value": float(of(values[:, None])[0]), "standard_error": float(np.std(of(samples)))}
        for name, of in statistics.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")
