"""One prompt, decoded: the calls that were made, and the logits of both sides at every position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from etviz.decoding.measures import measures
from etviz.tensors.metrics import THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Where the logits of one position are: in which call, and in which row of its logits."""

    call: int
    row: int
    position: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """One prompt with the tokens that the reference continued it with.

    Attributes
    ----------
    ids
        The prompt's token ids, then the generated ones.
    prompted
        Number of ids of the prompt.
    calls
        In order.
    positions
        Those that have logits.
    reference, runtime
        Logits, a row for each of `positions`.
    noise
        For each of them: the noise of all logits, and of the difference of two.
    """

    ids: tuple[int, ...]
    prompted: int
    calls: tuple[Call, ...]
    positions: tuple[Position, ...]
    reference: torch.Tensor
    runtime: torch.Tensor
    noise: Sequence[tuple[float, float]]

    def table(self, prompt: int, tokenizer: Tokenizer) -> pd.DataFrame:
        """Its rows of `Decode.steps`."""
        tokens = [self.ids[item.position + 1] for item in self.positions]
        found = pd.DataFrame(measures(self.reference, self.runtime, tokens))
        found["prompt"] = prompt
        found["step"] = [item.call for item in self.positions]
        found["position"] = [item.position for item in self.positions]
        found["token"] = tokens
        found["text"] = [tokenizer.text(token) for token in tokens]
        found["generated"] = found["position"] + 1 >= self.prompted
        known = found["kl"].notna()
        for name in ("predicted_reference", "predicted_runtime"):
            found[name] = found[name].fillna(-1).astype("int64")
        found["rank"] = found["rank"].astype("Int64")
        found["agrees"] = known & (found["predicted_reference"] == found["predicted_runtime"])
        found["margin_noise"] = [pair for _, pair in self.noise]
        within = found["margin_shift"].abs() <= THRESHOLD * found["margin_noise"]
        unknown = known & found["margin_noise"].isna()
        found["explained"] = (within & known).astype("boolean").mask(unknown)
        noise = pd.Series([each for each, _ in self.noise], dtype="float64")
        found["severity"] = _severity(found["rmse"], noise)
        return found[list(COLUMNS)]


def _severity(rmse: pd.Series[Any], noise: pd.Series[float]) -> pd.Series[Any]:
    """RMSE over noise; 0 where they are equal."""
    return (rmse / noise).mask(rmse == 0, 0.0)
