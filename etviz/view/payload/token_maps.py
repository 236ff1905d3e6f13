"""The tokens of a language model for a view: a strip of them, and maps of layers and of the cache by call.

Texts of a tokenizer are sent unchanged; the view escapes control characters (`js/data/tokens.ts`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from etviz.comparison.gap import WRONG
from etviz.view.payload.wire import MessageBuffers, encode

_WHOLE: Final = ("prompt", "step", "position", "token", "predicted_reference", "predicted_runtime", "rank")
_REAL: Final = (
    *("kl", "margin", "margin_shift", "margin_noise", "severity"),
    *("entropy", "nll_reference", "nll_runtime", "top5_overlap", "max_abs"),
)
_TEXTS: Final = ("text", "text_reference", "text_runtime")
UNKNOWN: Final = 2
"""Code of a flip if it is not known whether noise explains it."""
_LAYER: Final = re.compile(r"(?:.*?\.)??([A-Za-z_]\w*\.\d+)(?:\.|$)")


@dataclass(frozen=True, slots=True)
class Map:
    """Numbers by layer and by call or position of one prompt, NaN if unknown."""

    prompt: int
    layers: Sequence[str]
    values: Any


def layer_of(module: str) -> str:
    """The numbered part of a module's path, else its first part.

    Examples
    --------
    >>> layer_of("model.layers.3.attention.wq"), layer_of("model.norm"), layer_of("")
    ('layers.3', 'model', '')
    """
    match = _LAYER.match(module)
    return match[1] if match else module.partition(".")[0]


def layer_map(prompt: int, calls: int, gaps: Iterable[tuple[int, pd.DataFrame]]) -> Map | None:
    """The worst introduced severity of each layer in each call, from ``(first call, gaps)`` of several runs."""
    worst: dict[str, dict[int, float]] = {}
    for first, rows in gaps:
        severity = rows["introduced_severity"].where(~rows["status"].isin(WRONG), np.inf)
        layers = rows["module"].map(layer_of)
        order = {name: {} for name in layers[rows["instruction"].argsort(kind="stable")] if name}
        worst = order | worst
        for (layer, run), value in severity.groupby([layers, rows["input_index"]], sort=False).max().items():
            if layer in worst and not np.isnan(value):
                worst[layer][first + int(run)] = float(value)
    if not worst:
        return None
    values = np.full((len(worst), calls), np.nan)
    for at, known in enumerate(worst.values()):
        values[at, list(known)] = list(known.values())
    return Map(prompt, list(worst), values)


def tokens_wire(
    steps: pd.DataFrame,
    buffers: MessageBuffers,
    call: tuple[int, int] | None,
    headline: str,
    layers: Sequence[Map],
    cache: Sequence[Map],
    card: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """`steps` is `Decode.steps` with the two predicted tokens' texts and ``at_fault``.

    `call` has prompt and number of the call whose rows the view shows; `layers` and `cache` a map for each prompt.
    """
    explained = steps["explained"].astype("boolean").astype("Int64").fillna(UNKNOWN)
    whole = {name: buffers.add(steps[name].fillna(-1).astype("int64"), "int32") for name in _WHOLE}
    real = {name: buffers.add(pd.to_numeric(steps[name]).astype(float), "float64") for name in _REAL}
    flags = {name: buffers.add(steps[name].astype("uint8"), "uint8") for name in ("generated", "agrees", "at_fault")}
    texts: dict[str, Any] = {}
    for name in _TEXTS:
        codes, texts[f"{name}s"] = encode(steps[name])
        texts[name] = buffers.add(codes, "int32")
    return {
        "rows": len(steps),
        "call": None if call is None else list(call),
        "headline": headline,
        **whole,
        **real,
        **flags,
        **texts,
        "explained": buffers.add(explained.astype("uint8"), "uint8"),
        "layers": [_map(one, buffers) for one in layers],
        "cache": [_map(one, buffers) for one in cache],
        "card": card,
    }


def _map(one: Map, buffers: MessageBuffers) -> dict[str, Any]:
    values = np.asarray(one.values, float)
    return {
        "prompt": one.prompt,
        "layers": list(one.layers),
        "width": int(values.shape[1]),
        "values": buffers.add(values.reshape(-1), "float32"),
    }
