"""What a second load of the same files does not read again; other files are read, whatever their name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import etviz
from etviz.artifacts import files
from etviz.artifacts.recent import Recent
from etviz.artifacts.record import record_file, torch_file
from etviz.graph.ir import Graph
from etviz.loading import paired
from tests.programs import Executed

Make = Callable[[str], Executed]
KINDS = ("etdump", "debug_buffer", "pte", "etrecord")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was read, by a process that has read nothing."""
    found: list[str] = []

    def noting(module: Any, name: str) -> None:
        plain = getattr(module, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            found.append(name)
            return plain(*args, **kwargs)

        monkeypatch.setattr(module, name, noted)

    for module, name in ((torch_file, "_load"), (record_file, "load_graph"), (paired, "_derived")):
        noting(module, name)
    monkeypatch.setattr(torch_file, "_TABLES", Recent(8))
    monkeypatch.setattr(record_file, "_GRAPHS", Recent(4))
    monkeypatch.setattr(paired, "_DERIVED_GRAPHS", Recent(4))
    monkeypatch.setattr(etviz.options, "isolation", "never")
    monkeypatch.setattr(files, "SETTLES", 0.0)
    return found


def copied(program: Executed, folder: Path, kinds: tuple[str, ...]) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return {kind: shutil.copy(program.path(kind), folder / program.path(kind).name) for kind in kinds}


def graph_of(inspection: etviz.Inspection) -> Graph:
    replay = inspection.analysis.tables.compared.replay
    assert replay is not None
    return replay.graph


@pytest.mark.parametrize("kinds", [KINDS, (*KINDS, "record")], ids=["derived", "record"])
def test_a_second_load_reads_no_graph_and_no_table(
    kinds: tuple[str, ...], read: list[str], executed: Make, tmp_path: Path
) -> None:
    program = executed("encoder")
    given = copied(program, tmp_path / "files", kinds)
    first = etviz.load(**given, introduced=True)
    assert {"_load", "load_graph" if "record" in kinds else "_derived"} <= {*read}
    graph = repr(graph_of(first))
    delegate = first.gaps[first.gaps["kind"] == "delegate"].iloc[0]
    for question in (first.attribution, first.ladder, lambda: first.zoom(delegate), first.summary):
        question()
    first.to_html(tmp_path / "report.html")
    read.clear()
    second = etviz.load(**given, introduced=True)
    assert not read
    assert repr(graph_of(second)) == graph
    pd.testing.assert_frame_equal(first.gaps, second.gaps)


@pytest.mark.parametrize("way", ["in place", "another file"])
def test_other_files_of_the_same_names_are_read(way: str, read: list[str], executed: Make, tmp_path: Path) -> None:
    one, other = executed("encoder"), executed("plain_cnn")
    folder = tmp_path / "files"
    given = copied(one, folder, KINDS)
    assert len(etviz.load(**given).gaps) == len(one.inspection.gaps)
    if way == "another file":
        for path in given.values():
            Path(path).unlink()
    read.clear()
    for kind, path in given.items():
        Path(path).write_bytes(other.path(kind).read_bytes())
    found = etviz.load(**given)
    assert "_derived" in read
    assert list(found.gaps["op"]) == list(other.load(record=None).gaps["op"])


def test_a_file_that_was_just_written_is_read_again(
    read: list[str], executed: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its times may not tell the next write."""
    monkeypatch.setattr(files, "SETTLES", 3.0)
    given = copied(executed("encoder"), tmp_path / "files", KINDS)
    for _ in range(2):
        read.clear()
        etviz.load(**given)
        assert "_derived" in read


def test_the_last_values_are_kept() -> None:
    recent = Recent[list[int]](2)
    made: list[int] = []

    def value(number: int) -> list[int]:
        return recent.get(number, lambda: made.append(number) or [number])

    assert [value(number) for number in (1, 2, 1, 3, 1, 2)] == [[1], [2], [1], [3], [1], [2]]
    assert made == [1, 2, 3, 2]


def test_a_table_with_other_shapes_is_another_one(tmp_path: Path) -> None:
    """Whose data have the same place and size."""
    tables = {"a": torch.zeros(6, 4), "b": torch.ones(4, 6)}
    for name, tensor in tables.items():
        torch.save({"weight": tensor}, tmp_path / name)
    for name in ("a", "b", "a"):
        data = memoryview((tmp_path / name).read_bytes())
        assert torch.equal(torch_file.TensorFile(data, name, name)["weight"], tables[name])
