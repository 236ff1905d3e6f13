"""`etviz.decode.kl`, `etviz.decode.perplexity` and `etviz.decode.wer` are tasks of `etviz.study`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from torch.utils._pytree import tree_leaves
from tqdm.auto import tqdm

from etviz.artifacts.scratch import Scratch
from etviz.calls.session import open_session
from etviz.calls.tokens import tokenizer_of
from etviz.decoding.entry import decode, ids_of
from etviz.decoding.measures import with_errors
from etviz.decoding.result import Decode
from etviz.errors import EtvizError, UsageError
from etviz.evidence.dataset import content, encode
from etviz.evidence.executors import UnderWay, executor_of
from etviz.evidence.measuring import COMPARED, FAILED
from etviz.evidence.runner import check_same
from etviz.evidence.store import Store, require_parquet
from etviz.evidence.subject import Subject
from etviz.text import measured

COLUMNS: Final = (
    *("status", "reason", "positions", "kl", "kl_p99", "perplexity_reference", "perplexity_runtime", "perplexity"),
    *("flips", "faulty_flips", "first_fault"),
)
_WORDS: Final = ("words", "errors", "wer", "wer_reference")
_WHOLE: Final = ("positions", "flips", "faulty_flips", "first_fault", "words", "errors")
_SPOKEN: Final = ("expected", "stop", "normalize")
_EACH: Final = ("sources", "expected", "driver")
_SAID: Final = {
    "kl": "KL divergence in nats: mean",
    "perplexity": "Perplexity, runtime over reference: mean",
    "wer": "Word error rate of the runtime:",
}


class PromptStudy:
    """A language model over many prompts. Made by `etviz.study` with a task of `etviz.decode`.

    Attributes
    ----------
    folder
        It holds the tables; the same arguments continue an interrupted study.
    """

    def __init__(self, task: TokenTask, subject: Subject, ids: Sequence[list[int]], store: Store) -> None:
        self.folder = store.folder
        self._task, self._subject, self._ids, self._store = task, subject, ids, store

    @cached_property
    def inputs(self) -> pd.DataFrame:
        """A row for each prompt.

        ``status`` (``compared`` or ``failed``) and ``reason``; number of ``positions``; ``kl`` (mean, nats) and
        ``kl_p99``; ``perplexity_reference`` and ``perplexity_runtime``, and their ratio ``perplexity``; ``flips``,
        ``faulty_flips`` (which noise does not explain), and ``first_fault`` (the step, NA without one). With the task
        ``wer`` also ``words``, ``errors``, ``wer`` and ``wer_reference`` of `Decode.transcripts`.
        """
        runs = pd.concat([frame for _, frame in self._store.runs(["input", *self._task.columns])])
        runs = runs.set_index("input")[list(self._task.columns)]
        return runs.astype({name: "Int64" for name in _WHOLE if name in runs})

    @property
    def statistics(self) -> pd.DataFrame:
        """Mean over the prompts of ``kl`` and of ``perplexity``, each with its standard error.

        With the task ``wer``, that too: the errors of all prompts over their words.
        """
        rows = self.inputs[self.inputs["status"] == COMPARED]
        names = ("kl", "perplexity")
        frames = [with_errors(rows[name].to_numpy(float), {name: lambda values: values.mean(0)}) for name in names]
        if self._task.name == "wer":
            both = rows[["errors", "words"]].to_numpy(float)
            frames.append(with_errors(both, {"wer": lambda values: values[..., 0].sum(0) / values[..., 1].sum(0)}))
        return pd.concat(frames)

    def worst_inputs(self, n: int = 5, by: str = "") -> pd.DataFrame:
        """Rows of `inputs`, largest first; `UsageError` if `by` is no column of numbers."""
        by, known = by or self._task.name, self._task.columns[2:]
        if by not in known:
            raise UsageError(f"by must be one of {', '.join(known)}; found {by!r}")
        return self.inputs.sort_values(by, ascending=False, kind="stable").head(n)

    def open_input(self, index: int) -> Decode:
        """Decode one prompt again; `UsageError` if there is none."""
        if isinstance(index, bool) or not hasattr(index, "__index__") or not 0 <= int(index) < len(self._ids):
            raise UsageError(f"there is no prompt {index!r}; there are {len(self._ids)}, numbered from 0")
        return decode(self._subject, [self._ids[int(index)]], **self._task.of_decode([int(index)]))

    def summary(self) -> str:
        """The task with its standard error, faults, and the worst prompt."""
        rows = self.inputs[self.inputs["status"] == COMPARED]
        lines = [f"{len(self.inputs)} prompts: {len(rows)} compared, {len(self.inputs) - len(rows)} failed."]
        if len(rows):
            value, error = self.statistics.loc[self._task.name]
            lines.append(f"{_SAID[self._task.name]} {measured(value, error)}.")
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

    @property
    def columns(self) -> tuple[str, ...]:
        return COLUMNS + (_WORDS if self.name == "wer" else ())

    def of_decode(self, prompts: Sequence[int]) -> dict[str, Any]:
        return {name: value for name, value in self.some(prompts).items() if name not in _SPOKEN}

    def some(self, prompts: Sequence[int]) -> dict[str, Any]:
        options = dict(self.options)
        for name in _EACH:
            if isinstance(options.get(name), (list, tuple)):
                options[name] = [options[name][at] for at in prompts]
        return options

    def __call__(self, **options: Any) -> TokenTask:
        return replace(self, options={**self.options, **options})

    def over_prompts(
        self,
        program: Any,
        prompts: Any,
        executor: Executor | int | str | None,
        folder: str | Path | None = None,
        **lowering: Any,
    ) -> PromptStudy:
        require_parquet()
        words = tokenizer_of(self.options.get("tokenizer"))
        if wrong := [name for name in _SPOKEN if name in self.options and self.name != "wer"]:
            raise UsageError(f"{', '.join(wrong)}: only the task wer takes it")
        encoder, driver = self.options.get("encoder"), self.options.get("driver")
        ids, sources = ids_of(words, prompts, encoder, self.options.get("sources"))
        expected = self.options.get("expected")
        if expected is not None and (isinstance(expected, str) or len(expected) != len(ids)):
            raise UsageError(f"expected must be a list with the text of each of the {len(ids)} prompts")
        method, strict = lowering.pop("method"), bool(lowering.pop("strict"))
        given = {name: value for name, value in lowering.items() if value is not None}
        timeout = given.pop("timeout", None)
        store, scratch = Store(folder), Scratch()
        store.claim()
        try:
            if store.about() and isinstance(program, torch.nn.Module):
                program, given = store.subject(), {}  # a model is lowered once
            opened = (driver, Path(scratch.name), method, strict, timeout, given, encoder, sources)
            session = open_session(program, ids, self.options.get("steps", 32), *opened)
            subject = store.adopt(session.subject)
            about = {"title": subject.title, "program": subject.digests(), "method": subject.method}
            kept = {name: value for name, value in self.options.items() if name not in _EACH}
            store.begin({**about, "tasks": [self.name], "options": {name: _told(kept[name]) for name in sorted(kept)}})
            options = {**self.options, "method": subject.method, "timeout": timeout}
            task = replace(self, options=options if sources is None else {**options, "sources": sources})
            task.run(store, subject, ids, executor)
        finally:
            store.release()
        return PromptStudy(task, subject, ids, store)

    def run(
        self, store: Store, subject: Subject, ids: Sequence[list[int]], executor: Executor | int | str | None
    ) -> None:
        each = [self.some([at]) for at in range(len(ids))]
        contents = [_content(item, task) for item, task in zip(ids, each, strict=True)]
        done = set(store.done())
        for at in done:
            check_same(store, at, {at: contents[at]} if at < len(ids) else {})
        left = [at for at in range(len(ids)) if at not in done]
        with (
            executor_of(executor, len(left)) as (pool, width),
            tqdm(total=len(ids), initial=len(done), desc="study", unit="prompt", leave=False, delay=1) as bar,
        ):

            def write(at: int, row: dict[str, Any]) -> None:
                texts = {"name": "", "content": contents[at], **{name: row[name] for name in COLUMNS[:2]}}
                numbers = {name: float(row.get(name, np.nan)) for name in self.columns[2:]}
                store.put(pd.DataFrame([{"input": at, **texts, **numbers}]), f"runs/{at:06}.parquet")
                bar.update()

            with UnderWay(write, store.folder) as under_way:
                for at in left:
                    under_way.add(pool, at, _measured, subject, ids[at], replace(self, options=each[at]))
                    under_way.take(2 * width - 1 if width > 1 else 0)
                under_way.take(0)


def _told(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return str(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else type(value).__qualname__


def _content(ids: Sequence[int], options: Mapping[str, Any]) -> str:
    source, expected = options.get("sources"), options.get("expected")
    return content(encode([torch.tensor(ids), *tree_leaves(tuple(source or ())), *(expected or ())]))


def _measured(subject: Subject, ids: Sequence[int], task: TokenTask) -> dict[str, Any]:
    try:
        run = decode(subject, [list(ids)], **task.of_decode([0]))
        spoken = {name: task.options[name] for name in _SPOKEN if name in task.options}
        words = run.transcripts(**spoken).iloc[0] if task.name == "wer" else {}
    except EtvizError as error:
        return {"status": FAILED, "reason": str(error)}
    kl, both, fault = run.kl["value"], run.perplexity["value"], run.first_fault
    row = {"kl": kl["mean"], "kl_p99": kl["p99"], "perplexity": both["ratio"], "positions": len(run.steps)}
    row |= {f"perplexity_{side}": both[side] for side in ("reference", "runtime")}
    row |= {"flips": int(run.flips.sum()), "faulty_flips": len(run.faulty_flips)}
    row |= {} if fault is None else {"first_fault": int(fault["step"])}
    row |= {name: words[name] for name in _WORDS if name in words}
    return {"status": COMPARED, "reason": "", **row}


for _name in _SAID:
    setattr(decode, _name, TokenTask(_name))

__all__ = ["PromptStudy", "TokenTask", "decode"]
