"""The inputs that a study keeps, to be opened again."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from typing import TYPE_CHECKING

from etviz.comparison.gap import MISMATCH
from etviz.evidence.measuring import WORST_BY
from etviz.evidence.store import Store
from etviz.evidence.study import higher_is_better

if TYPE_CHECKING:
    import pandas as pd


class InputKeeper:
    """The worst inputs of each operator and of the outputs, and both ends of each task metric."""

    def __init__(self, store: Store, tasks: Collection[str]) -> None:
        self._store, self._tasks = store, tasks
        self._best: dict[Hashable, tuple[float, int, str]] = {}
        for (_, runs), gaps in zip(store.runs(), store.gaps(), strict=True):
            self._judge(gaps, runs)
        self._prune()

    def offer(self, gaps: pd.DataFrame, runs: pd.DataFrame, data: Mapping[int, bytes]) -> None:
        self._judge(gaps, runs)
        for _, index, name in [*self._best.values()]:
            if index in data:
                self._store.keep(name, data[index])
        self._prune()

    def _prune(self) -> None:
        for name in self._store.kept_names() - {name for _, _, name in self._best.values()}:
            self._store.drop(name)

    def _judge(self, gaps: pd.DataFrame, runs: pd.DataFrame) -> None:
        contents = dict(zip(runs["input"].tolist(), runs["content"], strict=True))
        for metric in gaps.columns.intersection(list(WORST_BY)):
            judged = gaps[["instruction", "output", "input"]].assign(
                bad=gaps[metric].mask(gaps["status"] == MISMATCH, math.inf)
            )
            judged = judged.sort_values(["bad", "input"], ascending=[False, True])
            for row in judged.drop_duplicates(["instruction", "output"]).itertuples(index=False, name=None):
                instruction, output, index, bad = row
                self._take((instruction, output, metric), bad, index, contents)
        for name in map(str, runs):
            signs: tuple[float, ...] = ()
            if name.startswith(("output_", "float_")):
                signs = (-1.0 if higher_is_better(name.partition("_")[2]) else 1.0,)
            elif name in self._tasks:
                signs = (-1.0, 1.0)
            for sign in signs:
                for index, bad in zip(runs["input"].tolist(), (sign * runs[name]).tolist(), strict=True):
                    self._take((name, sign), bad, index, contents)

    def _take(self, key: Hashable, badness: float, index: int, contents: Mapping[int, str]) -> None:
        if math.isnan(badness) or not contents.get(index):
            return
        held = self._best.get(key)
        if held is None or (badness, -index) > (held[0], -held[1]):
            self._best[key] = badness, index, contents[index]
