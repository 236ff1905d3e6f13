"""Probe programs: inner values from runners that give outputs only."""

from __future__ import annotations

import json
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from typer.testing import CliRunner

import etviz
from etviz.artifacts.probes import FILE
from etviz.artifacts.program.program import read_program
from etviz.artifacts.program.raw_values import write_inputs
from etviz.cli.app import app
from etviz.errors import ArtifactError, EtvizError, UsageError
from etviz.pipeline.execute import execute
from etviz.pipeline.probe_program import Probe, parse_size
from tests.cpp_runner import CppRunner
from tests.programs import Executed

BUDGETS = {"plain_cnn": "4KB", "residual_cnn": "3KB", "digits_int8": "5KB", "many_outputs": "1MB"}


def _run_here(probes: list[Probe], inputs: Any) -> dict[str, Any]:
    """Outputs by name, from Python."""
    paths = {"model": probes[0].model} | {probe.name: probe.path for probe in probes}
    return {name: execute(path, [tree_leaves(inputs)]).outputs for name, path in paths.items()}


def _same_values(found: etviz.Inspection, expected: etviz.Inspection) -> None:
    """All rows of an Inspection, bit for bit."""
    assert len(found.gaps) == len(expected.gaps) > 0
    for column in ("instruction", "output", "kind", "shape", "dtype"):
        assert list(found.gaps[column]) == list(expected.gaps[column])
    for row in range(len(expected.gaps)):
        a, b = found.tensors(row)[1], expected.tensors(row)[1]
        assert torch.equal(a.nan_to_num(7), b.nan_to_num(7)), row
    for metric in ("rmse", "introduced_severity"):
        np.testing.assert_array_equal(found.gaps[metric], expected.gaps[metric])


@pytest.mark.parametrize("name", ["plain_cnn", "residual_cnn", "digits_int8", "many_outputs"])
def test_release_build_gives_the_values_that_a_debug_buffer_gives(
    name: str, executed: Callable[[str], Executed], release_runner: CppRunner, tmp_path: Path
):
    made = executed(name)
    probes = etviz.probe(made.path("record"), budget=BUDGETS[name], workdir=tmp_path)
    budget = parse_size(BUDGETS[name])
    assert all(probe.nbytes <= budget + 128 or len(probe.values) == 1 for probe in probes)
    assert len(probes) > 1 or name == "many_outputs"
    files = ",".join(write_inputs(tmp_path, tree_leaves(made.inputs), read_program(made.path("pte")).method()))
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    for label, path in ({"model": made.path("pte")} | {probe.name: probe.path for probe in probes}).items():
        release_runner(outputs, "--model", path, "--inputs", files, "--outputs", label)
    (tmp_path / "model.etviz").write_bytes(made.path("record").read_bytes())
    found = etviz.load(
        outputs=outputs,
        record=tmp_path / "model.etviz",
        etrecord=made.path("etrecord"),
        pte=made.path("pte"),
        inputs=made.inputs,
    )
    _same_values(found, made.inspection)
    assert found.coverage.status.eq("compared").all()
    assert "own outputs are the unmodified program's bit for bit" in found.summary()
    np.testing.assert_array_equal(found.outputs.max_abs, made.inspection.outputs.max_abs)


def test_values_inside_of_delegates(executed: Callable[[str], Executed], release_runner: CppRunner, tmp_path: Path):
    """A release build gives the values of the operators inside of delegates; they are those of a zoom."""
    made = executed("residual_cnn")
    for kind in ("pte", "record", "etrecord"):
        (tmp_path / made.path(kind).name).write_bytes(made.path(kind).read_bytes())
    delegates = made.inspection.gaps[made.inspection.gaps.kind == "delegate"]
    call = int(delegates.instruction.max())
    probes = etviz.probe(tmp_path, budget="3KB", inside=[call])
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    files = ",".join(write_inputs(tmp_path, tree_leaves(made.inputs), read_program(made.path("pte")).method()))
    for label, path in ({"model": probes[0].model} | {probe.name: probe.path for probe in probes}).items():
        release_runner(outputs, "--model", path, "--inputs", files, "--outputs", label)
    found = etviz.load(outputs=outputs, record=tmp_path / "model.etviz", etrecord=tmp_path / "etrecord.bin")
    inner = found.gaps[found.gaps.kind == "inner"]
    assert len(inner) == sum(bool(value.inside) for probe in probes for value in probe.values) > 0
    assert set(inner.instruction) == {call}
    row = int(found.gaps.index[(found.gaps.instruction == call) & (found.gaps.kind == "delegate")][0])
    inside = found.zoom(row)
    assert inside.faithful
    assert inside.deviation == 0
    assert "bit for bit" in inside.fidelity
    zoomed = made.load().zoom(row)
    for number, about in inside.gaps.iterrows():
        same = zoomed.gaps.index[zoomed.gaps.instruction == about.instruction]
        assert torch.equal(inside.tensors(number)[1], zoomed.tensors(int(same[0]))[1])


def test_what_no_probe_goes_into(executed: Callable[[str], Executed], tmp_path: Path):
    made = executed("residual_cnn")
    kernel = int(made.inspection.gaps[made.inspection.gaps.kind == "kernel"].instruction.iloc[0])
    with pytest.raises(
        UsageError, match=rf"inside must be instructions of delegate calls, found {kernel}; they are \["
    ):
        etviz.probe(made.path("record"), inside=[kernel], workdir=tmp_path)
    (tmp_path / "model.pte").write_bytes(made.path("pte").read_bytes())
    with pytest.raises(UsageError, match=r"need the record"):
        etviz.probe(tmp_path, inside=[0])


def _with_first_steps(made: Executed, steps: list[tuple[str, list[Any]]], folder: Path) -> int:
    """The files of a program whose delegates begin with some calls, in a folder; the last delegate's instruction."""

    def more(like: list[Any]) -> list[Any]:
        named = [(f"step_{at}", target, args) for at, (target, args) in enumerate(steps)]
        return [[*each, None, [["float32", [1 << 34], None]], -1, "", [], "", *like[9:11], []] for each in named]

    with zipfile.ZipFile(made.path("record")) as before, zipfile.ZipFile(folder / "model.etviz", "w") as after:
        body = json.loads(before.read("record.json"))
        for _, graph in dict(body["graphs"])["forward"]["subgraphs"]:
            graph["nodes"][:0] = more(graph["nodes"][0])
        after.writestr("record.json", json.dumps(body))
        after.writestr("tensors.safetensors", before.read("tensors.safetensors"))
    for kind in ("pte", "etrecord"):
        (folder / made.path(kind).name).write_bytes(made.path(kind).read_bytes())
    delegates = made.inspection.gaps[made.inspection.gaps.kind == "delegate"]
    return int(delegates.instruction.max())


def _step(at: int) -> dict[str, str]:
    return {"$": "ref", "v": f"step_{at}"}


def test_a_record_can_call_no_other_function_of_python(executed: Callable[[str], Executed], tmp_path: Path):
    """Python's `operator` has functions that call anything; from a text they lead to `open`."""
    mark = tmp_path / "ran"
    steps: list[tuple[str, list[Any]]] = [
        ("py.attrgetter", ["__reduce_ex__"]),
        ("py.call", [_step(0), "text"]),
        ("py.call", [_step(1), 2]),
        ("py.getitem", [_step(2), 0]),
        ("py.attrgetter", ["__globals__.get"]),
        ("py.call", [_step(4), _step(3)]),
        ("py.call", [_step(5), "__builtins__"]),
        ("py.getitem", [_step(6), "open"]),
        ("py.call", [_step(7), str(mark), "w"]),
    ]
    last = _with_first_steps(executed("residual_cnn"), steps, tmp_path)
    with pytest.raises(EtvizError, match=r"py\.attrgetter"):
        etviz.probe(tmp_path, inside=[last], workdir=tmp_path / "probes")
    assert not mark.exists()


GROWING: dict[str, tuple[list[tuple[str, list[Any]]], str]] = {
    "squares": ([("py.mul", [1 << 40, 1 << 20]), *(("py.mul", [_step(at)] * 2) for at in range(40))], "121 bits"),
    "shift": ([("py.lshift", [1, 1 << 40])], "shifts a number by more than 63 bits"),
    "text": ([("py.mul", ["text", 1 << 40])], "something that is not a number"),
    "another operator": ([("aten.from_file.default", ["/etc/passwd", False, 16])], r"calls aten\.from_file\.default"),
    "pieces": (
        [("aten.full.default", [[1 << 31], 1.0]), ("aten.split_copy.Tensor", [_step(0), 1])],
        "more memory than is free",
    ),
}


@pytest.mark.parametrize(("steps", "message"), GROWING.values(), ids=GROWING)
def test_a_record_that_grows_is_refused(
    steps: list[tuple[str, list[Any]]], message: str, executed: Callable[[str], Executed], tmp_path: Path
):
    last = _with_first_steps(executed("residual_cnn"), steps, tmp_path)
    with pytest.raises(EtvizError, match=message):
        etviz.probe(tmp_path, inside=[last], workdir=tmp_path / "probes")


def test_values_that_only_sometimes_exist_are_left_out_with_a_reason(
    executed: Callable[[str], Executed], tmp_path: Path
):
    for name, reason in {"counter": "", "branches": "it stands in a branch"}.items():
        made = executed(name)
        folder = tmp_path / name
        probes = etviz.probe(made.path("record"), workdir=folder)
        (folder / "model.etviz").write_bytes(made.path("record").read_bytes())
        given: dict[str, Any] = {kind: made.path(kind) for kind in ("etrecord",) if made.path(kind).exists()}
        found = etviz.load(
            outputs=_run_here(probes, made.inputs), record=folder / "model.etviz", inputs=made.inputs, **given
        )
        missing = found.coverage[found.coverage.status != "compared"]
        assert missing.reason.str.contains(reason).any() == bool(reason), missing
        expected = made.inspection.gaps.set_index(["instruction", "output"]).rmse
        assert len(found.gaps)
        for _, row in found.gaps.iterrows():
            assert row.rmse == expected[row.instruction, row.output]


class Reshaped(nn.Module):
    """Views that the emitter leaves out, read long after their memory would be free."""

    def forward(self, x: Tensor) -> Tensor:
        a = torch.sin(x)
        early = a.view(-1)
        b = torch.cos(torch.cumsum(x, 0)) + 1
        c = torch.exp(torch.tanh(b)).view(-1)
        return (early * c).view(4, 6).cumsum(1) + torch.sin(b).view(4, 6)


def test_views_stay_what_they_are(tmp_path: Path):
    inputs = (torch.randn(6, 4),)
    reference = etviz.debug(Reshaped(), inputs, workdir=tmp_path)
    for budget in (100, 300, 10_000):
        probes = etviz.probe(tmp_path, budget=budget)
        found = etviz.load(
            outputs=_run_here(probes, inputs), record=tmp_path / "model.etviz", etrecord=tmp_path / "etrecord.bin"
        )
        _same_values(found, reference)
        assert "bit for bit" in found.summary()


def test_probe_of_a_model_lowers_it(tmp_path: Path):
    inputs = (torch.randn(6, 4),)
    probes = etviz.probe(Reshaped(), inputs, workdir=tmp_path)
    assert [probe.name for probe in probes] == ["probe-0"]
    assert {path.name for path in tmp_path.iterdir()} >= {"model.pte", "model.etviz", "probe-0.pte", FILE}
    outputs = _run_here(probes, inputs)
    assert len(outputs["probe-0"][0]) == probes[0].outputs
    listed = etviz.load(
        outputs=[outputs["model"][0], outputs["probe-0"][0]],
        record=probes[0].record,
        etrecord=tmp_path / "etrecord.bin",
    )
    assert len(listed.gaps) == len(probes[0].values)


def test_probes_without_a_workdir_live_as_long_as_they_are_held():
    inputs = (torch.randn(6, 4),)
    probes = etviz.probe(Reshaped(), inputs)
    folder = probes[0].folder
    assert probes[0].path.is_file()
    del probes
    assert not folder.exists()


def test_program_that_differs_from_its_probe_is_told_apart(executed: Callable[[str], Executed], tmp_path: Path):
    made = executed("plain_cnn")
    (tmp_path / "model.etviz").write_bytes(made.path("record").read_bytes())
    probes = etviz.probe(made.path("record"), budget="4KB", workdir=tmp_path)
    outputs = _run_here(probes, made.inputs)
    outputs["probe-1"][0][0] = outputs["probe-1"][0][0] + 0.25
    given: dict[str, Any] = {
        "record": tmp_path / "model.etviz",
        "etrecord": made.path("etrecord"),
        "inputs": made.inputs,
    }
    found = etviz.load(outputs=outputs, **given)
    assert "probe-1's own outputs differ from the unmodified program's by up to 0.25" in found.summary()
    doubted = found.gaps[found.gaps.reason.str.contains("not faithful")].instruction
    assert set(doubted) == {value.instruction for value in probes[1].values}
    del outputs["model"], outputs["probe-1"]
    assert "give the unmodified program's as 'model'" in etviz.load(outputs=outputs, **given).summary()


def test_what_does_not_belong_together_is_not_compared(executed: Callable[[str], Executed], tmp_path: Path):
    made = executed("plain_cnn")
    record = tmp_path / "model.etviz"
    record.write_bytes(made.path("record").read_bytes())
    probes = etviz.probe(made.path("record"), budget="4KB", workdir=tmp_path)
    outputs = _run_here(probes, made.inputs)

    def load(given: Any, **files: Any) -> etviz.Inspection:
        named: dict[str, Any] = {"record": record, "etrecord": made.path("etrecord")} | files
        return etviz.load(outputs=given, **named)

    with pytest.raises(UsageError, match="given as probe-0 are the outputs of probe-1"):
        load({"probe-0": outputs["probe-1"], "probe-1": outputs["probe-0"]})
    with pytest.raises(UsageError, match="no probe 'probe-99'"):
        load({"probe-99": outputs["probe-0"]})
    with pytest.raises(UsageError, match="outputs, 1 were given"):
        load({"probe-0": outputs["model"]})
    with pytest.raises(UsageError, match="probe-0 gives 3 outputs, 2 were given"):
        load({"probe-0": [outputs["probe-0"][0][:-1]]})
    with pytest.raises(UsageError, match=r"is float32 \(3,\), and must be float32 \(2, 5\)"):
        load([torch.zeros(3)])
    with pytest.raises(UsageError, match="as often as the others"):
        load({"model": outputs["model"] * 2, "probe-0": outputs["probe-0"]})
    with pytest.raises(UsageError, match="give either an ETDump or outputs="):
        etviz.load(record=record)
    with pytest.raises(UsageError, match="give record= or etrecord="):
        etviz.load(outputs=[torch.zeros(2, 5)])
    other = executed("residual_cnn")
    record.write_bytes(other.path("record").read_bytes())
    with pytest.raises(ArtifactError, match="probes of another program"):
        load({"probe-0": outputs["probe-0"]}, etrecord=other.path("etrecord"))


def test_the_output_of_a_folder_is_compared(executed: Callable[[str], Executed], tmp_path: Path):
    made = executed("plain_cnn")
    (tmp_path / "out-0.bin").write_bytes(bytes(40))
    given: dict[str, Any] = {kind: made.path(kind) for kind in ("record", "etrecord", "pte")}
    assert etviz.load(outputs=tmp_path, **given).outputs.status[0] == "compared"


def test_final_outputs_alone_give_the_verdict(executed: Callable[[str], Executed]):
    made = executed("residual_cnn")
    output = execute(made.path("pte"), [tree_leaves(made.inputs)]).outputs[0]
    whole: dict[str, Any] = {"record": made.path("record"), "etrecord": made.path("etrecord"), "inputs": made.inputs}
    edge: dict[str, Any] = {"etrecord": made.path("etrecord"), "inputs": made.inputs}
    for given in (whole, edge, edge | {"pte": made.path("pte"), "record": None}):
        found = etviz.load(outputs=output, **given)
        assert len(found.gaps) == 0
        assert found.outputs.max_abs[0] == pytest.approx(made.inspection.outputs.max_abs[0], rel=1e-6)
        assert "Only the final outputs were given" in found.summary()
        assert found.analysis.digest.level == "ok"
        assert found.widget() is not None
    several = etviz.load(outputs=[output, output], **whole)
    assert list(several.outputs.event_block) == [0, 1]
    spoiled = etviz.load(outputs=[output[0] + 1], **whole)
    assert not spoiled.outputs.matches[0]
    assert spoiled.outputs.max_abs[0] == pytest.approx(1, rel=1e-4)


def test_commands(executed: Callable[[str], Executed], tmp_path: Path):
    made = executed("plain_cnn")
    for kind in ("pte", "record", "etrecord"):
        (tmp_path / made.path(kind).name).write_bytes(made.path(kind).read_bytes())
    ended = CliRunner().invoke(
        app, ["probe", str(tmp_path), "-o", str(tmp_path / "probes"), "--budget", "4KB", "--json"]
    )
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    for item in [{"name": "model", "path": str(made.path("pte"))}, *told]:
        for at, value in enumerate(execute(item["path"], [tree_leaves(made.inputs)]).outputs[0]):
            (outputs / f"{item['name']}-{at}.bin").write_bytes(value.contiguous().numpy().tobytes())
    (outputs / FILE).write_bytes((tmp_path / "probes" / FILE).read_bytes())
    ended = CliRunner().invoke(app, ["load-outputs", str(outputs), "--record", str(tmp_path), "--json"])
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)
    assert len(found["rows"]) == 10
    assert "matches the reference" in found["verdict"]
    assert any("bit for bit" in note for note in found["notes"])


@pytest.mark.parametrize("with_record", [True, False])
def test_the_printed_command_works(with_record: bool, executed: Callable[[str], Executed], tmp_path: Path):
    """As it stands, but for the places that only the user knows; the probes lie elsewhere than their program."""
    made = executed("plain_cnn")
    source, probes, outputs = tmp_path / "my build", tmp_path / "probes", tmp_path / "outputs"
    source.mkdir()
    outputs.mkdir()
    for kind in ("pte", "record", "etrecord") if with_record else ("pte",):
        (source / made.path(kind).name).write_bytes(made.path(kind).read_bytes())
    ended = CliRunner().invoke(app, ["probe", str(source), "-o", str(probes)])
    assert ended.exit_code == 0, ended.output
    for item in (made.path("pte"), *probes.glob("probe-*.pte")):
        for at, value in enumerate(execute(item, [tree_leaves(made.inputs)]).outputs[0]):
            value.contiguous().numpy().tofile(outputs / f"{item.stem}-{at}.bin")
    if not with_record:
        assert "with a copy of probes.json" in ended.stderr
        (outputs / FILE).write_bytes((probes / FILE).read_bytes())
    places = {"OUTPUTS": str(outputs), "ETRECORD": str(made.path("etrecord"))}
    words = shlex.split(ended.stderr[ended.stderr.index("etviz load-outputs") :])
    ended = CliRunner().invoke(app, [*(places.get(word, word) for word in words[1:]), "--json"])
    assert ended.exit_code == 0, ended.output
    assert len(json.loads(ended.stdout)["rows"]) == 10


@pytest.mark.parametrize("size", ["", "0", "-1", "64 parsecs", "MB", True, 0])
def test_budget_that_makes_no_sense(size: Any):
    with pytest.raises(UsageError, match="budget must be a positive number of bytes"):
        parse_size(size)
