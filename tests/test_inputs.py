"""Inputs that are not known are not guessed: total gaps only where they are, and a verdict that says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.export import Dim, export
from typer.testing import CliRunner

import etviz
from etviz.artifacts.inputs import read_inputs
from etviz.artifacts.program.program import read_program
from etviz.cli.app import app
from etviz.errors import ArtifactError, UsageError
from etviz.graph.ir import Graph, Input, Meta
from tests.kinds.making import Made

Programs = Callable[[str], Made]
USERS = [Input("token", "user", meta=Meta("int64", (1, 1))), Input("position", "user", meta=Meta("int64", (1,)))]
GRAPH = Graph("forward", inputs=USERS)


def _load(program: Made, inputs: Any = None, way: str = "derived") -> etviz.Inspection:
    given: dict[str, Any] = {kind: program.path(kind) for kind in ("etrecord", "debug_buffer")}
    if way != "handles":
        given["pte"] = program.path("pte") if way == "exact" else program.program / "alone.pte"
    return etviz.load(program.path("etdump"), **given, inputs=inputs, method=program.recipe.method)


@pytest.mark.parametrize("way", ["exact", "derived"])
def test_a_decode_is_judged_where_its_inputs_are_proved(made: Programs, way: str) -> None:
    """Three steps; the ETRecord has the inputs of the first one, and the other two had others."""
    program = made("decoder")
    found = _load(program, way=way)
    first, *others = sorted(found.gaps["event_block"].unique())
    assert "2 of 3 executions can't be judged: give inputs= for each execution" in found.summary()
    assert found.analysis.digest.level == "warn"
    assert found.first_divergence is None
    totals = found.gaps.set_index("event_block")["severity"]
    assert totals.loc[first].notna().sum() >= len(totals.loc[first]) - 1, "a mask of -inf has no severity"
    for block in others:
        assert totals.loc[block].isna().all()
    later = found.gaps[found.gaps["event_block"] != first]
    assert later["introduced_severity"].notna().sum() > len(later) // 2
    assert later["introduced_severity"].max() < 20
    compared = found.outputs[found.outputs["status"] != "not compared"]
    assert set(compared["event_block"]) == {first}


def test_executions_that_all_had_the_known_inputs_are_judged(made: Programs) -> None:
    found = _load(made("same_twice"))
    assert "can't be judged" not in found.summary()
    assert found.gaps["severity"].notna().all()
    assert len(found.outputs) == 2
    assert "has one tuple" not in found.summary()


def test_one_tuple_for_several_executions_is_said(made: Programs) -> None:
    said = "inputs= has one tuple, which is taken for each of the 3 executions; if they had different inputs, give"
    program = made("decoder")
    found = _load(program, program.runs[0])
    assert said in found.summary()
    assert len(found.outputs) == 3
    assert "has one tuple" not in _load(program, program.runs).summary()


@pytest.mark.parametrize("form", ["safetensors", "npz", "pt", "raw", "plain raw"])
def test_inputs_from_files_are_those_given_in_memory(made: Programs, tmp_path: Path, form: str) -> None:
    program = made("decoder")
    files: list[str] = []
    for run, (token, position) in enumerate(program.runs):
        path = tmp_path / f"step_{run}"
        if form == "safetensors":
            save_file({"token": token, "position": position}, path.with_suffix(".safetensors"))
            files.append(str(path.with_suffix(".safetensors")))
        elif form == "npz":
            np.savez(path.with_suffix(".npz"), token.numpy(), position.numpy())
            files.append(str(path.with_suffix(".npz")))
        elif form == "raw":
            for name, value, shape in (("token", token, "1x1"), ("position", position, "1")):
                (tmp_path / f"{name}_{run}.bin").write_bytes(value.numpy().tobytes())
                files.append(f"{tmp_path / name}_{run}.bin:int64:{shape}")
        elif form == "plain raw":
            for name, value in (("token", token), ("position", position)):
                (tmp_path / f"{name}_{run}.bin").write_bytes(value.numpy().tobytes())
                files.append(f"{tmp_path / name}_{run}.bin")
    if form == "pt":
        torch.save(program.runs, tmp_path / "runs.pt")
        files = [str(tmp_path / "runs.pt")]
    found = _load(program, files)
    assert found.gaps.equals(program.load("derived").gaps)


def test_the_commands_take_inputs(made: Programs, tmp_path: Path) -> None:
    program = made("decoder")
    torch.save(program.runs, tmp_path / "runs.pt")
    folder = tmp_path / "files"
    folder.mkdir()
    for kind in ("etdump", "etrecord", "debug_buffer"):
        shutil.copy(program.path(kind), folder)
    shutil.copy(program.program / "alone.pte", folder / "model.pte")
    for command in (["gaps", "--json"], ["why", "--json"], ["check", "--outputs", "--json", "-"]):
        arguments = [command[0], str(folder), *command[1:]]
        without = CliRunner().invoke(app, arguments)
        known = CliRunner().invoke(app, [*arguments, "--inputs", str(tmp_path / "runs.pt")])
        assert "can't be judged" in without.output or command[0] == "check"
        assert known.exit_code == 0, known.output
        assert "can't be judged" not in known.output
        json.loads(known.stdout)
    compared = CliRunner().invoke(app, ["compare", str(folder), str(folder), "--inputs", str(tmp_path / "runs.pt")])
    assert compared.exit_code == 0
    report = tmp_path / "report.html"
    assert (
        CliRunner()
        .invoke(app, ["report", str(folder), "-o", str(report), "--inputs", str(tmp_path / "x.pt")])
        .exception
    )
    assert not report.exists()


def test_bad_names_and_lengths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"12345678")
    for name, error in (("float33:1", "no dtype"), ("float32:3", "12")):
        with pytest.raises((ArtifactError, UsageError), match=error):
            read_inputs(f"{tmp_path / 'x.bin'}:{name}", graph=GRAPH)
    with pytest.raises(UsageError, match="takes 2 inputs, the files end after 1"):
        read_inputs([f"{tmp_path / 'x.bin'}:int64:1x1"], graph=GRAPH)
    with pytest.raises(ArtifactError, match="no such file"):
        read_inputs(f"{tmp_path / 'missing.bin'}:int64:1", graph=GRAPH)


def test_tensors_are_taken_by_the_names_of_the_inputs(tmp_path: Path) -> None:
    step = {"position": torch.tensor([2]), "token": torch.tensor([[7]])}
    save_file(step, tmp_path / "x.safetensors")
    torch.save(step, tmp_path / "x.pt")
    for name in ("x.safetensors", "x.pt"):
        ((token, position),) = read_inputs(tmp_path / name, graph=GRAPH)
        assert torch.equal(token, step["token"])
        assert torch.equal(position, step["position"])


def test_each_method_has_its_own_inputs(made: Programs) -> None:
    """The ETRecord's representative inputs are those of `forward`; `embed` was exported with inputs of its own."""
    program = made("method_embed")
    found = _load(program, way="handles")
    assert len(found.gaps)
    assert found.analysis.digest.level != "bad"


WAYS = ("exact", "derived", "handles")


class Shared(nn.Module):
    """Two methods over one buffer: one fills it, the other reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 4))
        self.cache: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.cache.add_(x)
        return torch.sin(self.cache) + x

    def fill(self, x: Tensor) -> Tensor:
        self.cache.copy_(x * 2)
        return torch.cos(x)


def _ran(programs: dict[str, Any], calls: list[tuple[Any, ...]], folder: Path, **planning: Any) -> list[Any]:
    """Lower methods and call them one after the other in Python; the files are in the folder. Their first outputs."""
    edge = to_edge_transform_and_lower(programs, generate_etrecord=True)
    manager = edge.to_executorch(ExecutorchBackendConfig(**planning))
    manager.save(str(folder / "model.pte"))
    etrecord = manager.get_etrecord()
    if len(programs) == 1:
        etrecord.update_representative_inputs(tuple(calls[0][1:]))
    etrecord.save(str(folder / "etrecord.bin"))
    etviz.record(edge, manager, folder / "model.etviz")
    program = Runtime.get().load_program(folder / "model.pte", enable_etdump=True, debug_buffer_size=1 << 16)
    outputs = []
    for name, *given in calls:
        method = program.load_method(name)
        assert method is not None
        outputs.append(method.execute(given)[0].clone())
    program.write_etdump_result_to_file(str(folder / "etdump.etdp"), str(folder / "debug_buffer.bin"))
    return outputs


def _read(folder: Path, way: str, method: str, inputs: Any = None) -> etviz.Inspection:
    files: dict[str, Any] = {kind: folder / f"{kind}.bin" for kind in ("etrecord", "debug_buffer")}
    if way != "handles":
        files["pte"] = folder / "model.pte"
    if way == "exact":
        files["record"] = folder / "model.etviz"
    return etviz.load(folder / "etdump.etdp", **files, method=method, inputs=inputs)


class Asked(nn.Module):
    """A decoder's step: it reads tokens, of which there may be any number, and what an encoder gave."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, tokens: Tensor, encoded: Tensor) -> Tensor:
        return torch.softmax(self.query(tokens) @ self.key(encoded).transpose(1, 2), -1) @ encoded


@pytest.mark.parametrize("way", ["exact", "derived", "handles"])
def test_another_number_of_tokens_is_another_input(way: str, tmp_path: Path) -> None:
    """Though what reads the other input gives what it gave before."""
    torch.manual_seed(0)
    encoded, first, second = torch.randn(1, 6, 8), torch.randn(1, 4, 8), torch.randn(1, 3, 8)
    shapes = {"tokens": {1: Dim("count", min=2, max=9)}, "encoded": None}
    program = export(Asked().eval(), (first, encoded), dynamic_shapes=shapes)
    _ran({"forward": program}, [("forward", first, encoded), ("forward", second, encoded)], tmp_path)
    found = _read(tmp_path, way, "forward")
    assert "give inputs= for each execution" in found.analysis.digest.verdict
    known = _read(tmp_path, way, "forward", [(first, encoded), (second, encoded)])
    assert "Both final outputs match" in known.analysis.digest.verdict


def test_state_that_methods_share_is_said_to_be_unknown(tmp_path: Path) -> None:
    model, x = Shared().eval(), torch.full((2, 4), 0.5)
    programs = {"forward": export(model, (x,))}
    model.forward = model.fill
    programs["fill"] = export(model, (x,))
    planning = {
        "memory_planning_pass": MemoryPlanningPass(share_mutable_buffers=True),
        "emit_mutable_buffer_names": True,
    }
    _ran(programs, [("forward", x), ("fill", x), ("forward", x)], tmp_path, **planning)
    (tmp_path / "model.etviz").unlink()
    states = [method.state for method in read_program(tmp_path / "model.pte").methods]
    assert states[0] == states[1]
    assert list(states[0].values()) == ["cache"]
    found = _read(tmp_path, "derived", "forward", [(x,), (x,)])
    assert "1 of 2 executions can't be judged" in found.summary()
    assert "The state cache is shared with another method" in found.summary()
    before, after = (part for _, part in found.gaps.groupby("event_block"))
    assert before["severity"].notna().all()
    assert after["severity"].isna().all()
    assert after["reason"].str.contains("the state cache is shared with another method").all()
    reads = after[after["op"].str.startswith("aten::add")].iloc[0]
    assert np.isnan(reads["introduced_severity"]), "what it read is not known"


@pytest.mark.parametrize("kept", [True, False])
def test_state_that_another_method_wrote_over_is_no_operators_fault(tmp_path: Path, kept: bool) -> None:
    """Python's runtime gives all methods of a program the same memory, though each was planned by itself."""
    x, other = torch.full((2, 4), 0.5), torch.full((1 if kept else 64, 4), 0.5)
    programs = {"forward": export(Shared(), (x,)), "cosine": export(Cosine(), (other,))}
    outputs = _ran(programs, [("forward", x), ("forward", x), ("cosine", other), ("forward", x)], tmp_path)
    assert torch.allclose(outputs[3], torch.sin(3 * x) + x) == kept
    for way in WAYS:
        found = _read(tmp_path, way, "forward", [(x,)] * 3)
        first, second, third = (part for _, part in found.gaps.groupby("event_block"))
        assert first["severity"].notna().all()
        assert second["severity"].notna().all()
        assert third["severity"].notna().all() == kept
        assert found.first_divergence is None
        assert ("is not what the method left there" in found.summary()) != kept
        assert found.analysis.digest.level == ("ok" if kept else "warn")


class Cosine(nn.Module):
    """A method without state."""

    def forward(self, x: Tensor) -> Tensor:
        """One kernel."""
        return torch.cos(x)


class Head(nn.Module):
    """A method with weights of its own."""

    def __init__(self, seed: int, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Two layers."""
        return self.second(torch.tanh(self.first(x)))


def test_executions_of_methods_that_call_alike_are_not_mistaken(tmp_path: Path) -> None:
    """An ETDump names no method: those of two heads with other weights look the same."""
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    programs = {"one": export(Head(1), (x,)), "other": export(Head(2), (x,))}
    _ran(programs, [("one", x), ("other", x)], tmp_path)
    for way in WAYS:
        found = _read(tmp_path, way, "one")
        assert found.first_divergence is None
        assert found.analysis.digest.level == "unknown"
        assert "executions of one or of other, whose calls are alike" in found.summary()
        assert found.gaps["severity"].isna().all()
        with pytest.raises(UsageError, match=r"ETDump holds 2 executions; these are executions of one or of other"):
            _read(tmp_path, way, "one", [(x,)] * 3)
    _ran(programs, [("other", x)], tmp_path)
    for way in WAYS:
        alone = _read(tmp_path, way, "other")
        assert alone.analysis.digest.level == "ok"
        assert alone.gaps["severity"].notna().all()


class Halves(nn.Module):
    """Its first operators compute in fp16, which an ETDump of Python's runtime logs nothing of."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4).half()

    def forward(self, x: Tensor) -> Tensor:
        """The product is the first value that is logged."""
        return torch.tanh(torch.tanh(self.linear(x)).float() * 0.5) * 2


def test_what_follows_from_unknown_inputs_through_others_is_not_judged(tmp_path: Path) -> None:
    """With the ETRecord alone operators are evaluated together with those before them, from the program's inputs."""
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).half()
    programs = {"forward": export(Halves(), (x,)), "cosine": export(Cosine(), (x.float(),))}
    _ran(programs, [("forward", x), ("forward", x + 1)], tmp_path)
    found = _read(tmp_path, "handles", "forward")
    assert "None of the 2 executions can be judged" in found.summary()
    assert found.first_divergence is None
    known = _read(tmp_path, "handles", "forward", [(x,), (x + 1,)])
    assert known.gaps["introduced_severity"].notna().all()
    first = found.gaps["instruction"] == known.gaps["instruction"].min()
    assert found.gaps.loc[first, "introduced_severity"].isna().all()
    assert found.gaps.loc[~first, "introduced_severity"].notna().all(), "what reads logged values is known"


def test_methods_are_told_apart_by_what_the_etrecord_tells(tmp_path: Path) -> None:
    """Without the program: by names of kernels and shapes of values, and only the method's own count."""
    wide, narrow = torch.ones(2, 6), torch.ones(2, 4)
    programs = {"wide": export(Head(1, 6), (wide,)), "narrow": export(Head(2), (narrow,))}
    _ran(programs, [("wide", wide), ("narrow", narrow), ("narrow", 2 * narrow)], tmp_path)
    for way in ("derived", "handles"):
        for method, inputs in (("wide", [(wide,)]), ("narrow", [(narrow,), (2 * narrow,)])):
            found = _read(tmp_path, way, method, inputs)
            assert found.analysis.digest.level == "ok"
            assert len(found.outputs) == len(inputs)
            assert len(found.coverage) == len(_read(tmp_path, "exact", method, inputs).coverage)
