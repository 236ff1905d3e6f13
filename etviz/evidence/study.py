"""One program over many inputs: every metric of every operator as a distribution, and the worst inputs to open again.

Inputs are run in chunks. What a chunk gave is a file in the study's folder, and everything that is told is computed
from these files in the order of the inputs, so it does not matter who ran them, in which order, or after how many
interruptions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from etviz.analysis.analysis import Analysis
from etviz.artifacts.files import open_artifact
from etviz.comparison.gap import MISMATCH
from etviz.errors import ArtifactError, ExecutionError, UsageError, during
from etviz.evidence.dataset import Entry, content, count_of, decode, encode, entries, first_item, why_not
from etviz.evidence.executors import GUARD, executor_of, is_here, runs_a_script
from etviz.evidence.measuring import (
    COMPARED,
    FAILED,
    WORST_BY,
    Ahead,
    Measured,
    Sample,
    Work,
    failure,
    gap_columns,
    measure,
    run_columns,
)
from etviz.evidence.store import LOWERED, Store, require_parquet
from etviz.evidence.subject import Subject, arguments_of, inspect_run, subject_of
from etviz.evidence.tables import TAKEN
from etviz.evidence.task_metrics import choose as choose_tasks
from etviz.evidence.task_metrics import refuse_columns
from etviz.graph.labels import describe, owners_of, row_name
from etviz.inspection import Inspection
from etviz.tensors.custom_metrics import choose as choose_metrics
from etviz.tensors.metrics import METRICS, NAN, NOISE_THRESHOLDS, is_suspicious
from etviz.text import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from etviz.graph.ir import Graph, Input

    _Table = Mapping[str, npt.NDArray[Any]]

CHUNK: Final = 32
"""Inputs that are run together, at most."""
_BUFFER: Final = 32 << 20
"""Bytes of debug buffer that these may fill."""
_FIRST: Final = 4
"""Inputs of the first chunk on which the noise of total gaps is measured, for all others."""
_VALUES: Final = 4 << 20
"""Numbers that are in memory at a time while statistics are computed."""
_IDENTITY: Final = ("instruction", "output", "kind", "op", "backend", "reference_ops", "module", "source")
_TABLES: Final = "a study's tables"
_EXPLAINED: Final = ": precision explains it"
STATISTICS: Final = ("inputs", "mean", "min", "p50", "p99", "max", "worst", "worst_input", "nonfinite")


class Study:
    """A program over many inputs; made by `etviz.study`, and by `Study.open` from its folder.

    Attributes
    ----------
    folder
        Where it is kept.
    made
        What a model was lowered from and with; empty where a program was given.
    """

    def __init__(self, store: Store, source: Any = None, made: Mapping[str, Any] | None = None) -> None:
        self._store, self._source = store, source
        self.folder = store.folder
        self.made: Mapping[str, Any] = made or {}

    @classmethod
    def open(cls, folder: str | Path) -> Study:
        """A study that was finished, or interrupted, from its folder.

        Raises
        ------
        ArtifactError
            If it is none.
        """
        store = Store(folder)
        if not store.about():
            raise ArtifactError(folder, "there is no study in it", "give a folder that etviz.study() wrote")
        require_parquet()
        return cls(store)

    @cached_property
    @during("reading the study")
    def inputs(self) -> pd.DataFrame:
        """A row for each input.

        Returns
        -------
        DataFrame
            By ``input`` (its number): ``name``; ``status`` (``compared`` or ``failed``) and ``reason``; ``compared``
            and ``nonfinite`` values; ``matches`` (all final outputs are within tolerance of the reference);
            ``output_…`` metrics of the final outputs against the reference, ``float_…`` against the float model that
            was quantized, where it is known (the worst output each); the instruction that introduced most, and its
            severity; then the task metrics.
        """
        columns = run_columns(dict.fromkeys(self._store.about().get("tasks", ())))
        frames = [frame for _, frame in self._store.runs(columns)]
        rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
        rows["matches"] = rows["matches"].astype("boolean")
        twice = rows["input"][rows["input"].duplicated()]
        if len(twice):
            raise ArtifactError(self.folder / "runs", f"input {twice.iloc[0]} is there twice", "study again")
        return rows.drop(columns="content").set_index("input")

    @cached_property
    @during("reading the study")
    def table(self) -> pd.DataFrame:
        """The distribution of every metric of every operator over the inputs.

        Returns
        -------
        DataFrame
            A row for each output of each instruction and metric (total and ``introduced_…``): what names the operator,
            ``metric``; ``inputs`` with a number; ``mean, min, p50, p99, max`` of these (quantiles by nearest rank: each
            is the number of an input; in the metric's unit); ``worst`` and ``worst_input``, by the metric's polarity,
            inputs with NaN or Inf on one side only before all others; ``nonfinite`` such inputs.
        """
        about = self._store.about()
        names = [*about.get("metrics", ()), "noise"]
        names = [*names, *(f"introduced_{name}" for name in names)]
        records = [row for values in self._pieces(names) for row in self._statistics(values, names)]
        return pd.DataFrame(records, columns=[*_IDENTITY, "name", "metric", *STATISTICS])

    def _pieces(self, names: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The gaps of all inputs: instruction by instruction where they are too many to be in memory at once."""
        wanted = ["input", "instruction", "output", "status", *names]
        most = _VALUES // len(wanted)
        held: list[pd.DataFrame] = []
        parts = self._store.gaps(wanted)
        while sum(map(len, held)) <= most:
            part = next(parts, None)
            if part is None:
                yield from [pd.concat(held, ignore_index=True)] if held else []
                return
            held.append(part)
        held.clear()
        counts = pd.concat([part["instruction"].value_counts() for part in self._store.gaps(["instruction"])])
        counts = counts.groupby(level=0).sum().sort_index()
        for own in np.array_split(counts.index.to_numpy(), min(len(counts), -(-int(counts.sum()) // most))):
            pieces = [part[part["instruction"].isin(own)] for part in self._store.gaps(wanted)]
            yield pd.concat(pieces, ignore_index=True)

    def _statistics(self, values: pd.DataFrame, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The rows of some instructions, in their order."""
        instructions, outputs = values["instruction"].to_numpy(), values["output"].to_numpy()
        order = np.lexsort((outputs, instructions))
        keys = np.stack([instructions[order], outputs[order]], 1)
        starts = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(1)]) if len(keys) else []
        inputs = values["input"].to_numpy()[order]
        mismatched = (values["status"] == MISMATCH).to_numpy(bool)[order]
        columns = {name: values[name].to_numpy(np.float64)[order] for name in names}
        for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            own = slice(start, end)
            named = self._named((int(keys[start, 0]), int(keys[start, 1])))
            for name, column in columns.items():
                statistics = _describe(inputs[own], column[own], mismatched[own], name)
                if statistics["inputs"] or statistics["nonfinite"]:
                    yield {**named, "metric": name, **statistics}

    def _named(self, key: tuple[int, int]) -> dict[str, Any]:
        """What names an output of an instruction."""
        own = self._operators.get(key)
        if own is None:
            own = self._operators.get((key[0], 0), dict.fromkeys([*_IDENTITY, "name"], ""))
        return {**own, "instruction": key[0], "output": key[1]}

    @cached_property
    def _operators(self) -> dict[tuple[int, int], dict[str, Any]]:
        rows = self._store.table("operators.parquet").drop(columns="stack", errors="ignore").to_dict("records")
        return {(int(row["instruction"]), int(row["output"])): {str(k): v for k, v in row.items()} for row in rows}

    @during("reading the study")
    def worst(self, n: int = 5, by: str = "introduced_severity") -> pd.DataFrame:
        """The operators whose worst input is worst: rows of `table` of one metric.

        Raises
        ------
        UsageError
            If there is no such metric.
        """
        rows = self.table[self.table["metric"] == by]
        if by.startswith("introduced_") and rows.empty:
            return self.worst(n, by.removeprefix("introduced_"))
        if rows.empty:
            raise UsageError(
                f"by must be a metric of the table, found {by!r}; there are {sorted(set(self.table['metric']))}"
            )
        return _ranked(rows, "worst", _higher(by)).head(n)

    @during("reading the study")
    def worst_inputs(self, n: int = 5, by: str = "") -> pd.DataFrame:
        """The inputs to look at first: rows of `inputs`, worst first.

        Parameters
        ----------
        n
            Number of rows.
        by
            A column of `inputs`; by default the error against the float model where it is known, else against the
            reference (``float_rmse``, ``output_severity``). Task metrics count as better if they are higher.

        Raises
        ------
        UsageError
            If there is no such column.
        """
        rows = self.inputs[self.inputs["status"] == COMPARED]
        by = by or _worst_by(rows)
        if by not in rows:
            raise UsageError(f"by must be a column of inputs, found {by!r}; there are {', '.join(rows.columns)}")
        known = by.removeprefix("output_").removeprefix("float_")
        tasks = self._store.about().get("tasks", [])
        higher = METRICS[known].higher_is_better if known in METRICS else by in tasks and by != "kl"
        return _ranked(rows, by, higher).head(n)

    @during("running an input again")
    def open_input(self, index: int) -> Inspection:
        """Run one input again, and look at it.

        Parameters
        ----------
        index
            Its number: one of the worst inputs, which a study keeps (`kept`), or any if the data set is still at hand.

        Returns
        -------
        Inspection
            Its `summary` says so if the numbers are not those of the study.

        Raises
        ------
        UsageError
            If there is no such input, or it was not kept.
        ExecutionError
            If the run fails.
        """
        inspection = inspect_run(self._store.subject(), self.values(index), f"input {index}")
        return self._checked(inspection, index)

    def _checked(self, inspection: Inspection, index: int) -> Inspection:
        """Say it where a run does not give what it gave in the study."""
        before = self.gaps(index)
        now = inspection.analysis.tables.rows.set_index(["instruction", "output"])["rmse"]
        then = before.set_index(["instruction", "output"])["rmse"]
        if len(now) == len(then) and np.array_equal(now.to_numpy(), then.reindex(now.index).to_numpy(), equal_nan=True):
            return inspection
        findings = inspection.analysis.findings
        note = f"This run of input {index} does not give the numbers that it gave in the study: the program, or the "
        note += "machine, is not deterministic; etviz.census() tells where."
        return Inspection(Analysis(replace(findings, notes=(*findings.notes, note))))

    @during("reading the study")
    def gaps(self, index: int) -> pd.DataFrame:
        """The metrics of every value of one input, as in `Inspection.gaps`.

        Raises
        ------
        UsageError
            If there is no such input.
        """
        self._require(index)
        for frame in self._store.gaps():
            own = frame[frame["input"] == index]
            if len(own):
                return own.reset_index(drop=True)
        return pd.DataFrame(columns=["input", "instruction", "output", "rmse"])

    @property
    @during("reading the study")
    def kept(self) -> list[int]:
        """Numbers of the inputs that the study keeps: the worst of each operator, and of the final outputs."""
        names = self._store.kept_names()
        return sorted(index for index, name in self._contents().items() if name in names)

    def _contents(self) -> dict[int, str]:
        """The name of each input among those that are kept."""
        frames = (frame for _, frame in self._store.runs(["input", "content"]))
        return {int(index): str(name) for frame in frames for index, name in frame.itertuples(index=False)}

    def _require(self, index: Any) -> None:
        if isinstance(index, bool) or not hasattr(index, "__index__") or int(index) not in self.inputs.index:
            raise UsageError(f"there is no input {index!r}; there are {len(self.inputs)}")

    @property
    def subject(self) -> Subject:
        """The files of the program."""
        return self._store.subject()

    @during("reading the study")
    def values(self, index: int) -> list[Any]:
        """The flat arguments of an input that is kept, or that the data set still has.

        Raises
        ------
        UsageError
            If there is no such input, or it was not kept.
        ArtifactError
            If what was kept is damaged, or none of the program's inputs.
        """
        self._require(index)
        row = self.inputs.loc[int(index)]
        if row["status"] == FAILED:
            raise UsageError(f"input {index} could not be run: {row['reason']}")
        name = self._contents()[int(index)]
        kept = self._store.kept(name)
        if kept is not None:
            return self._read(kept)
        if self._source is not None and not isinstance(self._source, Iterator):
            for entry in entries(self._source, self._store.subject().takes()):
                if entry.index == index and not entry.problem and content(encode(entry.values)) == name:
                    return list(entry.values)
        raise UsageError(f"input {index} was not kept, only the worst ones are: {self.kept}")

    def _read(self, kept: Path) -> list[Any]:
        """The flat arguments in the file of an input."""
        values: list[Any] = []
        try:
            values = decode(bytes(open_artifact(kept, "an input that was kept", "study again")))
            problem = why_not(values, self._takes)
        except (LookupError, ValueError, MemoryError) as error:
            problem = str(error) or "there is not enough memory"
        if problem:
            raise ArtifactError(kept, f"it is no input of the program ({problem})", "delete it, and study again")
        return values

    @cached_property
    def _takes(self) -> list[Input]:
        return self._store.subject().takes()

    @during("reading the study")
    def summary(self) -> str:
        """Short text: how many inputs, how the outputs are, which operator and which input are worst."""
        rows = self.inputs
        failed, compared = int((rows["status"] == FAILED).sum()), rows[rows["status"] == COMPARED]
        lines = [f"{len(rows)} inputs: {len(compared)} compared, {failed} failed."]
        if len(compared):
            judged = compared["matches"].dropna()
            rest = f"; {len(compared) - len(judged)} can't be judged" if len(judged) < len(compared) else ""
            lines.append(f"The final outputs match their reference for {int(judged.sum())} of {len(judged)}{rest}.")
            for name in self._store.about().get("tasks", []):
                lines.append(
                    f"{name}: mean {compared[name].mean():.6g} over {int(compared[name].notna().sum())} inputs."
                )
            worst = self.worst(1)
            if len(worst):
                row = worst.iloc[0]
                found = f"{row['name']}, {row['metric']} {row['worst']:.3g} (input {row['worst_input']})"
                lines.append(f"Worst operator: {found}{self._judged(row)}.")
            by = _worst_by(compared)
            first = self.worst_inputs(1, by)
            if len(first):
                lines.append(f"Worst input: {first.index[0]} ({by} {first[by].iloc[0]:.3g}).")
        for reason, count in rows.loc[rows["status"] == FAILED, "reason"].value_counts().head(3).items():
            lines.append(f"{count} failed: {reason}")
        return printable("\n".join(lines))

    def _judged(self, row: pd.Series[Any]) -> str:
        """Whether precision explains a severity of `table`; nothing where that is not known."""
        if row["nonfinite"]:
            return f": NaN or Inf on one side only for {row['nonfinite']} of the inputs"
        gaps = self.gaps(row["worst_input"]).set_index(["instruction", "output"])
        at, introduced = (row["instruction"], row["output"]), row["metric"].startswith("introduced_")
        noise = float(gaps.at[at, "introduced_noise" if introduced else "noise"])
        if not math.isnan(noise):
            return _EXPLAINED if row["worst"] < NOISE_THRESHOLDS[0] else ": more than precision explains"
        nodes = (node for node in _graph(self.subject).walk() if node.instruction == row["instruction"])
        node = next(nodes, None)
        if node is None or row["output"] >= len(node.outputs):
            return ""
        meta = node.outputs[row["output"]]
        on_grid = meta.scale is not None or node.target == "delegate"  # which may choose one when it runs
        suspicious = is_suspicious(row["worst"], meta.dtype, on_grid=on_grid, introduced=introduced)
        return "" if suspicious else _EXPLAINED  # its noise could not be measured

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        return f"<Study in {one_line(self.folder)}>\n{self.summary()}"


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
    partitioner: Sequence[Any] | None = None,
    quantizer: Any = None,
    calibration: Iterable[Sequence[Any]] | None = None,
    reference: Any = None,
    strict: bool | None = None,
) -> Study:
    """Run a program over many inputs, and compare every run with its reference.

    Parameters
    ----------
    program
        A `.pte` with its record or ETRecord beside it, or the folder of one; an Inspection, whose program it is; an
        `nn.Module` or `ExportedProgram`, which is lowered as by `etviz.debug` for its first input.
    inputs
        A list, a data set, a DataLoader, a generator, or a folder of ``.npy``, ``.npz``, ``.pt`` and ``.safetensors``
        files. An item is a tensor or a tuple of the program's arguments; one value more than the program takes is the
        label. Batches are taken apart where the program takes single inputs. An item that can't be had, or that the
        program can't take, is a row of `Study.inputs` with its reason.
    executor
        Who does the work: any `concurrent.futures.Executor`, a number of processes, or ``"processes"`` for one on each
        core; None for this process, and, in a notebook or at a prompt, for one on each core as soon as more than a
        minute of work is left. A script has to ask for processes, below ``if __name__ == "__main__":``, since they run
        it once more. The program runs in a child process in any case. A Dask cluster's is ``client.get_executor()``;
        its workers must see `folder`. An executor that was given is not shut down.
    folder
        Where the study is kept: interrupted, or killed, it goes on from there when it is started again with the same
        arguments, and nothing is done twice but the chunk that was under way. None for a temporary folder.
    task
        What counts for the task: a function of the expected outputs, the runtime's outputs and the label that returns
        a number, one of ``top1``, ``top5``, ``margin``, ``kl``, ``accuracy``, a list of these, or a dict by name.
        Expected are the float model's outputs where it is known, else the reference's.
    labels
        One for each input, if the items have none.
    method
        Name of the method, ``forward`` or the only one if None.
    introduced
        Also replay every instruction on the runtime's own inputs. False takes less time, half of it in a large program.
    metrics
        As for `etviz.load`.
    chunk
        Inputs that are run together; by default as many as fill 32 MB of debug buffer, at most 32.
    timeout
        Seconds for a chunk, 600 if None.
    partitioner, quantizer, calibration, reference, strict
        To lower a model with, as for `etviz.debug`.

    Raises
    ------
    UsageError
        If an argument makes no sense, pyarrow is not installed, or `folder` holds another study or has another writer.
    ArtifactError
        If a file is missing or damaged, or the study can't be written: what is done stays.
    ExecutionError
        If the executor's workers are lost.
    """
    require_parquet()
    tasks, custom = choose_tasks(task, (*run_columns({}), *TAKEN), _TABLES), choose_metrics(metrics)
    refuse_columns("metrics", custom.names, (*gap_columns(()), *TAKEN), _TABLES)
    store = Store(folder)
    first, inputs = first_item(inputs)
    lowering = {
        "partitioner": partitioner,
        "quantizer": quantizer,
        "calibration": calibration,
        "reference": reference,
        "strict": strict,
    }
    example = arguments_of(program, first) if first is not None else None
    store.claim()
    try:
        begun = store.about()
        if begun and not isinstance(program, Inspection) and hasattr(program, "parameters"):
            subject = store.subject()  # a model is lowered once
        else:
            subject = store.adopt(subject_of(program, example, store.folder / LOWERED, method, **lowering))
        takes = subject.takes()
        digests = subject.digests()
        size = chunk or max(1, min(CHUNK, _BUFFER // max(subject.buffer_bytes, 1)))
        if size < 1:
            raise UsageError(f"chunk must be positive, found {chunk}")
        about = {
            "title": subject.title,
            "program": digests,
            "method": subject.method,
            "introduced": introduced,
            "metrics": [*_names(custom.metrics)],
            "tasks": list(tasks),
            "chunk": size,
            "noise_of": _FIRST,
        }
        store.begin(about)
        source = entries(inputs, takes, labels)
        ahead = list(islice(source, min(_FIRST, size)))
        first_samples = tuple(_sample(entry, encode(entry.values)) for entry in ahead if not entry.problem)
        made = Work(subject, digests, (), first_samples, introduced, custom.metrics, tasks, timeout)
        expected = count_of(inputs)
        pieces = max(0, -(-expected // size) - len(store.done())) if expected is not None else None
        with executor_of(executor, pieces) as (pool, width):
            _run(store, made, chain(ahead, source), size, pool, width, expected)
        _finish(store)
    finally:
        store.release()
    made = program.analysis.findings.made if isinstance(program, Inspection) else {}
    if hasattr(program, "parameters") and not isinstance(calibration, Iterator):
        made = {"model": program, **lowering}
    return Study(store, inputs, made)


def _names(custom: Sequence[Any]) -> list[str]:
    from etviz.tensors.metrics import BUILT_IN

    return [*BUILT_IN, *(metric.name for metric in custom)]


def _run(
    store: Store,
    made: Work,
    source: Iterator[Entry],
    size: int,
    pool: Executor,
    width: int,
    expected: int | None,
) -> None:
    """Have every chunk done that is not there yet; only so many are under way that workers need not wait.

    In this process, the program runs on the next chunk while one is measured. What was measured is written before
    anything else is begun, so a crash loses no more than what is under way.
    """
    chunks = _chunks(source, size, made, set(store.done()))
    with (
        tqdm(total=expected, desc="study", leave=False, delay=1, unit="input") as bar,
        _UnderWay(store, made, bar) as under_way,
        Ahead() as ahead,
    ):
        for chunk, following in _with_next(chunks):
            if chunk.work is None:
                _check_same(store, chunk)
                bar.update(len(chunk.entries))
                continue
            for each in (chunk, following) if is_here(pool) else ():
                if each is not None and each.work is not None:
                    ahead.begin(each.work)
            under_way.add(pool, chunk, chunk.work)
            under_way.take(2 * width - 1 if width > 1 else 0)
        under_way.take(0)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Inputs that are run together: their bytes by number, and the work that they are; None if it is done already."""

    number: int
    entries: list[Entry]
    data: dict[int, bytes]
    work: Work | None


class _UnderWay:
    """Chunks that were handed out; those that are not begun yet end with it."""

    def __init__(self, store: Store, made: Work, bar: tqdm[Any]) -> None:
        self._store, self._made, self._bar = store, made, bar
        self._keeper = _Keeper(store)
        self._measured: dict[Future[Measured], _Chunk] = {}

    def __enter__(self) -> _UnderWay:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._measured:
            future.cancel()

    def add(self, pool: Executor, chunk: _Chunk, work: Work) -> None:
        """Hand a chunk out."""
        try:
            self._measured[pool.submit(measure, work)] = chunk
        except (BrokenProcessPool, RuntimeError) as error:
            raise _lost(self._store, error) from error

    def take(self, most: int) -> None:
        """Have those written that are measured, until there are so many at most."""
        while self._measured:
            finished = [future for future in self._measured if future.done()]
            if not finished and len(self._measured) <= most:
                return
            for future in finished or wait(self._measured, return_when=FIRST_COMPLETED).done:
                chunk, found = self._measured.pop(future), _result(future)
                _keep(self._store, self._keeper, self._made, chunk, found)
                self._bar.update(len(chunk.entries))


def _sample(entry: Entry, data: bytes) -> Sample:
    return Sample(entry.index, entry.name, data, entry.label)


def _result(future: Future[Measured]) -> Measured:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise _lost(None, error) from error


def _lost(store: Store | None, error: Exception) -> ExecutionError:
    where = f" ({store.folder})" if store is not None else ""
    hint = f". {GUARD}" if runs_a_script() else ""
    return ExecutionError(
        f"A worker was lost ({one_line(error).rstrip('.')}). What was done is kept{where}: start the study again with "
        f"the same folder={hint}"
    )


def _chunks(source: Iterator[Entry], size: int, made: Work, done: Collection[int]) -> Iterator[_Chunk]:
    number = -1
    while found := list(islice(source, size)):
        number += 1
        data = {entry.index: encode(entry.values) for entry in found if not entry.problem}
        samples = tuple(_sample(entry, data[entry.index]) for entry in found if not entry.problem)
        yield _Chunk(number, found, data, replace(made, samples=samples) if number not in done else None)


def _with_next(chunks: Iterator[_Chunk]) -> Iterator[tuple[_Chunk, _Chunk | None]]:
    """Each chunk and the one after it; what goes wrong with that is raised when the first one is done."""
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


def _check_same(store: Store, chunk: _Chunk) -> None:
    """Refuse to go on with other inputs than those that a chunk was done with."""
    data = chunk.data
    known = store.table(f"runs/{chunk.number:06}.parquet")
    before = dict(zip(known["input"], known["content"], strict=True))
    for entry in chunk.entries:
        now = content(data[entry.index]) if entry.index in data else ""
        then = before.get(entry.index)
        if entry.index not in before or (then and now != then) or (now and then == ""):
            raise UsageError(
                f"input {entry.index} is not the one that the study in {store.folder} was begun with; "
                "give it the same inputs in the same order, or another folder"
            )
    if len(known) > len(chunk.entries):
        raise UsageError(f"the study in {store.folder} was begun with more inputs; give it the same, or another folder")


def _keep(store: Store, keeper: _Keeper, made: Work, chunk: _Chunk, found: Measured) -> None:
    """Put a chunk into the folder."""
    number, data = chunk.number, chunk.data
    refused = [failure(entry.index, entry.name, entry.problem) for entry in chunk.entries if entry.problem]
    rows: list[dict[str, Any]] = sorted([*found.runs, *refused], key=lambda row: row["input"])
    contents = {index: content(item) for index, item in data.items()}
    runs = _run_table([row | {"content": contents.get(row["input"], "")} for row in rows], run_columns(made.tasks))
    if number == 0 or not (store.folder / "operators.parquet").is_file():
        store.put(_columns(_operators(made.subject)), "operators.parquet")
    keeper.offer(found.gaps, runs, contents, data)
    store.put_chunk(number, found.gaps, runs)


def _run_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    texts, whole = {"name", "status", "reason", "content"}, {"input": -1, "compared": 0, "nonfinite": 0}
    whole["worst_instruction"] = -1

    def column(name: str) -> npt.NDArray[Any]:
        if name in texts:
            return np.array([str(row.get(name, "")) for row in rows], object)
        if name == "matches":
            return np.array([row.get(name) for row in rows], object)
        kind = np.int64 if name in whole else np.float64
        return np.array([row.get(name, whole.get(name, NAN)) for row in rows], kind)

    return {name: column(name) for name in names}


def _columns(frame: pd.DataFrame) -> dict[str, Any]:
    """The columns of a table, by name."""
    return {str(name): frame[name].to_numpy() for name in frame}


def _operators(subject: Subject) -> pd.DataFrame:
    """A row for each output of each instruction: what it is called, and where it comes from."""
    graph = _graph(subject)
    owners = owners_of(graph)
    rows = []
    for node in graph.walk():
        if node.instruction < 0:
            continue
        for output in range(max(len(node.outputs), 1)):
            about = describe(owners.get(node.instruction, graph), node, output)
            about["name"] = row_name(about["kind"], about["op"], about["reference_ops"], about["module"], output)
            rows.append({"instruction": node.instruction, "output": output} | about)
    frame = pd.DataFrame(rows, columns=[*_IDENTITY, "name"])
    return frame.sort_values(["instruction", "output"], ignore_index=True)


def _graph(subject: Subject) -> Graph:
    """The graph with the instructions."""
    from etviz.artifacts.program.program import read_program
    from etviz.artifacts.record.etrecord import ETRecord
    from etviz.artifacts.record.record_file import read_record
    from etviz.pairing.derive import derive
    from etviz.pairing.rebuild import InconsistentError, rebuild
    from etviz.pairing.skeleton import skeleton

    if "record" in subject.files:
        return read_record(subject.files["record"]).graphs[subject.method]
    program, etrecord = read_program(subject.pte), ETRecord(subject.files["etrecord"])
    edge, handles = etrecord.edge_graph(subject.method), etrecord.debug_handles(subject.method)
    plan = program.method(subject.method)
    try:
        return rebuild(plan, edge, derive(plan, edge, handles))
    except InconsistentError:
        return skeleton(subject.method, program, [], edge, handles, etrecord.backends(subject.method))


class _Keeper:
    """Keeps the inputs that are worst so far: of every operator, and of the final outputs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._best: dict[tuple[Any, ...], tuple[float, int, str]] = {}
        for (_, runs), gaps in zip(store.runs(), store.gaps(), strict=True):
            contents = dict(zip(runs["input"], runs["content"], strict=True))
            self._judge(_columns(gaps), _columns(runs), contents)
        self._prune()

    def offer(self, gaps: _Table, runs: _Table, contents: Mapping[int, str], data: Mapping[int, bytes]) -> None:
        """Keep those of a chunk that are worse than all before, and let go of those that these replace."""
        self._judge(gaps, runs, contents)
        names = {name for _, _, name in self._best.values()}
        for index, name in contents.items():
            if name in names:
                self._store.keep(name, data[index])
        self._prune()

    def _prune(self) -> None:
        names = {name for _, _, name in self._best.values()}
        for name in self._store.kept_names() - names:
            self._store.drop(name)

    def _judge(self, gaps: _Table, runs: _Table, contents: Mapping[int, str]) -> None:
        mismatched = gaps["status"] == MISMATCH
        for name in (name for name in WORST_BY if name in gaps):
            badness = np.where(mismatched, math.inf, gaps[name])
            order = np.lexsort((gaps["input"], -badness, gaps["output"], gaps["instruction"]))  # NaN come last
            keys = np.stack([gaps["instruction"][order], gaps["output"][order]], 1)
            first = order[np.r_[True, (keys[1:] != keys[:-1]).any(1)]] if len(order) else order
            for at in first.tolist():
                key = int(gaps["instruction"][at]), int(gaps["output"][at]), name
                self._take(key, float(badness[at]), int(gaps["input"][at]), contents)
        for name in runs:
            if str(name).startswith(("output_", "float_")):
                higher = _higher(str(name).partition("_")[2])
                for index, value in zip(runs["input"].tolist(), runs[name].tolist(), strict=True):
                    self._take((name,), -value if higher else value, index, contents)
        known = {*("input", "name", "status", "reason", "content", "compared", "nonfinite", "matches")}
        known |= {"worst_instruction", "worst_introduced_severity"}
        for name in runs:  # task metrics: both ends are worth a look
            if name not in known and not str(name).startswith(("output_", "float_")):
                for index, value in zip(runs["input"].tolist(), runs[name].tolist(), strict=True):
                    self._take((name, "low"), -value, index, contents)
                    self._take((name, "high"), value, index, contents)

    def _take(self, key: tuple[Any, ...], badness: float, index: int, contents: Mapping[int, str]) -> None:
        if math.isnan(badness) or not contents.get(index):
            return
        held = self._best.get(key)
        if held is None or (badness, -index) > (held[0], -held[1]):
            self._best[key] = badness, index, contents[index]


def _worst_by(rows: pd.DataFrame) -> str:
    """The column of `Study.inputs` that says which input is worst."""
    return "float_rmse" if "float_rmse" in rows and rows["float_rmse"].notna().any() else "output_severity"


def _ranked(rows: pd.DataFrame, by: str, higher_is_better: bool) -> pd.DataFrame:
    """Worst first; those with NaN or Inf on one side only before all others."""
    order = rows.assign(_bad=rows["nonfinite"] > 0)
    order = order.sort_values(["_bad", by], ascending=[False, higher_is_better], kind="stable")
    return order.drop(columns="_bad")


def _finish(store: Store) -> None:
    if store.done():
        store.put(_columns(Study(store).table), "table.parquet")


def _higher(name: str) -> bool:
    metric = METRICS.get(name.removeprefix("introduced_"))
    return metric.higher_is_better if metric is not None else False


def _describe(
    keys: npt.NDArray[np.int64], numbers: npt.NDArray[np.float64], bad: npt.NDArray[np.bool_], name: str
) -> dict[str, float | int]:
    """Statistics of one metric of one value over the inputs."""
    known = ~np.isnan(numbers)
    own: npt.NDArray[np.float64] = np.sort(numbers[known])
    count = len(own)
    worst, at = NAN, -1
    if count:
        worst = float(own[0] if _higher(name) else own[-1])
        at = int(keys[known & (numbers == worst)].min())
    if bad.any():
        at = int(keys[bad].min())
    with np.errstate(invalid="ignore"):
        mean = float(np.sum(own) / count) if count else NAN
    return {
        "inputs": count,
        "mean": mean,
        "min": float(own[0]) if count else NAN,
        "p50": _quantile(own, 0.5),
        "p99": _quantile(own, 0.99),
        "max": float(own[-1]) if count else NAN,
        "worst": worst,
        "worst_input": at,
        "nonfinite": int(bad.sum()),
    }


def _quantile(ordered: npt.NDArray[np.float64], share: float) -> float:
    """By nearest rank: the smallest value that at least `share` of them do not exceed."""
    return float(ordered[max(math.ceil(share * len(ordered)) - 1, 0)]) if len(ordered) else NAN


__all__ = ["Study", "study"]
