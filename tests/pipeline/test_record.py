"""The record file: exact pairing later and elsewhere, small, safe to open, and never of another program."""

from __future__ import annotations

import contextlib
import json
import re
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
from etviz.artifacts.record.record_file import VERSION, read_record, write_record
from etviz.errors import ArtifactError, EtvizError, UsageError
from etviz.evaluation.evaluator import Evaluator
from tests.oracles import same
from tests.programs import TABLES, Encoder, Executed


def body_of(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("record.json"))


def rewritten(source: Path, target: Path, **changes: Any) -> Path:
    """A record with other fields."""
    with zipfile.ZipFile(source) as archive:
        tensors = archive.read("tensors.safetensors")
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("record.json", json.dumps(body_of(source) | changes))
        archive.writestr("tensors.safetensors", tensors)
    return target


def with_tensors(source: Path, target: Path, tensors: bytes) -> Path:
    """A record with other bytes of tensors."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as other:
        other.writestr("record.json", archive.read("record.json"))
        other.writestr("tensors.safetensors", tensors)
    return target


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


def test_record_of_another_program(executed: Callable[[str], Executed]) -> None:
    program, other = executed("plain_cnn"), executed("counter")
    with pytest.raises(ArtifactError, match=r"another program.*checksums") as found:
        load_again(program, record=other.path("record"))
    assert found.value.path == str(other.path("record"))


def test_record_of_the_same_model_with_other_weights(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    program = executed("counter")
    wrong = replace(read_record(program.path("record")), pte_checksum="xxh3:" + "0" * 32)
    write_record(wrong, tmp_path / "model.etviz")
    with pytest.raises(ArtifactError, match="checksums"):
        load_again(program, record=tmp_path / "model.etviz")


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_record_of_another_version(version: int, executed: Callable[[str], Executed], tmp_path: Path) -> None:
    other = rewritten(executed("counter").path("record"), tmp_path / "other.etviz", version=version)
    with pytest.raises(ArtifactError, match=rf"version {version}.*reads version {VERSION}") as found:
        read_record(other)
    assert found.value.path == str(other)
    assert (found.value.found, found.value.expected) == (version, VERSION)


@pytest.mark.parametrize(
    "changes",
    [
        {"graphs": 3},
        {"graphs": [["forward", {}]]},
        {"texts": "text"},
        {"texts": [1]},
        {"places": [["a", "b"]]},
        {"delegation": []},
        {"extra": 1},
        {"checksums": []},
        {"checksums": {}},
        {"format": "another"},
        {"delegation": {}},
        {"extra": {"inputs": [{"tensor": "missing"}]}},
        {"delegation": {"forward": {"subgraphs": "many", "delegated": [], "non_delegated": None}}},
    ],
    ids=str,
)
def test_record_with_a_field_of_the_wrong_kind(
    changes: dict[str, Any], executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    program = executed("branches")
    path = rewritten(program.path("record"), tmp_path / "wrong.etviz", **changes)
    with pytest.raises(EtvizError, match=r"wrong\.etviz"):
        load_again(program, record=path, inputs=None)


def edit_node(body: dict[str, Any], position: int, value: Any) -> dict[str, Any]:
    body["graphs"][0][1]["nodes"][1][position] = value
    return body


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, 7),
        (1, None),
        (2, {"$": "ref", "v": "nobody"}),
        (2, [{"$": "ref", "v": "nobody"}]),
        (2, [{"$": "code", "v": "import os"}]),
        (4, [["float32", ["a", None], None]]),
        (5, "first"),
        (9, 10_000),
        (9, -1),
        (11, ["no_such_graph"]),
    ],
)
def test_record_with_a_damaged_node(
    position: int, value: Any, executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    program = executed("counter")
    body = edit_node(body_of(program.path("record")), position, value)
    path = rewritten(program.path("record"), tmp_path / "wrong.etviz", graphs=body["graphs"])
    with pytest.raises(ArtifactError, match=r"wrong\.etviz.*damaged"):
        load_again(program, record=path)


@pytest.mark.parametrize(
    "target", ["aten.from_file.default", "os.system", "aten.add_.Tensor", "py.exec", "aten.nope.x"]
)
def test_record_that_asks_for_other_than_a_pure_operator(
    target: str, executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    program = executed("counter")
    body = edit_node(body_of(program.path("record")), 1, target)
    path = rewritten(program.path("record"), tmp_path / "wrong.etviz", graphs=body["graphs"])
    with pytest.raises(EtvizError, match=re.escape(target)):
        load_again(program, record=path)


def test_record_refers_to_an_etrecord_that_is_not_given(executed: Callable[[str], Executed]) -> None:
    program = executed("encoder")
    with pytest.raises(ArtifactError, match=r"etrecord="):
        load_again(program, etrecord=None)


def test_weights_are_looked_for_in_another_models_etrecord(executed: Callable[[str], Executed]) -> None:
    program, other = executed("encoder"), executed("plain_cnn")
    with pytest.raises(EtvizError, match="different models"):
        load_again(program, etrecord=other.path("etrecord"), pte=None)
    with pytest.raises(EtvizError, match="belongs to another program"):
        load_again(program, etrecord=other.path("etrecord"))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_truncated_record(share: float, executed: Callable[[str], Executed], tmp_path: Path) -> None:
    program = executed("branches")
    content = program.path("record").read_bytes()
    path = tmp_path / "cut.etviz"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ArtifactError, match=r"cut\.etviz"):
        load_again(program, record=path, inputs=None)


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


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"", "beyond the end"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a table"),
        (b"{}", "not described"),
        (b'{"%s":{"dtype":"F32","shape":[1],"data_offsets":[0,1000000000000]}}', "beyond the end"),
        (b'{"%s":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}', "its shape needs"),
        (b'{"%s":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}', "checksum"),
        (b"{%m}", "beyond the end"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_tensors_that_are_not_what_they_claim(
    header: bytes, words: str, executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    """Headers of many millions of values are not even read."""
    source = executed("branches").path("record")
    name = next(iter(read_record(source).tensors))
    if b"%m" in header:
        header = header.replace(b"%m", b",".join(b'"%d":[]' % number for number in range(1_000_000)))
    header = header.replace(b"%s", name.encode())
    tensors = len(header).to_bytes(8, "little") + header + b"\0" * 4 if header else b""
    found = read_record(with_tensors(source, tmp_path / "wrong.etviz", tensors))
    with pytest.raises(ArtifactError, match=rf"wrong\.etviz.*{words}"):
        _ = found.tensors[name]


def test_writing_a_record_leaves_no_half_file(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    record = read_record(executed("counter").path("record"))
    target = tmp_path / "model.etviz"
    shutil.copy(executed("counter").path("record"), target)
    before = target.read_bytes()
    with pytest.raises(TypeError):
        write_record(replace(record, extra={"x": object()}), target)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model.etviz"]
