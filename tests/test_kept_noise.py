"""Noise of large programs is kept: another load has the same table, and evaluates nothing twice."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn

import etviz
from etviz.artifacts.known_files import state_folder
from etviz.evaluation.dynamic_quantization import steps
from etviz.evaluation.law import noise_of
from etviz.evaluation.noise import Lanes
from etviz.graph.ir import Graph, Node
from tests.numerics.test_dynamic_grids import Normed, ran
from tests.programs import FILES, Executed
from tests.shelf import Shelf

Make = Callable[[str], Executed]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the noise, on a machine that takes every program for a large one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("etviz.evaluation.threads.SMALL", 0)
    before, etviz.options.isolation = etviz.options.isolation, "never"
    yield tmp_path / "state" / "etviz" / "noise"
    etviz.options.isolation = before


@pytest.fixture
def in_lanes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that were evaluated with perturbed values beside them."""
    names: list[str] = []
    plain = vars(Lanes)["_in_lanes"]

    def noted(lanes: Lanes, graph: Graph, node: Node, *rest: Any) -> Any:
        names.append(node.name)
        return plain(lanes, graph, node, *rest)

    monkeypatch.setattr(Lanes, "_in_lanes", noted)
    return names


@pytest.fixture
def laws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators whose noise on the runtime's values was computed."""
    names: list[str] = []

    def noted(call: Any, node: Node, *rest: Any) -> Any:
        names.append(node.name)
        return noise_of(call, node, *rest)

    for module in ("evaluator", "law"):
        monkeypatch.setattr(f"etviz.evaluation.{module}.noise_of", noted)
    return names


@pytest.mark.parametrize("name", ["encoder", "digits_int8", "counter"])
@pytest.mark.parametrize("introduced", [True, False])
def test_another_load_has_the_same_table(
    executed: Make, kept: Path, in_lanes: list[str], laws: list[str], name: str, introduced: bool
) -> None:
    program = executed(name)
    first = program.load(introduced=introduced)
    assert in_lanes
    assert bool(laws) == introduced
    in_lanes.clear()
    laws.clear()
    second = program.load(introduced=introduced)
    assert not laws
    pd.testing.assert_frame_equal(first.gaps, second.gaps, check_exact=True)
    pd.testing.assert_frame_equal(first.outputs, second.outputs, check_exact=True)
    assert first.diagnosis() == second.diagnosis()
    assert not in_lanes
    assert len(list(kept.iterdir())) == 1 + introduced
    assert not kept.stat().st_mode & 0o077


def test_what_is_measured_again(executed: Make, kept: Path, in_lanes: list[str], tmp_path: Path) -> None:
    """Other inputs, files that were written since, and what was kept if it is damaged."""
    there = executed("casts")  # which logs no inputs, so those that are given count
    program = replace(there, folder=Path(shutil.copytree(there.folder, tmp_path / "copies")))
    table = program.load().gaps

    def is_measured(**changes: Any) -> bool:
        in_lanes.clear()
        program.load(**changes)
        return bool(in_lanes)

    assert not is_measured()
    assert is_measured(inputs=tuple(2 * value for value in program.inputs))
    assert not is_measured()
    os.utime(program.path("etrecord"))
    assert is_measured()
    empty: dict[str, Any] = {"growth": None, "lanes": 1, "unmoved": [], "values": [], "outputs": [[]]}
    for damaged in ({}, [], empty):
        for file in kept.iterdir():
            file.write_text(json.dumps(damaged))
        assert is_measured()
    in_lanes.clear()
    pd.testing.assert_frame_equal(program.load().gaps, table, check_exact=True)
    assert not in_lanes


def test_another_log_is_judged_by_its_own_values(executed: Make, laws: list[str], tmp_path: Path) -> None:
    """A log that was written since, with other values at its end, has the table that it has with nothing kept."""
    there = executed("encoder")
    program = replace(there, folder=Path(shutil.copytree(there.folder, tmp_path / "copies")))
    program.load()
    log = program.path("debug_buffer")
    content = bytearray(log.read_bytes())
    values = torch.frombuffer(content, dtype=torch.float32)
    values[len(values) * 3 // 4 :] *= 1.5
    log.write_bytes(content)
    laws.clear()
    changed = program.load()
    assert laws
    shutil.rmtree(state_folder())
    pd.testing.assert_frame_equal(program.load().gaps, changed.gaps, check_exact=True)


def test_what_further_lanes_gave_is_kept(
    executed: Make, in_lanes: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a log that the first lane does not explain; an error elsewhere asks for further lanes again."""
    monkeypatch.setattr("etviz.evaluation.noise.has_small_operators", lambda _: False)
    there = executed("plain_cnn")
    program = replace(there, folder=Path(shutil.copytree(there.folder, tmp_path / "copies")))
    log = program.path("debug_buffer")
    content, right = bytearray(log.read_bytes()), log.read_bytes()
    values = torch.frombuffer(content, dtype=torch.float32)
    values[len(values) * 3 // 4 :] *= 1.01
    log.write_bytes(content)
    first = program.load()
    assert len(in_lanes) > len(set(in_lanes)), "operators were evaluated in two rounds"
    in_lanes.clear()
    second = program.load()
    assert not in_lanes
    pd.testing.assert_frame_equal(first.gaps, second.gaps, check_exact=True)
    pd.testing.assert_frame_equal(first.outputs, second.outputs, check_exact=True)
    assert first.diagnosis() == second.diagnosis()
    content[:] = right
    values[len(values) // 4 :] *= 1.01
    log.write_bytes(content)
    third = program.load()
    shutil.rmtree(state_folder())
    pd.testing.assert_frame_equal(program.load().gaps, third.gaps, check_exact=True)


def test_the_error_of_grids_chosen_at_run_time_is_kept(
    kept: Path, in_lanes: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No delegate is evaluated without its grids again; one that only introduced gaps ask for is, once."""
    ran(torch.randn(8, 20), tmp_path / "files", Normed)
    evaluated: list[int] = []

    def counted(*args: Any) -> Any:
        evaluated.append(1)
        return steps(*args)

    monkeypatch.setattr("etviz.evaluation.dynamic_quantization.steps", counted)
    shutil.rmtree(kept)
    kinds = ("etdump", "debug_buffer", "pte", "etrecord")
    given: dict[str, Any] = {kind: tmp_path / "files" / FILES[kind] for kind in kinds}
    tables, numbers = [], []
    for introduced in (False, True, True, False):
        evaluated.clear()
        found = etviz.load(**given, introduced=introduced)
        numbers.append(len(evaluated))
        tables.append((found.gaps, found.summary()))
    assert numbers[1] > 0
    assert numbers[2:] == [0, 0]
    assert in_lanes
    pd.testing.assert_frame_equal(tables[1][0], tables[2][0], check_exact=True)
    pd.testing.assert_frame_equal(tables[0][0], tables[3][0], check_exact=True)
    assert tables[1][1] == tables[2][1]


def test_small_programs_keep_nothing(executed: Make, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(kept.parents[1]))
    executed("encoder").load()
    assert not kept.exists()


class Halved(nn.Sequential):
    """Reads each second row, which XNNPACK does not: the delegate's argument is a logged value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x[:, :, ::2])


@pytest.mark.parametrize("kind", [nn.Sequential, Halved])
def test_a_delegate_of_the_inputs_has_the_same_noise(
    shelf: Shelf, kept: Path, in_lanes: list[str], kind: type[nn.Sequential]
) -> None:
    """What it introduced is its total gap; the noise of both is kept, and asked for when introduced gaps are."""

    def made(folder: Path) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(4) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.Hardswish())]
        etviz.debug(kind(*layers), (torch.randn(1, 8, 32, 16),), partitioner=[XnnpackPartitioner()], workdir=folder)

    folder = shelf.folder(f"kept-noise-{kind.__name__}", made)
    files: dict[str, Any] = {kind: folder / name for kind, name in FILES.items() if kind != "timing"}
    dump = files.pop("etdump")
    shutil.rmtree(kept, ignore_errors=True)
    before = etviz.load(dump, **files).gaps
    last = before.iloc[-1]
    assert last["kind"] == "delegate"
    assert (last["introduced_noise"] == last["noise"] > 0) == (kind is not Halved)
    in_lanes.clear()
    pd.testing.assert_frame_equal(etviz.load(dump, **files).gaps, before, check_exact=True)
    assert not in_lanes
