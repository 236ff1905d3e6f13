"""From a model to files: values of every type are kept, and what an open Inspection reads is never written to."""

from __future__ import annotations

import contextlib
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch import Tensor, nn
from torch.export import ExportedProgram
from tqdm.auto import tqdm

import etviz
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import LoweringError
from tests.programs import FILES, Encoder, Executed


class HalfEnding(nn.Module):
    """Its last values, which the ETDump does not describe, lie behind the last one that it does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 512)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(x + torch.relu(self.first(x)))
        return torch.softmax(self.last(x), -1), (x.float() * 2).sum(-1).half()


@pytest.mark.parametrize("rows", [3, 32], ids=["smaller than the least buffer", "larger"])
def test_values_in_half_precision_are_all_there(rows: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    inspection = etviz.debug(HalfEnding().half().eval(), (torch.randn(rows, 64).half(),), workdir=tmp_path)
    assert set(inspection.coverage["status"]) == {"compared"}
    assert {"float16", "float32"} <= set(inspection.gaps["dtype"])
    assert inspection.gaps["rmse"].max() < 0.01
    assert inspection.outputs["rmse"].notna().all()


def test_a_second_run_into_the_folder_leaves_an_open_inspection_as_it_was(tmp_path: Path) -> None:
    """Its weights, its program and its values are mapped from files that the second run replaces."""
    inputs = (torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(1)),)

    def run(seed: int) -> etviz.Inspection:
        torch.manual_seed(seed)
        return etviz.debug(Encoder().eval(), inputs, partitioner=[XnnpackPartitioner()], workdir=tmp_path / "same")

    inspection = run(0)
    copied = shutil.copytree(tmp_path / "same", tmp_path / "other")
    files: dict[str, Any] = {kind: copied / FILES[kind] for kind in FILES if kind not in ("etdump", "timing")}
    expected = etviz.load(copied / FILES["etdump"], **files)
    before = {path.name: path.stat().st_ino for path in (tmp_path / "same").iterdir()}
    with contextlib.ExitStack() as held:  # or the numbers of files that are gone would be given again
        for name in before:
            held.enter_context((tmp_path / "same" / name).open("rb"))
        second = run(1)
    after = {path.name: path.stat().st_ino for path in (tmp_path / "same").iterdir()}
    assert before.keys() == after.keys() == {*before}
    assert not set(before.values()) & set(after.values())
    pd.testing.assert_frame_equal(inspection.attribution(), expected.attribution())
    assert not inspection.attribution().equals(second.attribution())
    for row in inspection.gaps.index:
        for ours, theirs in zip(inspection.tensors(row), expected.tensors(row), strict=True):
            assert torch.equal(ours, theirs)
    delegate = inspection.gaps.index[inspection.gaps["kind"] == "delegate"][0]
    assert inspection.zoom(delegate).faithful


def test_files_that_are_not_whole_yet_are_for_their_owners_eyes(
    executed: Callable[[str], Executed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    workdir, modes = tmp_path / "kept", []

    def look(done: int) -> None:
        folders = [*(tmp_path / "temporary").iterdir(), *workdir.iterdir()]
        modes.append([stat.S_IMODE(path.stat().st_mode) for path in folders])

    execute(executed("counter").path("pte"), [[torch.zeros(3, 4)]], workdir=workdir, progress=look)
    assert modes == [[0o700, 0o700]]


def test_the_bar_is_full_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook shows one that is not in red, and for good."""
    bars: list[tqdm[Any]] = []

    class Kept(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            bars.append(self)

    monkeypatch.setattr("etviz.pipeline.lower.tqdm", Kept)
    etviz.debug(torch.nn.ReLU(), (torch.randn(3),), workdir=tmp_path)
    assert [(bar.n, bar.total) for bar in bars] == [(4, 4)]


class _Refusing(Partitioner):
    """Fails as upstream's pass managers do: the outer error only says where."""

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        try:
            raise KeyError("no scale for conv2d_3")
        except KeyError as error:
            raise RuntimeError("An error occurred when running the 'ConvertToLinear' pass") from error


def test_the_cause_of_a_failed_lowering_is_shown(tmp_path: Path) -> None:
    with pytest.raises(
        LoweringError, match=r"when running the 'ConvertToLinear' pass.*KeyError: 'no scale for conv2d_3'"
    ):
        etviz.debug(torch.nn.Linear(2, 2), (torch.randn(1, 2),), partitioner=[_Refusing()], workdir=tmp_path)


class _Halved(nn.Module):
    """Overwrites one part of a split, which autograd refuses, and inference does not."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.line(x).split(4, -1)
        first.mul_(2.0)
        return first + second


@pytest.mark.parametrize("strict", [True, False])
def test_what_autograd_alone_refuses_is_exported_without_gradients(*, strict: bool, tmp_path: Path) -> None:
    model, x = _Halved(), torch.randn(2, 8)
    found = etviz.debug(model, (x,), strict=strict, workdir=tmp_path)
    assert found.first_divergence is None
    with torch.no_grad():
        torch.testing.assert_close(found.run_outputs[0][0], model(x))


class _Counting(nn.Module):
    """Writes to a tensor that a Python object holds, which is a buffer too if it is registered."""

    def __init__(self, *, registered: bool) -> None:
        super().__init__()
        self.held = [torch.zeros(1)]
        if registered:
            self.register_buffer("count", self.held[0])

    def forward(self, x: Tensor) -> Tensor:
        self.held[0].add_(1)
        return x + self.held[0]


@pytest.mark.parametrize(
    ("registered", "what"),
    [
        (False, r"a call overwrites lifted_tensor_0, so the model must have it as a buffer: self\.register_buffer\("),
        (
            True,
            r"one tensor as the buffer count and as lifted_tensor_0, .*export it with strict=True",
        ),
    ],
)
def test_state_that_is_not_followed_is_named_with_what_to_do(registered: bool, what: str, tmp_path: Path) -> None:
    model, x = _Counting(registered=registered), torch.randn(2)
    for given in (model, torch.export.export(model, (x,), strict=False)):
        with pytest.raises(LoweringError, match=rf"(?s)^The model could not be lowered: .*What to do: .*{what}"):
            etviz.debug(given, (x,), strict=False, workdir=tmp_path)
    if registered:
        assert etviz.debug(model, (x,), workdir=tmp_path).first_divergence is None
