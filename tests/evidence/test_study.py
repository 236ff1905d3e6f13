"""A study over inputs: its statistics are those of single runs, failures are rows, and its folder survives anything."""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock

import etviz
from etviz.comparison import judging
from etviz.demo.digits import DigitsNet, load_digits
from etviz.demo.planted import plant
from etviz.errors import ArtifactError, UsageError
from etviz.evaluation import noise
from etviz.evidence import measuring
from etviz.evidence.dataset import decode, encode
from etviz.evidence.measuring import Measured
from etviz.evidence.running import Ran, Running
from tests.programs import Executed

Get = Callable[[str], Executed]


def _images(count: int) -> list[tuple[torch.Tensor, int]]:
    digits = load_digits()
    return [(digits.test_images[at : at + 1], int(digits.test_labels[at])) for at in range(count)]


@pytest.fixture(scope="module")
def studied(executed: Get, tmp_path_factory: pytest.TempPathFactory) -> etviz.Study:
    """Nine images in chunks of four; the third one has the wrong shape, the sixth can't be had."""
    images: list[Any] = _images(9)
    images[2] = (torch.zeros(1, 1, 9, 8), 0)

    class Images:
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, at: int) -> Any:
            if at == 5:
                raise OSError("no such image")
            return images[at]

    folder = tmp_path_factory.mktemp("study")
    return etviz.study(
        executed("digits_int8").folder, Images(), folder=folder, chunk=4, task=["top1", "accuracy", "margin", "kl"]
    )


def _draws(measured: list[tuple[Any, ...]]) -> dict[int, list[float]]:
    """By instruction: the noise of its first output on each input, with twelve series of random numbers."""
    found: dict[int, list[float]] = defaultdict(list)
    for series in range(12):
        for fresh, (given,), wanted in measured:
            start, names = fresh(), {name for _, name in wanted}
            at, samples = {node.name: node.instruction for node in start.graph.nodes}, noise.Samples(names)
            for seeds in noise.batches(start.graph, names):
                lanes = noise.Lanes(start, [1000 * (series + 1) + seed for seed in seeds])
                samples.run(lanes, partial(lanes.run, given))
            for (name, output), (first, last) in samples.values.items():
                if not output:
                    found[at[name]].append(noise.larger(first.noise, last.noise))
    return found


def test_every_number_is_that_of_a_single_run(
    studied: etviz.Study, executed: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etviz.pipeline.execute import execute

    program, values = executed("digits_int8"), {}
    learned: dict[int, list[float]] = defaultdict(list)
    measured: list[tuple[Any, ...]] = []

    def watched(fresh: Any, inputs: Any, wanted: Any, *given: Any) -> Any:
        measured.append((fresh, inputs, list(wanted)))
        return noise.total_noise(fresh, inputs, wanted, *given)

    monkeypatch.setattr(judging, "total_noise", watched)
    for index in (0, 1, 3, 4, 6, 7, 8):
        image = _images(9)[index][0]
        run = execute(program.path("pte"), [[image]], workdir=tmp_path / str(index))
        own = program.load(etdump=run.etdump, debug_buffer=run.debug_buffer, inputs=(image,))
        values[index] = own.gaps.set_index(["instruction", "output"])
        known = studied.gaps(index).set_index(["instruction", "output"])
        exact = [name for name in etviz.metrics if name != "severity"]
        for name in [*exact, "introduced_rmse", "introduced_severity", "introduced_noise"]:
            np.testing.assert_array_equal(known[name], values[index][name], err_msg=name)
        # the noise of total gaps is that of the first inputs, in roundings of this one
        np.testing.assert_array_equal(known["noise"].isna(), values[index]["noise"].isna())
        many = known.index.get_level_values("output") == 0  # mean and rstd are single numbers
        own = values[index].loc[many, "noise"]
        assert (np.log2(known.loc[many, "noise"] / own).dropna() >= -1).all()
        for (instruction, _), value in known.loc[many, "noise"].dropna().items():
            learned[instruction].append(value)
        cheap = known["noise"].isna()
        np.testing.assert_array_equal(known.loc[cheap, "severity"], values[index].loc[cheap, "severity"])
        assert (known.loc[~cheap, "severity"] <= known.loc[~cheap, "rmse"] / known.loc[~cheap, "noise"] * 1.001).all()
    # what changes a step of the second int8 grid grows behind it: noise is 0.01 to 1.2 there, by the random numbers
    drawn = _draws(measured)
    for instruction, own in learned.items():
        assert min(drawn[instruction]) / 2 <= min(own) <= max(own) <= 2 * max(drawn[instruction])
    assert max(drawn[1]) <= 4 * min(drawn[1])
    table = studied.table
    for metric in ("rmse", "sqnr_db", "introduced_severity"):
        rows = table[table["metric"] == metric].set_index(["instruction", "output"])
        assert len(rows) == len(values[0])
        for key, row in rows.iterrows():
            column = pd.Series({index: frame.loc[key, metric] for index, frame in values.items()}).sort_values()
            assert row["inputs"] == 7
            assert row["mean"] == pytest.approx(column.mean(), rel=1e-12)
            assert row["p50"] == column.iloc[math.ceil(0.5 * 7) - 1]
            assert row["p99"] == row["max"] == column.iloc[-1]
            assert row["worst"] == (column.iloc[0] if metric == "sqnr_db" else column.iloc[-1])
            assert row["worst_input"] == min(column[column == row["worst"]].index)


def test_a_bad_input_is_a_row_with_its_reason(studied: etviz.Study) -> None:
    rows = studied.inputs
    assert len(rows) == len(studied) == 9
    assert list(rows.index[rows["status"] == "failed"]) == [2, 5]
    assert "(1, 1, 8, 8), found (1, 1, 9, 8)" in str(rows.loc[2, "reason"])
    assert "OSError: no such image" in str(rows.loc[5, "reason"])
    assert rows.loc[[2, 5], "output_rmse"].isna().all()
    assert "9 inputs: 7 compared, 2 failed" in studied.summary()


def test_the_summary_says_whether_precision_explains_the_worst_operator(
    studied: etviz.Study, executed: Get, tmp_path: Path
) -> None:
    assert ": precision explains it.\n" in studied.summary()
    program = executed("digits_int8")
    plant(cast("DigitsNet", program.model), program.path("pte"), tmp_path / "model.pte")
    shutil.copy(program.path("etrecord"), tmp_path)
    text = etviz.study(tmp_path, [image for image, _ in _images(4)]).summary()
    assert "Worst operator: head · linear +1, introduced_severity" in text
    assert ": more than precision explains.\n" in text


@pytest.mark.parametrize("name", ["content", "output_rmse", "matches", "metric"])
def test_a_task_is_not_named_like_a_column(executed: Get, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is a column of a study's tables already"):
        etviz.study(executed("digits_int8").folder, _images(1), task={name: lambda *_: 1.0})


def test_a_chunk_of_nothing_but_bad_inputs_is_a_chunk(executed: Get) -> None:
    """The second image has another shape, the third can't be read by the runtime, the fourth repeats one row."""
    (image, _), (repeated, _) = _images(2)
    expanded = repeated[..., :1, :].expand(1, 1, 8, 8)
    inputs = [(image,), (torch.zeros(1, 1, 9, 8),), (image.transpose(2, 3),), (expanded,)]
    study = etviz.study(executed("digits_int8").folder, inputs, chunk=1)
    assert list(study.inputs["status"]) == ["compared", "failed", "failed", "compared"]
    assert "contiguous or channels-last" in str(study.inputs.loc[2, "reason"])
    assert torch.equal(study.values(3)[0], expanded)
    assert len(study.gaps(2)) == 0 < len(study.gaps(0)) == len(study.gaps(3))


def test_task_metrics_are_those_of_the_outputs(studied: etviz.Study, executed: Get) -> None:
    from etviz.pipeline.execute import execute

    model = executed("digits_int8").model
    for index in (0, 8):
        image, label = _images(9)[index]
        (found,) = execute(executed("digits_int8").path("pte"), [[image]]).outputs[0]
        with torch.no_grad():
            expected = model(image)
        row = studied.inputs.loc[index]
        assert row["top1"] == float(expected.argmax() == found.argmax())
        assert row["accuracy"] == float(found.argmax() == label)
        best, second = found.flatten().double().sort(descending=True).values[:2]
        assert row["margin"] == pytest.approx(float(best - second))
        p, q = expected.double().log_softmax(-1), found.double().log_softmax(-1)
        assert row["kl"] == pytest.approx(float((p.exp() * (p - q)).sum()), abs=1e-6)
        assert row["float_rmse"] == pytest.approx(float((found - expected).pow(2).mean().sqrt()), rel=1e-4)


def test_the_worst_inputs_open_again(studied: etviz.Study) -> None:
    index = int(studied.worst(1)["worst_input"].iloc[0])
    assert index in studied.kept
    inspection = studied.open_input(index)
    again = inspection.gaps.set_index(["instruction", "output"])["introduced_severity"]
    then = studied.gaps(index).set_index(["instruction", "output"])["introduced_severity"]
    np.testing.assert_array_equal(again, then)
    assert not any("deterministic" in note for note in inspection.analysis.digest.notes)
    worst = studied.worst_inputs(1, "margin").index[0]
    assert studied.inputs["margin"].min() == studied.inputs.loc[worst, "margin"]
    with pytest.raises(UsageError, match="could not be run"):
        studied.open_input(2)
    with pytest.raises(UsageError, match="there is no input 77"):
        studied.open_input(77)


def test_the_folder_is_readable_without_etviz(studied: etviz.Study) -> None:
    table = pd.read_parquet(studied.folder / "table.parquet")
    pd.testing.assert_frame_equal(table, studied.table)
    gaps = pd.concat(map(pd.read_parquet, sorted((studied.folder / "gaps").glob("*.parquet"))))
    assert set(gaps["input"]) == {0, 1, 3, 4, 6, 7, 8}
    again = etviz.Study.open(studied.folder)
    pd.testing.assert_frame_equal(again.table, studied.table)
    pd.testing.assert_frame_equal(again.inputs, studied.inputs)
    assert again.open_input(again.kept[0]).gaps.shape[0] > 0


def _same(a: etviz.Study, b: etviz.Study) -> None:
    pd.testing.assert_frame_equal(a.table, b.table, check_exact=True)
    pd.testing.assert_frame_equal(a.inputs, b.inputs, check_exact=True)
    assert a.kept == b.kept


def test_a_study_goes_on_where_it_stopped_and_does_nothing_twice(executed: Get, tmp_path: Path) -> None:
    program, images = executed("digits_int8").folder, [image for image, _ in _images(6)]

    def broken() -> Iterator[torch.Tensor]:
        yield from images[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        etviz.study(program, broken(), folder=tmp_path / "a", chunk=2)
    half = etviz.Study.open(tmp_path / "a")
    assert len(half) == 2
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "a" / "runs").iterdir()}
    resumed = etviz.study(program, iter(images), folder=tmp_path / "a", chunk=2)
    assert all(path.stat().st_mtime_ns == before for path, before in done.items())
    _same(resumed, etviz.study(program, images, folder=tmp_path / "b", chunk=2))
    with pytest.raises(UsageError, match="input 1 is not the input"):
        etviz.study(program, [images[0], *images[2:]], folder=tmp_path / "a", chunk=2)
    with pytest.raises(UsageError, match="holds another study"):
        etviz.study(program, images, folder=tmp_path / "a", chunk=3)
    with pytest.raises(UsageError, match="holds another study"):
        etviz.study(executed("plain_cnn").folder, images, folder=tmp_path / "a", chunk=2)


def test_an_interrupt_ends_what_runs_ahead(executed: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the second of four chunks is measured, the third one runs already; nothing of it is left behind."""
    program, images = executed("digits_int8").folder, [image for image, _ in _images(8)]
    measured, run, folders = measuring._measure, Running.run, list[str]()  # pyright: ignore[reportPrivateUsage]
    third = threading.Event()

    def noted(*arguments: Any) -> Ran:
        ran = run(*arguments)
        folders.append(ran.folder.name)
        if len(folders) == 3:
            third.set()
        return ran

    def interrupted(opened: Any, work: Any, samples: Any, ran: Ran) -> Measured:
        if samples[0].index == 2:
            assert third.wait(60)
            raise KeyboardInterrupt
        return measured(opened, work, samples, ran)

    monkeypatch.setattr(Running, "run", noted)
    monkeypatch.setattr(measuring, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        etviz.study(program, images, folder=tmp_path / "a", chunk=2)
    monkeypatch.undo()
    assert len(folders) == 3
    assert not any(Path(name).exists() for name in folders)
    assert list(etviz.Study.open(tmp_path / "a").inputs.index) == [0, 1]
    resumed = etviz.study(program, images, folder=tmp_path / "a", chunk=2)
    _same(resumed, etviz.study(program, images, folder=tmp_path / "b", chunk=2, executor=_Recorded({})))


class _Recorded(Executor):
    """Hands out what chunks gave before, so that only the writing is left to do."""

    def __init__(self, recorded: dict[int, Measured]) -> None:
        self.recorded = recorded

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        first = args[0].samples[0].index
        if first not in self.recorded:
            self.recorded[first] = fn(*args, **kwargs)
        future.set_result(self.recorded[first])
        return future


def test_killed_at_every_point_it_loses_only_what_was_under_way(executed: Get, tmp_path: Path) -> None:
    """The writer is killed as it puts the k-th file in its place; whoever starts again ends with the same study."""
    program, images = executed("digits_int8").folder, [image for image, _ in _images(2)]
    executor = _Recorded({})

    def study(folder: Path) -> etviz.Study:
        return etviz.study(program, images, folder=folder, chunk=1, executor=executor)

    def write(folder: Path, at: int) -> None:
        replace, count = Path.replace, 0

        def killing(path: Path, target: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return replace(path, target)

        Path.replace = killing  # type: ignore[method-assign]
        study(folder)

    whole = study(tmp_path / "whole")
    context, killed = multiprocessing.get_context("fork"), 0
    for at in range(1, 40):
        folder = tmp_path / str(at)
        process = context.Process(target=write, args=(folder, at))
        process.start()
        process.join(60)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        killed += 1
        if (folder / "study.json").is_file() and list((folder / "runs").glob("*.parquet")):
            half = etviz.Study.open(folder)
            assert len(half) <= len(list((folder / "gaps").glob("*.parquet"))) <= len(half) + 1
            assert half.inputs["output_rmse"].tolist() == whole.inputs["output_rmse"].tolist()[: len(half)]
        _same(study(folder), whole)
    assert killed > 10


def test_two_writers_are_refused(executed: Get, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    with FileLock(tmp_path / "s" / ".lock"), pytest.raises(UsageError, match="another process writes"):
        etviz.study(executed("digits_int8").folder, [_images(1)[0]], folder=tmp_path / "s")


def test_a_full_disk_stops_with_what_is_done_intact(
    executed: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etviz.evidence.store import Store

    images, put = [image for image, _ in _images(3)], Store.put

    def full(store: Store, frame: pd.DataFrame, name: str) -> None:
        if name == "gaps/000001.parquet":
            monkeypatch.setattr("pyarrow.parquet.write_table", _no_space)
        put(store, frame, name)

    monkeypatch.setattr(Store, "put", full)
    with pytest.raises(ArtifactError, match="No space left"):
        etviz.study(executed("digits_int8").folder, images, folder=tmp_path, chunk=1)
    monkeypatch.undo()
    assert list(etviz.Study.open(tmp_path).inputs.index) == [0]


def _no_space(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_inputs_of_every_kind(executed: Get, tmp_path: Path) -> None:
    program = executed("digits_int8").folder
    images = load_digits().test_images[:4]
    (tmp_path / "files").mkdir()
    for at, image in enumerate(images):
        np.save(tmp_path / "files" / f"{at}.npy", image[None].numpy())
    (tmp_path / "files" / "9.pt").write_bytes(b"nothing")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, torch.arange(4)), batch_size=3)
    studies = {
        "folder": etviz.study(program, tmp_path / "files"),
        "loader": etviz.study(program, loader, task="accuracy"),
        "generator": etviz.study(program, (image[None] for image in images)),
    }
    expected = studies["generator"].inputs["output_rmse"]
    assert len(expected) == 4
    for name, study in studies.items():
        np.testing.assert_array_equal(study.inputs["output_rmse"][:4], expected, err_msg=name)
    assert studies["folder"].inputs["name"].tolist() == ["0.npy", "1.npy", "2.npy", "3.npy", "9.pt"]
    assert studies["folder"].inputs["status"].iloc[4] == "failed"
    assert set(studies["loader"].inputs["accuracy"]) <= {0.0, 1.0}


def test_a_program_with_a_state_starts_afresh_for_every_input(executed: Get) -> None:
    program = executed("counter")
    study = etviz.study(program.folder, [program.inputs] * 3)
    assert study.inputs["matches"].all()
    assert study.inputs["output_rmse"].nunique() == 1
    with pytest.raises(UsageError, match="task: the program has a state, and each input of a study starts from"):
        etviz.study(program.folder, [program.inputs], task="margin")
    first = program.inspection.gaps.set_index(["instruction", "output"])["rmse"]
    np.testing.assert_array_equal(study.gaps(2).set_index(["instruction", "output"])["rmse"], first)


def test_branches_and_values_that_are_not_finite(executed: Get) -> None:
    taken = etviz.study(
        executed("branches").folder, [(torch.tensor(flag), torch.randn(3, 4)) for flag in (True, False, True)]
    )
    counts = taken.table[taken.table["metric"] == "rmse"].groupby("op")["inputs"].sum()
    assert counts["aten::sin.out"] == 2
    assert counts["aten::cos.out"] == 1
    poisoned = etviz.study(executed("poisoned").folder, [(torch.zeros(1, 4),), executed("poisoned").inputs])
    worst = poisoned.worst(1).iloc[0]
    assert worst["nonfinite"] == 1
    assert worst["worst_input"] == 1


def test_a_model_is_lowered_and_an_inspection_studied(executed: Get, tmp_path: Path) -> None:
    program = executed("plain_cnn")
    inputs = [(torch.randn(2, 3, 8, 8),) for _ in range(2)]
    a = etviz.study(program.model, inputs, folder=tmp_path)
    b = etviz.study(program.inspection, inputs)
    np.testing.assert_array_equal(a.inputs["output_rmse"], b.inputs["output_rmse"])
    assert a.inputs["matches"].all()


def test_what_makes_no_sense_is_refused(executed: Get, tmp_path: Path) -> None:
    program = executed("digits_int8").folder
    for wrong in (
        {"executor": 0},
        {"executor": "threads"},
        {"task": "speed"},
        {"chunk": -1},
        {"chunk": 0},
        {"chunk": 2.5},
        {"partitioner": []},
    ):
        with pytest.raises(UsageError):
            etviz.study(program, [_images(1)[0]], **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="inputs must be"):
        etviz.study(program, 7)
    with pytest.raises(ArtifactError):
        etviz.study(tmp_path, [_images(1)[0]])
    with pytest.raises(ArtifactError):
        etviz.Study.open(tmp_path)
    (tmp_path / "only").mkdir()
    shutil.copy(executed("digits_int8").path("pte"), tmp_path / "only" / "model.pte")
    with pytest.raises(UsageError, match="no reference"):
        etviz.study(tmp_path / "only", [_images(1)[0]])


def test_inputs_cross_whole() -> None:
    values = [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), 3, True, 2.5, None, torch.arange(3)]
    again = decode(encode(values))
    assert again[1:5] == values[1:5]
    assert again[0].stride() == values[0].stride()
    assert torch.equal(again[0], values[0])
    assert torch.equal(again[5], values[5])
