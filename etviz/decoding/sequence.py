"""One prompt, decoded: its calls, and the logits of both sides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from etviz.decoding.measures import measures
from etviz.tensors.metrics import THRESHOLD

if TYPE_CHECKING:
    import torch

    from etviz.calls.driver import Call
    from etviz.calls.tokens import Tokenizer

COLUMNS: Final = (
    *("prompt", "step", "position", "token", "text", "predicted_reference", "predicted_runtime", "agrees"),
    *("margin", "margin_shift", "margin_noise", "explained", "kl", "entropy", "rank", "nll_reference", "nll_runtime"),
    *("top5_overlap", "max_abs", "severity", "generated"),
)


@dataclass(frozen=True, slots=True)
class Position:
    """The call and the row of its logits that belong to a position."""

    call: int
    row: int
    position: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """One prompt with the tokens that the reference continued it with.

    `ids` begin with the `prompted` ones. `reference` and `runtime` are logits, a row for each of `positions`. `peak` is
    bytes of the values of one call. `rounding` is noise of reference logits that were stored in few bits. `noise` is
    that of `noise_of_logits`, empty until measured.
    """

    ids: tuple[int, ...]
    prompted: int
    calls: tuple[Call, ...]
    positions: tuple[Position, ...]
    reference: torch.Tensor
    runtime: torch.Tensor
    peak: int = 0
    rounding: tuple[float, ...] = ()
    noise: Sequence[Sequence[Sequence[float]]] = ()

    def table(self, prompt: int, tokenizer: Tokenizer) -> pd.DataFrame:
        tokens = [self.ids[position.position + 1] for position in self.positions]
        table = pd.DataFrame(measures(self.reference, self.runtime, tokens))
        table["prompt"] = prompt
        table["step"] = [position.call for position in self.positions]
        table["position"] = [position.position for position in self.positions]
        table["token"] = tokens
        table["text"] = [tokenizer.text(token) for token in tokens]
        table["generated"] = table["position"] + 1 >= self.prompted
        known = table["kl"].notna()
        for name in ("predicted_reference", "predicted_runtime"):
            table[name] = table[name].fillna(-1).astype("int64")
        table["rank"] = table["rank"].astype("Int64")
        table["agrees"] = known & (table["predicted_reference"] == table["predicted_runtime"])
        each, pairs = self.noise_of_rows()
        table["margin_noise"] = pairs
        within = table["margin_shift"].abs() <= THRESHOLD * table["margin_noise"]
        table["explained"] = within.astype("boolean").mask(~known | table["margin_noise"].isna())
        table["severity"] = _severity(table["rmse"], pd.Series(each, dtype="float64"))
        return table[list(COLUMNS)]

    def noise_of_rows(self) -> tuple[list[float], list[float]]:
        if not self.noise:
            return [math.nan] * len(self.positions), [math.nan] * len(self.positions)
        measured = [self.noise[position.call][position.row] for position in self.positions]
        rounding = self.rounding or [0.0] * len(measured)
        each = [math.hypot(one, step) for (one, _), step in zip(measured, rounding, strict=True)]
        pairs = [math.hypot(pair, math.sqrt(2) * step) for (_, pair), step in zip(measured, rounding, strict=True)]
        return each, pairs


def _severity(rmse: pd.Series[Any], noise: pd.Series[float]) -> pd.Series[Any]:
    return (rmse / noise).mask(rmse == 0, 0.0)
