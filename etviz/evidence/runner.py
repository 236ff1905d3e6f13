"""Runs a study: inputs in chunks, on any executor, into the study's folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from tqdm.auto import tqdm

from etviz.analysis.tasks import choose as choose_tasks
from etviz.analysis.tasks import refuse_columns
from etviz.errors import UsageError, during
from etviz.evidence.dataset import Entry, content, count_of, encode, entries, first_item
from etviz.evidence.executors import UnderWay, executor_of, is_here
from etviz.evidence.keeper import InputKeeper
from etviz.evidence.measuring import Ahead, Measured, Sample, Work, failure, gap_columns, measure, run_columns
from etviz.evidence.parquet import TAKEN
from etviz.evidence.running import BUFFER, NAMING
from etviz.evidence.store import LOWERED, Store, require_parquet
from etviz.evidence.study import Study
from etviz.evidence.subject import arguments_of, subject_of
from etviz.graph.uses import is_stateful
from etviz.inspection import Inspection
from etviz.pipeline.recipe import Recipe
from etviz.pipeline.recipe import lowering as arguments
from etviz.tensors.blocks import whole
from etviz.tensors.custom_metrics import choose as choose_metrics
from etviz.tensors.metrics import BUILT_IN, NAN

CHUNK: Final = 32
_FIRST: Final = 4
"""Number of inputs that tell the noise of total gaps."""
_TABLES: Final = "a study's tables"
R = TypeVar("R", covariant=True)


class PromptsTask(Protocol[R]):
    def over_prompts(self, *given: Any, **lowering: Any) -> R: ...


@overload
def study(program: Any, inputs: Any, *, task: PromptsTask[R], **options: Any) -> R: ...
@overload
def study(
    program: Any,
    inputs: Any,
    *,
    executor: Executor | int | str | None = None,
    folder: str | Path | None = None,
    task: str | Callable[..., Any] | Sequence[Any] | Mapping[str, Any] | None = None,
    labels: Sequence[Any] | None = None,
    method: str | None = None,
    introduced: bool = True,
    metrics: Iterable[Any] | None = None,
    chunk: int | None = None,
    timeout: float | None = None,
    recipe: Recipe | str | None = None,
    partitioner: Sequence[Any] | None = None,
    quantizer: Any = None,
    calibration: Iterable[Sequence[Any]] | None = None,
    reference: Any = None,
    strict: bool | None = None,
) -> Study: ...


@during("studying the program")
def study(
    program: Any,
    inputs: Any,
    *,
    executor: Executor | int | str | None = None,
    folder: str | Path | None = None,
    task: Any = None,
    labels: Sequence[Any] | None = None,
    method: str | None = None,
    introduced: bool = True,
    metrics: Iterable[Any] | None = None,
    chunk: int | None = None,
    timeout: float | None = None,
    recipe: Recipe | str | None = None,
    partitioner: Sequence[Any] | None = None,
    quantizer: Any = None,
    calibration: Iterable[Sequence[Any]] | None = None,
    reference: Any = None,
    strict: bool | None = None,
) -> Any:
    """Run a program over many inputs, and compare every run with its reference.

    Each input of a program with a state starts from its initial state.

    Parameters
    ----------
    program
        A `.pte` with its record or ETRecord beside it, or its folder; an Inspection; an `nn.Module` or
        `ExportedProgram`, which is lowered for its first input as by `etviz.debug`.
    inputs
        A list, a data set, a DataLoader, a generator, or a folder of ``.npy``, ``.npz``, ``.pt`` and ``.safetensors``
        files in the order of their names. An item is a tensor or a tuple of the program's arguments; one further value
        is the label. A batch is split where the program takes single inputs. An item that does not fit is a row of
        `Study.inputs` with the reason.
    executor
        Any `concurrent.futures.Executor`, which etviz does not shut down; a number of processes; ``"processes"`` for
        one on each core. None works in this process; in a notebook or at a prompt, it starts processes for more than a
        minute of work. A script must ask for processes below ``if __name__ == "__main__":``, since each imports it.
        For Dask, give ``client.get_executor()``; its workers must see `folder`.
    folder
        None for a temporary one. The same arguments continue an interrupted study.
    task
        Task metrics: a function of the expected outputs, the runtime's outputs and the label that returns a number, one
        of ``top1``, ``top5``, ``margin``, ``kl``, ``accuracy``, a list of these, or a dict by name. Expected are the
        outputs of the float model where it is known, otherwise the reference's. With ``etviz.decode.kl``,
        ``.perplexity`` or ``.wer``, `inputs` are prompts, and the result is an `etviz.PromptStudy`; call the task for
        options: ``etviz.decode.kl(tokenizer=…, steps=64)``.
    labels
        One for each input, if the items have none.
    method
        None for ``forward`` or the only one.
    introduced
        Replay every instruction on the runtime's inputs, for the ``introduced_…`` metrics.
    metrics
        As for `etviz.load`.
    chunk
        Number of inputs that run together; None for as many as fill 32 MB of debug buffer, up to 32.
    timeout
        Seconds for a chunk, 600 if None.
    recipe, partitioner, quantizer, calibration, reference, strict
        As for `etviz.debug`.

    Raises
    ------
    UsageError
        If an argument makes no sense, `task` is given for a program with a state, pyarrow is not installed, or `folder`
        holds another study or has another writer.
    ArtifactError
        If a file is missing or damaged, or the study can't be written; finished chunks stay.
    ExecutionError
        If the executor's workers are lost.
    """
    lowering = arguments(recipe, partitioner=partitioner, quantizer=quantizer, calibration=calibration, strict=strict)
    if hasattr(task, "over_prompts"):
        _refuse(labels=labels, metrics=metrics, chunk=chunk, reference=reference)
        return task.over_prompts(program, inputs, executor, folder, method=method, timeout=timeout, **lowering)
    require_parquet()
    if chunk is not None and whole(chunk, "chunk") < 1:
        raise UsageError(f"chunk must be positive, found {chunk}")
    tasks, custom = choose_tasks(task, (*run_columns({}), *TAKEN), _TABLES), choose_metrics(metrics)
    refuse_columns("metrics", custom.names, (*gap_columns(()), *TAKEN), _TABLES)
    store, (first, inputs) = Store(folder), first_item(inputs)
    lowering["reference"] = reference
    example = arguments_of(program, first) if first is not None else None
    store.claim()
    try:
        if store.about() and not isinstance(program, Inspection) and hasattr(program, "parameters"):
            subject = store.subject()  # a model is lowered once
        else:
            subject = store.adopt(subject_of(program, example, store.folder / LOWERED, method, **lowering))
        graph, digests = subject.graph(), subject.digests()
        if tasks and is_stateful(graph):
            raise UsageError(
                "task: the program has a state, and each input of a study starts from the initial one, so a metric of "
                "its outputs would not be that of the steps of a run; leave task out"
            )
        size = chunk or max(1, min(CHUNK, BUFFER // max(subject.buffer_bytes, 1)))
        about = {
            "title": subject.title,
            "program": digests,
            "method": subject.method,
            "introduced": introduced,
            "metrics": [*BUILT_IN, *(metric.name for metric in custom.metrics)],
            "tasks": list(tasks),
            "chunk": size,
            "noise_of": _FIRST,
        }
        store.begin(about)
        source = entries(inputs, graph.user_inputs(), labels)
        ahead = list(islice(source, min(_FIRST, size)))
        first_samples = tuple(_sample(entry, encode(entry.values)) for entry in ahead if not entry.problem)
        work = Work(subject, digests, (), first_samples, introduced, custom.metrics, tasks, timeout)
        expected = count_of(inputs)
        pieces = max(0, -(-expected // size) - len(store.done())) if expected is not None else None
        with executor_of(executor, pieces) as (pool, width):
            _run(store, work, chain(ahead, source), size, pool, width, expected)
        if store.done():
            store.put(Study(store).table, "table.parquet")
    finally:
        store.release()
    made = program.analysis.findings.made if isinstance(program, Inspection) else {}
    if hasattr(program, "parameters") and not isinstance(calibration, Iterator):
        made = {"model": program, **lowering}
    return Study(store, inputs, made)


def _refuse(**given: Any) -> None:
    if wrong := [name for name, value in given.items() if value is not None]:
        raise UsageError(f"{', '.join(wrong)}: a study over prompts does not take it; give the task its options")


@dataclass(frozen=True, slots=True)
class _Chunk:
    number: int
    entries: list[Entry]
    data: dict[int, bytes]
    work: Work | None


def _run(
    store: Store, work: Work, source: Iterator[Entry], size: int, pool: Executor, width: int, expected: int | None
) -> None:
    """In this process, the program runs on the next chunk while one is measured.

    A crash loses only the chunks under way.
    """
    with (
        tqdm(total=expected, desc="study", leave=False, delay=1, unit="input") as bar,
        UnderWay(_Tables(store, work, bar).write, store.folder) as under_way,
        Ahead() as ahead,
    ):
        for chunk, following in _with_next(_chunks(source, size, work, set(store.done()))):
            if chunk.work is None:
                known = {at: content(values) for at, values in chunk.data.items()}
                check_same(store, chunk.number, {entry.index: known.get(entry.index, "") for entry in chunk.entries})
                bar.update(len(chunk.entries))
                continue
            if is_here(pool):
                for each in (chunk, following):
                    if each is not None and each.work is not None:
                        ahead.begin(each.number, each.work)
                under_way.add(pool, chunk, measure, chunk.work, ahead.take(chunk.number))
            else:
                under_way.add(pool, chunk, measure, chunk.work)
            under_way.take(2 * width - 1 if width > 1 else 0)
        under_way.take(0)


class _Tables:
    def __init__(self, store: Store, work: Work, bar: tqdm[Any]) -> None:
        self._store, self._work, self._bar = store, work, bar
        self._keeper = InputKeeper(store, work.tasks)

    def write(self, chunk: _Chunk, measured: Measured) -> None:
        refused = [failure(entry.index, entry.name, entry.problem) for entry in chunk.entries if entry.problem]
        rows: list[dict[str, Any]] = sorted([*measured.runs, *refused], key=lambda row: row["input"])
        contents = {index: content(values) for index, values in chunk.data.items()}
        rows = [row | {"content": contents.get(row["input"], "")} for row in rows]
        runs, gaps = _run_table(rows, run_columns(self._work.tasks)), pd.DataFrame(measured.gaps)
        if measured.operators and not (self._store.folder / "operators.parquet").is_file():
            operators = pd.DataFrame(measured.operators, columns=["instruction", "output", *NAMING])
            self._store.put(operators, "operators.parquet")
        self._keeper.offer(gaps, runs, chunk.data)
        self._store.put_chunk(chunk.number, gaps, runs)
        self._bar.update(len(chunk.entries))


def _sample(entry: Entry, data: bytes) -> Sample:
    return Sample(entry.index, entry.name, data, entry.label)


def _chunks(source: Iterator[Entry], size: int, work: Work, done: Collection[int]) -> Iterator[_Chunk]:
    number = -1
    while entries := list(islice(source, size)):
        number += 1
        data = {entry.index: encode(entry.values) for entry in entries if not entry.problem}
        samples = tuple(_sample(entry, data[entry.index]) for entry in entries if not entry.problem)
        yield _Chunk(number, entries, data, replace(work, samples=samples) if number not in done else None)


def _with_next(chunks: Iterator[_Chunk]) -> Iterator[tuple[_Chunk, _Chunk | None]]:
    chunk = next(chunks, None)
    while chunk is not None:
        following, problem = None, None
        try:
            following = next(chunks, None)
        except BaseException as error:  # noqa: BLE001 - an interrupt, too
            problem = error
        yield chunk, following
        if problem is not None:
            raise problem
        chunk = following


def check_same(store: Store, number: int, contents: Mapping[int, str]) -> None:
    """A chunk that is done, and the `content` of its inputs now, empty for one that can't be read; `UsageError`."""
    known = store.table(f"runs/{number:06}.parquet")
    before = dict(zip(known["input"], known["content"], strict=True))
    for index, now in contents.items():
        then = before.get(index)
        if index not in before or (then and now != then) or (now and then == ""):
            raise UsageError(
                f"input {index} is not the input that the study in {store.folder} was begun with; "
                "give it the same inputs in the same order, or another folder"
            )
    if len(known) > len(contents):
        raise UsageError(f"the study in {store.folder} was begun with more inputs; give it the same, or another folder")


def _run_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> pd.DataFrame:
    texts, numbers = {"name", "status", "reason", "content"}, {"input": -1, "compared": 0, "nonfinite": 0}
    numbers["worst_instruction"] = -1

    def column(name: str) -> npt.NDArray[Any]:
        if name in texts or name == "matches":
            return np.array([row.get(name, "" if name in texts else None) for row in rows], object)
        kind = np.int64 if name in numbers else np.float64
        return np.array([row.get(name, numbers.get(name, NAN)) for row in rows], kind)

    return pd.DataFrame({name: column(name) for name in names})
