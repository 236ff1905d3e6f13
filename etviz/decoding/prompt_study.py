"""`etviz.decode.kl` and `etviz.decode.perplexity` are tasks of `etviz.study`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from etviz.artifacts.scratch import Scratch
from etviz.calls.session import open_session
from etviz.calls.tokens import tokenizer_of
from etviz.decoding.decode import decode, listed
from etviz.decoding.measures import with_errors
from etviz.errors import EtvizError, UsageError
from etviz.evidence.executors import executor_of
from etviz.evidence.measuring import COMPARED, FAILED

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from etviz.decoding.result import Decode

COLUMNS: Final = (
    *("status", "reason", "positions", "kl", "kl_p99", "perplexity_reference", "perplexity_runtime", "perplexity"),
    *("flips", "faulty_flips", "first_fault"),
)
_WHOLE: Final = ("positions", "flips", "faulty_flips", "first_fault")
_CHUNKS: Final = 4
"""Chunks of prompts for each worker."""


class PromptStudy:
    """A language model over many prompts. Made by `etviz.study` with a task of `etviz.decode`.

    Attributes
    ----------
    inputs
        A row for each prompt: ``status`` (``compared`` or ``failed``) and ``reason``; number of ``positions``; ``kl``
        (mean, nats) and ``kl_p99``; ``perplexity_reference`` and ``perplexity_runtime``, and their ratio
        ``perplexity``; ``flips``, ``faulty_flips`` (which noise does not explain), and ``first_fault`` (the step, NA
        without one).
    """

    def __init__(self, task: TokenTask, pte: str, ids: Sequence[list[int]], inputs: pd.DataFrame, folder: Any) -> None:
        self.inputs = inputs
        self._task, self._pte, self._ids, self._folder = task, pte, ids, folder

    @property
    def statistics(self) -> pd.DataFrame:
        """Mean over the prompts of ``kl`` and of ``perplexity``, each with its standard error."""
        rows = self.inputs[self.inputs["status"] == COMPARED]
        names = ("kl", "perplexity")
        found = [with_errors(rows[name].to_numpy(float), {name: lambda values: values.mean(0)}) for name in names]
        return pd.concat(found)

    def worst_inputs(self, n: int = 5, by: str = "") -> pd.DataFrame:
        """Rows of `inputs`, largest first; `UsageError` if `by` is no column of numbers."""
        by = by or self._task.name
        if by not in COLUMNS[2:]:
            raise UsageError(f"by must be one of {', '.join(COLUMNS[2:])}; found {by!r}")
        return self.inputs.sort_values(by, ascending=False, kind="stable").head(n)

    def open_input(self, index: int) -> Decode:
        """Decode one prompt again; `UsageError` if there is none."""
        if isinstance(index, bool) or not hasattr(index, "__index__") or not 0 <= int(index) < len(self._ids):
            raise UsageError(f"there is no prompt {index!r}; there are {len(self._ids)}, numbered from 0")
        return decode(self._pte, [self._ids[int(index)]], **self._task.options)

    def summary(self) -> str:
        """The task with its standard error, faults, and the worst prompt."""
        rows = self.inputs[self.inputs["status"] == COMPARED]
        lines = [f"{len(self.inputs)} prompts: {len(rows)} compared, {len(self.inputs) - len(rows)} failed."]
        if len(rows):
            value, error = self.statistics.loc[self._task.name]
            what = {"kl": "KL divergence in nats", "perplexity": "Perplexity, runtime over reference"}[self._task.name]
            lines.append(f"{what}: mean {value:.4g} ± {error:.1g}.")
            faults = int(rows["first_fault"].notna().sum())
            lines.append(f"{faults} prompts have a step that noise does not explain.")
            worst = self.worst_inputs(1)
            lines.append(f"Worst prompt: {worst.index[0]} ({self._task.name} {worst[self._task.name].iloc[0]:.4g}).")
        for reason, count in self.inputs.loc[self.inputs["status"] == FAILED, "reason"].value_counts().head(3).items():
            lines.append(f"{count} failed: {reason}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.summary()


@dataclass(frozen=True, slots=True)
class TokenTask:
    """A measure of tokens: ``task=etviz.decode.kl``; call it for other options, ``etviz.decode.kl(steps=64)``.

    Attributes
    ----------
    name
        Column of `PromptStudy.inputs`.
    options
        Arguments of `etviz.decode`.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, **options: Any) -> TokenTask:
        return replace(self, options={**self.options, **options})

    def over_prompts(
        self, program: Any, prompts: Any, executor: Executor | int | str | None, **lowering: Any
    ) -> PromptStudy:
        words = tokenizer_of(self.options.get("tokenizer"))
        ids = [words.ids(prompt, number) for number, prompt in enumerate(listed(prompts))]
        folder, method, strict = Scratch(), lowering.pop("method"), bool(lowering.pop("strict"))
        given = {name: value for name, value in lowering.items() if value is not None}
        timeout = given.pop("timeout", None)
        steps, driver = self.options.get("steps", 32), self.options.get("driver")
        session = open_session(program, ids, steps, driver, Path(folder.name), method, strict, timeout, given)
        options = {**self.options, "method": session.subject.method, "timeout": timeout}
        pte, rows = str(session.subject.pte), list[Any]([None] * len(ids))
        with (
            executor_of(executor, len(ids)) as (pool, width),
            tqdm(total=len(ids), desc="study", unit="prompt", leave=False, delay=1) as bar,
        ):
            pieces = [piece for piece in np.array_split(np.arange(len(ids)), _CHUNKS * width) if len(piece)]
            asked = {pool.submit(_measured, pte, [ids[at] for at in piece], options): piece for piece in pieces}
            for done in as_completed(asked):
                for at, row in zip(asked[done], done.result(), strict=True):
                    rows[at] = row
                bar.update(len(asked[done]))
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        table.index.name = "input"
        table = table.astype(dict.fromkeys(_WHOLE, "Int64"))
        return PromptStudy(replace(self, options=options), pte, ids, table, (folder, session))


def _measured(pte: str, prompts: Sequence[list[int]], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for ids in prompts:
        try:
            run = decode(pte, [ids], **options)
        except EtvizError as error:
            found.append({"status": FAILED, "reason": str(error)})
            continue
        kl, both, fault = run.kl["value"], run.perplexity["value"], run.first_fault
        row = {"kl": kl["mean"], "kl_p99": kl["p99"], "perplexity": both["ratio"], "positions": len(run.steps)}
        row |= {f"perplexity_{side}": both[side] for side in ("reference", "runtime")}
        row |= {"flips": int((~run.steps["agrees"]).sum()), "faulty_flips": len(run.faulty_flips)}
        row["first_fault"] = None if fault is None else int(fault["step"])
        found.append({"status": COMPARED, "reason": "", **row})
    return found


for _name in ("kl", "perplexity"):
    setattr(decode, _name, TokenTask(_name))

__all__ = ["PromptStudy", "TokenTask", "decode"]
