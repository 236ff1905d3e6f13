"""The record file: exact pairing later and elsewhere, small, safe to open, and never of another program."""

from __future__ import annotations

import contextlib
import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from functorch.experimental import control_flow

import etviz
from etviz.artifacts.record.record_file import read_record, write_record
from etviz.errors import ArtifactError, UsageError
from etviz.evaluation.evaluator import Evaluator
from tests.oracles import same
from tests.programs import TABLES, Encoder, Executed


def body_of(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("record.json"))


def load_again(program: Executed, **changes: Any) -> etviz.Inspection:
    """`etviz.load` on a program's files, some replaced."""
    kinds = ("etrecord", "debug_buffer", "pte", "record", "timing")
    given: dict[str, Any] = {kind: program.path(kind) for kind in kinds}
    given |= {"inputs": program.inputs} | changes
    if given["etrecord"] is not None and not Path(given["etrecord"]).exists():
        given["etrecord"] = None
    return etviz.load(program.path("etdump"), **given)


def test_loading_again_gives_the_same(program: Executed) -> None:
    """What `etviz.debug` told when it had just run the program."""
    again = load_again(program)
    for table in TABLES:
        assert getattr(again, table).to_csv() == program.told(table)
    assert repr(again.tree) == program.told("tree")
    assert again.summary() == program.told("summary")


def test_round_trip(program: Executed, tmp_path: Path) -> None:
    record = read_record(program.path("record"))
    write_record(record, tmp_path / "copy.etviz")
    assert read_record(tmp_path / "copy.etviz") == record
    assert body_of(tmp_path / "copy.etviz") == body_of(program.path("record"))
    assert [path.name for path in tmp_path.iterdir()] == ["copy.etviz"]


def test_weights_stay_in_the_etrecord(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Encoder(128).eval()
    etviz.debug(model, (torch.randn(1, 4, 128),), workdir=tmp_path)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    record, etrecord = tmp_path / "model.etviz", tmp_path / "etrecord.bin"
    assert weights > 1_000_000
    assert record.stat().st_size < 0.05 * etrecord.stat().st_size
    places = read_record(record).places
    parameters = {name for name, _ in model.named_parameters()}
    referred = {place.name for place in places.values() if place.member}
    assert parameters <= referred


def test_without_an_etrecord_the_record_keeps_everything(executed: Callable[[str], Executed]) -> None:
    """Upstream cannot save an ETRecord of `torch.cond` with Python scalars in its branches."""
    program = executed("branches")
    assert not program.path("etrecord").exists()
    record = read_record(program.path("record"))
    assert not any(place.member for place in record.places.values())
    weight = program.model.state_dict()["linear.weight"]
    assert any(torch.equal(tensor, weight) for tensor in record.tensors.values())
    again = load_again(program, inputs=None)
    first, second = (found.gaps.drop(columns="latency_ms") for found in (again, program.inspection))
    pd.testing.assert_frame_equal(first, second, check_exact=True)


def test_public_record_gives_exact_pairing(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """`etviz.record` beside a program that was lowered elsewhere, with and without an ETRecord."""
    program = executed("plain_cnn")
    exported = torch.export.export(program.model, program.inputs, strict=True)
    edge = to_edge_transform_and_lower(exported)
    manager = edge.to_executorch()
    manager.save(str(tmp_path / "model.pte"))
    etviz.record(edge, manager, tmp_path / "model.etviz", reference=exported)
    assert (tmp_path / "model.pte").read_bytes() == program.path("pte").read_bytes()
    found = etviz.load(
        program.path("etdump"),
        debug_buffer=program.path("debug_buffer"),
        pte=tmp_path / "model.pte",
        inputs=program.inputs,
    )
    numbers = found.gaps[["instruction", "output", "mse", "rmse", "mean_abs", "max_abs", "rel_l2"]]
    expected = program.inspection.gaps[numbers.columns]
    pd.testing.assert_frame_equal(numbers, expected, rtol=1e-4, atol=1e-6)
    split = found.quantization()
    split = split[split["status"] == "compared"]
    assert len(split) > 5
    assert split["quantization_rmse"].max() < 1e-5
    assert read_record(tmp_path / "model.etviz").references.keys() == {"forward"}
    with pytest.raises(UsageError, match="for the method other, the program has forward"):
        etviz.record(edge, manager, tmp_path / "x.etviz", reference={"other": exported})
    with pytest.raises(UsageError, match="must be an ExportedProgram"):
        etviz.record(edge, manager, tmp_path / "x.etviz", reference=program.model)  # type: ignore[arg-type]


def test_record_of_a_loop_is_sound(tmp_path: Path) -> None:
    """What a loop runs is a graph of its own, and evaluated once for each row."""

    class Loop(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            loop: Any = control_flow.map
            return loop(lambda row, other: row.sin() + other, x, x[0] + x[1])

    x = torch.arange(12.0).reshape(4, 3)
    edge = to_edge_transform_and_lower(torch.export.export(Loop(), (x,)))
    etviz.record(edge, edge.to_executorch(), tmp_path / "model.etviz")
    graph = read_record(tmp_path / "model.etviz").graphs["forward"]
    loop = next(node for node in graph.nodes if node.target == "map")
    assert [node.target for node in graph.branches(loop)[0].nodes] == [
        *("aten.select_copy.int", "aten.sin.default", "aten.add.Tensor")
    ]
    assert torch.equal(Evaluator(graph, {}).run([x])[0], x.sin() + (x[0] + x[1]))


def test_record_wants_a_program_manager(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="to_executorch"):
        etviz.record(None, "not a manager", tmp_path / "x.etviz")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_record_refers_to_an_etrecord_that_is_not_given(executed: Callable[[str], Executed]) -> None:
    program = executed("encoder")
    with pytest.raises(ArtifactError, match=r"etrecord="):
        load_again(program, etrecord=None)


def test_every_flipped_byte_of_a_record(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """A damaged record gives an error of ours, or no other tensors than before: all have checksums."""
    program = executed("branches")
    content = bytearray(program.path("record").read_bytes())
    path = tmp_path / "flipped.etviz"
    expected = read_record(program.path("record"))
    silent = []
    for at in range(0, len(content), max(1, len(content) // 150)):
        flipped = content.copy()
        flipped[at] ^= 0xFF
        path.write_bytes(flipped)
        with contextlib.suppress(ArtifactError):
            found = read_record(path)
            silent.append((found.graphs, dict(found.tensors)))
    tensors = dict(expected.tensors)
    assert tensors
    for graphs, found in silent:
        assert graphs == expected.graphs
        assert found.keys() == tensors.keys()
        assert all(same(found[name], tensors[name]) for name in tensors)
    assert len(silent) < 30


def test_writing_a_record_leaves_no_half_file(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    record = read_record(executed("counter").path("record"))
    target = tmp_path / "model.etviz"
    shutil.copy(executed("counter").path("record"), target)
    before = target.read_bytes()
    with pytest.raises(TypeError):
        write_record(replace(record, extra={"x": object()}), target)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model.etviz"]
