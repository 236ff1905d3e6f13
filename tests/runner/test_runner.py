"""What the C++ runner writes is what a run from Python writes, bit for bit."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.schema import bundled_program_schema as schema
from executorch.devtools.bundled_program.serialize import (
    _bundled_program_schema_to_flatbuffer,  # pyright: ignore[reportPrivateUsage]
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.scalar_type import ScalarType
from executorch.extension.pybindings.portable_lib import (
    _load_bundled_program_from_buffer,
)
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import etviz
from etviz.artifacts.program.program import read_program
from etviz.artifacts.program.raw_values import read_tensor, write_inputs
from etviz.errors import ArtifactError, ExecutionError, UsageError
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import save
from tests.cpp_runner import CppRunner
from tests.programs import Executed

PROGRAMS = ("plain_cnn", "residual_cnn", "digits_int8", "channels_last", "many_outputs")


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_a_run_from_python(
    name: str, executed: Callable[[str], Executed], runner: CppRunner, tmp_path: Path
):
    made = executed(name)
    method = read_program(made.path("pte")).method()
    files = write_inputs(tmp_path, tree_leaves(made.inputs), method)
    runner(tmp_path, "--model", made.path("pte"), "--inputs", ",".join(files), "--dump-intermediate-outputs")
    found = made.load(etdump=tmp_path / "etdump.etdp", debug_buffer=tmp_path / "debug_output.bin")
    expected = made.inspection
    assert len(found.gaps) == len(expected.gaps) > 2
    for row in range(len(found.gaps)):
        assert torch.equal(found.tensors(row)[1].nan_to_num(7), expected.tensors(row)[1].nan_to_num(7)), row
    assert found.outputs.drop(columns=["event_block"], errors="ignore").equals(
        expected.outputs.drop(columns=["event_block"], errors="ignore")
    )


def test_buffer_in_memory_holds_what_the_file_holds(
    executed: Callable[[str], Executed], runner: CppRunner, tmp_path: Path
):
    made = executed("residual_cnn")
    files = write_inputs(tmp_path, tree_leaves(made.inputs))
    common = ("--model", made.path("pte"), "--inputs", files[0], "--dump-intermediate-outputs")
    for name, more in {"file": (), "memory": ("--debug-buffer-size", "100000")}.items():
        runner(tmp_path, *common, "--etdump", f"{name}.etdp", "--debug-output", f"{name}.bin", *more)
    assert (tmp_path / "memory.bin").stat().st_size < 20_000
    loaded = [made.load(etdump=tmp_path / f"{n}.etdp", debug_buffer=tmp_path / f"{n}.bin") for n in ("file", "memory")]
    assert len(loaded[0].gaps) == len(made.inspection.gaps)
    np.testing.assert_array_equal(loaded[0].gaps.rmse, loaded[1].gaps.rmse)


def test_outputs_only(
    executed: Callable[[str], Executed], runner: CppRunner, release_runner: CppRunner, tmp_path: Path
):
    made = executed("residual_cnn")
    files = write_inputs(tmp_path, tree_leaves(made.inputs))
    common = ("--model", made.path("pte"), "--inputs", files[0])
    runner(tmp_path, *common, "--dump-program-outputs", "--outputs", "traced")
    release_runner(tmp_path, *common, "--outputs", "plain")
    assert (tmp_path / "traced-0.bin").read_bytes() == (tmp_path / "plain-0.bin").read_bytes()
    found = made.load(etdump=tmp_path / "etdump.etdp", debug_buffer=tmp_path / "debug_output.bin")
    assert len(found.gaps) == 0
    assert found.outputs.max_abs[0] == made.inspection.outputs.max_abs[0]


def test_release_build_has_no_trace_to_give(
    executed: Callable[[str], Executed], release_runner: CppRunner, tmp_path: Path
):
    made = executed("residual_cnn")
    said = release_runner(tmp_path, "--model", made.path("pte"), "--dump-intermediate-outputs", status=2)
    assert "built without the event tracer" in said
    assert list(tmp_path.iterdir()) == []


def test_every_execution_has_its_own_inputs_and_outputs(
    executed: Callable[[str], Executed], runner: CppRunner, tmp_path: Path
):
    made = executed("plain_cnn")
    runs = [(torch.randn_like(made.inputs[0]),) for _ in range(2)]
    files = [write_inputs(tmp_path, run, prefix=f"run{at}")[0] for at, run in enumerate(runs)]
    model = ("--model", made.path("pte"), "--inputs", ",".join(files), "--executions", "2", "--outputs", "out")
    runner(tmp_path, *model, "--dump-intermediate-outputs")
    found = made.load(
        etdump=tmp_path / "etdump.etdp", debug_buffer=tmp_path / "debug_output.bin", inputs=[*runs, *runs]
    )
    assert found.gaps.event_block.nunique() == 4
    assert found.outputs.allclose.eq(1).all()
    for at in range(4):
        expected = made.model(*runs[at % 2])
        output = read_tensor(tmp_path / f"out-{at}-0.bin", "float32", expected.shape)
        torch.testing.assert_close(output, expected)


class Accumulator(nn.Module):
    """Two methods that share a state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(4))
        self.state: Tensor

    def add(self, x: Tensor) -> Tensor:
        self.state.add_(x)
        return torch.sin(self.state)

    def scale(self, x: Tensor) -> Tensor:
        self.state.mul_(x)
        return torch.cos(self.state)


class _Method(nn.Module):
    def __init__(self, model: Accumulator, name: str) -> None:
        super().__init__()
        self.model = model
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.model, self._name)(x)


def test_methods_share_their_memory_if_asked(runner: CppRunner, tmp_path: Path):
    model, x = Accumulator(), torch.tensor([0.5, -1, 2, 3])
    exported = {name: torch.export.export(_Method(model, name), (x,)) for name in ("add", "scale")}
    config = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True), emit_mutable_buffer_names=True
    )
    to_edge_transform_and_lower(exported).to_executorch(config).save(str(tmp_path / "model.pte"))
    files = write_inputs(tmp_path, [x])
    arguments = ("--model", "model.pte", "--method", "add,scale", "--inputs", files[0], "--executions", "2")
    runner(tmp_path, *arguments, "--share-memory-arenas", "--outputs", "out")
    eager = Accumulator()
    expected = [eager.add(x), eager.scale(x), eager.add(x), eager.scale(x)]
    for at, value in enumerate(expected):
        torch.testing.assert_close(read_tensor(tmp_path / f"out-{at}-0.bin", "float32", (4,)), value)


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + 1


def _outside(folder: Path, model: nn.Module, x: Tensor) -> Path:
    """A program whose weights are in a file of their own, with its record; that file."""
    edge = to_edge_transform_and_lower(torch.export.export(model, (x,)), generate_etrecord=True)
    manager = edge.to_executorch(ExecutorchBackendConfig(external_constants=True))
    return save(manager, (x,), folder, {}).data or Path()


def test_weights_outside_of_the_program(runner: CppRunner, tmp_path: Path):
    model, x = Linear(), torch.randn(2, 4)
    data = _outside(tmp_path, model, x)
    files = write_inputs(tmp_path, [x])
    common = ("--model", "model.pte", "--inputs", files[0])
    runner(tmp_path, *common, "--data", data, "--outputs", "out")
    torch.testing.assert_close(read_tensor(tmp_path / "out-0.bin", "float32", (2, 3)), model(x))
    assert "failed" in runner(tmp_path, *common, status=2)


def test_weights_outside_of_the_program_in_python(tmp_path: Path):
    model, x = Linear(), torch.randn(2, 4)
    data = _outside(tmp_path, model, x)
    run = execute(tmp_path / "model.pte", [[x]], workdir=tmp_path, data=data)
    torch.testing.assert_close(run.outputs[0][0], model(x))
    with pytest.raises(ExecutionError):
        execute(tmp_path / "model.pte", [[x]], workdir=tmp_path)
    inspection = etviz.load(tmp_path)  # the folder's .ptd is taken
    assert inspection.analysis.findings.files["data"] == str(data)
    assert (inspection.gaps.rmse < 1e-6).all()
    etviz.load(tmp_path, data=data)
    other = copy.deepcopy(model)  # another version of the same weights
    with torch.no_grad():
        other.linear.weight += 0.01 * torch.randn(3, 4)
    elsewhere = tmp_path / "other"
    stale = _outside(elsewhere, other, x)
    (difference,) = etviz.load(tmp_path, data=stale).analysis.findings.constants
    assert difference.name.endswith("linear.weight")
    changed = (other.linear.weight - model.linear.weight).abs().max().item()
    assert difference.max_abs == pytest.approx(changed, rel=1e-5)
    stale.write_bytes(stale.read_bytes()[:-8])
    with pytest.raises(ArtifactError, match="truncated"):
        etviz.load(tmp_path, data=stale)
    with pytest.raises(ArtifactError, match=r"\.ptd"):
        etviz.load(tmp_path, data=tmp_path / "model.pte")
    with pytest.raises(UsageError, match=r"data= is part of a program"):
        etviz.load(tmp_path / "etdump.etdp", data=data)
    two = _outside(elsewhere, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), x)
    with pytest.raises(ArtifactError, match=r"does not hold .*linear"):
        etviz.load(tmp_path, data=two)
    two.write_bytes(two.read_bytes().replace(b"0.weight", b"1.weight"))
    with pytest.raises(ArtifactError, match=r"holds \S*1\.weight twice"):
        etviz.load(tmp_path, data=two)


def _bundle(folder: Path, wrong: int | None = None) -> tuple[Path, list[tuple[Tensor]], nn.Module]:
    """A bundle with three test sets, of which one may expect another output."""
    model = Linear()
    inputs = [(torch.randn(2, 4),) for _ in range(3)]
    expected = [model(*item).detach() for item in inputs]
    if wrong is not None:
        expected[wrong][1, 2] += 0.25
    manager = to_edge_transform_and_lower(torch.export.export(model, inputs[0])).to_executorch()
    cases = [MethodTestCase(item, output) for item, output in zip(inputs, expected, strict=True)]
    path = folder / "model.bpte"
    path.write_bytes(
        serialize_from_bundled_program_to_flatbuffer(BundledProgram(manager, [MethodTestSuite("forward", cases)]))
    )
    return path, inputs, model


def test_bundle_is_verified_as_upstream_verifies_it(runner: CppRunner, tmp_path: Path):
    path, inputs, model = _bundle(tmp_path, wrong=1)
    common = ("--model", path, "--output-verification", "--outputs", "out")
    said = runner(tmp_path, *common, status=1)
    assert "forward, test set 0: verified" in said
    assert "forward, test set 1: output 0 differs in 1 of 6 elements, first at 5" in said
    assert "forward, test set 2: verified" in said
    runner(tmp_path, *common, "--atol", "0.5")
    runner(tmp_path, *common, "--rtol", "0", "--atol", "0", status=1)
    upstream = _load_bundled_program_from_buffer(path.read_bytes())
    for k, item in enumerate(inputs):
        if k == 1:
            with pytest.raises(RuntimeError):
                upstream.verify_result_with_bundled_expected_output("forward", k, 1e-5, 1e-8)
        else:
            upstream.verify_result_with_bundled_expected_output("forward", k, 1e-5, 1e-8)
        found = read_tensor(tmp_path / f"out-{k}-0.bin", "float32", (2, 3))
        torch.testing.assert_close(found, model(*item))


class Several(nn.Module):
    """Gives a tensor, a number, a truth value, and an integer."""

    def forward(self, x: Tensor) -> tuple[Tensor, float, bool, int]:
        return x + 1, 0.5, True, 7


def _value(item: Tensor | float | bool | int) -> schema.Value:
    if isinstance(item, Tensor):
        content = item.numpy().tobytes()
        order: Any = [*range(item.dim())]
        return schema.Value(schema.Tensor(ScalarType.FLOAT, [*item.shape], content, order))
    kinds = {int: schema.Int, bool: schema.Bool, float: schema.Double}
    return schema.Value(kinds[type(item)](item))


WRONG = {
    "as the model": ((0.5, True, 7), ""),
    "float": ((0.75, True, 7), "output 1 is 0.5 instead of 0.75"),
    "float within tolerance": ((0.5004, True, 7), ""),
    "bool": ((0.5, False, 7), "output 2 is 1 instead of 0"),
    "int": ((0.5, True, 8), "output 3 is 7 instead of 8"),
    "kind": ((0.5, True, 7.0), "output 3 is of another kind than expected"),
}


@pytest.mark.parametrize(("expected", "message"), WRONG.values(), ids=WRONG)
def test_outputs_that_are_no_tensors_are_verified(
    expected: tuple[float | bool | int, ...], message: str, runner: CppRunner, tmp_path: Path
):
    exported = torch.export.export(Several(), (torch.ones(2),))
    inputs, outputs = (_value(torch.ones(2)),), (_value(2 * torch.ones(2)), *map(_value, expected))
    case = schema.BundledMethodTestCase([*inputs], [*outputs])
    program = to_edge_transform_and_lower(exported).to_executorch().buffer
    bundled = schema.BundledProgram(0, [schema.BundledMethodTestSuite("forward", [case])], program)
    (tmp_path / "model.bpte").write_bytes(_bundled_program_schema_to_flatbuffer(bundled))
    said = runner(tmp_path, "--model", "model.bpte", "--output-verification", status=1 if message else 0)
    assert message in said
    assert ("verified" in said) == (not message)


def test_the_flags_of_the_tutorial_work(runner: CppRunner, tmp_path: Path):
    """The command of ExecuTorch's tutorial on debugging, and its other flags, under both spellings."""
    path, inputs, model = _bundle(tmp_path, wrong=1)
    flags = (f"--bundled_program_path={path}", "--dump_intermediate_outputs", "--debug_buffer_size=1048576")
    assert "test set 1: output 0 differs" in runner(tmp_path, *flags, "--output_verification", status=1)
    runner(tmp_path, *flags, "--output_verification", "--testset_idx=2", "--etdump_path", "a", "--debug_output_path=b")
    found = etviz.load(tmp_path / "a", debug_buffer=tmp_path / "b", pte=path)
    assert list(found.coverage.event_block.unique()) == [1]
    names = ("--bundled_program_path", path, "--testset_idx", "0", "--outputs", "out", "--output_verification=true")
    assert "test set 0: verified" in runner(tmp_path, *names)
    torch.testing.assert_close(read_tensor(tmp_path / "out-0.bin", "float32", (2, 3)), model(*inputs[0]))
    assert "3 test sets" in runner(tmp_path, *flags, "--testset_idx", "3", status=2)
    assert "true or false, found 'maybe'" in runner(tmp_path, *flags, "--output_verification=maybe", status=2)


def test_default_tolerances_are_those_of_the_documents(runner: CppRunner, tmp_path: Path):
    path, *_ = _bundle(tmp_path)
    content = path.read_bytes()
    for factor, status in ((1 + 8e-4, 0), (1 + 3e-3, 1)):
        bundled = deserialize_from_flatbuffer_to_bundled_program(content)
        for case in bundled.method_test_suites[0].test_cases:
            tensor = case.expected_outputs[0].val
            assert isinstance(tensor, schema.Tensor)
            tensor.data = (np.frombuffer(bytes(tensor.data), np.float32) * np.float32(factor)).tobytes()
        path.write_bytes(_bundled_program_schema_to_flatbuffer(bundled))
        runner(tmp_path, "--model", path, "--output-verification", status=status)


def test_bundle_is_loaded_with_its_own_inputs(runner: CppRunner, tmp_path: Path):
    path, *_ = _bundle(tmp_path)
    runner(tmp_path, "--model", path, "--dump-intermediate-outputs")
    found = etviz.load(tmp_path / "etdump.etdp", debug_buffer=tmp_path / "debug_output.bin", pte=path)
    assert list(found.coverage.event_block.unique()) == [1, 2, 3]
    assert found.summary().count("There is no reference")


MISTAKES = {
    "no model": ((), "--model is missing"),
    "no such file": (("--model", "missing.pte"), "there is no file missing.pte"),
    "not a program": (("--model", "input-0.bin"), "loading input-0.bin failed"),
    "no such method": (("--model", "model.pte", "--method", "other"), "looking for the method other failed"),
    "option": (("--model", "model.pte", "--fast"), "no option --fast"),
    "no value": (("--model",), "--model needs a value"),
    "number": (("--model", "model.pte", "--executions", "-1"), "--executions takes a whole number, found '-1'"),
    "no such input": (("--model", "model.pte", "--inputs", "input-0.bin,a"), "there is no file a"),
    "short file": (("--model", "model.pte", "--inputs", "short.bin"), "short.bin has 3 bytes, the input takes 1536"),
    "no bundle": (("--model", "model.pte", "--output-verification"), "needs a .bpte"),
    "no folder": (("--model", "model.pte", "--etdump", "no/such/x.etdp"), "no/such/x.etdp can't be written"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_one_line(
    arguments: tuple[str, ...], message: str, executed: Callable[[str], Executed], runner: CppRunner, tmp_path: Path
):
    made = executed("plain_cnn")
    (tmp_path / "model.pte").write_bytes(made.path("pte").read_bytes())
    write_inputs(tmp_path, made.inputs)
    (tmp_path / "short.bin").write_bytes(b"abc")
    said = runner(tmp_path, *arguments, status=2)
    line = next(line for line in said.splitlines() if line.startswith("etviz_runner: "))
    assert message in line


def _damage(content: bytes, random: np.random.Generator) -> bytes:
    """A file with some of its bits, bytes, offsets or its end changed."""
    changed, at = bytearray(content), int(random.integers(len(content) - 8))
    kind = random.integers(4)
    if kind == 0:
        changed[at] ^= 1 << int(random.integers(8))
    elif kind == 1:
        del changed[max(at, 8) :]
    elif kind == 2:
        changed[at & ~3 : (at & ~3) + 4] = int(random.choice([0, 1, 2**31 - 1, 2**32 - 1, at])).to_bytes(4, "little")
    else:
        changed[at & ~7 : (at & ~7) + 8] = int(random.choice([2**40, 2**63 - 1, len(content)])).to_bytes(8, "little")
    return bytes(changed)


def test_damaged_bundle_ends_with_a_status(runner: CppRunner, tmp_path: Path):
    """No signal, and no endless run: 0 where the damage hits nothing, 1 where it hits an expected output."""
    content, random = _bundle(tmp_path)[0].read_bytes(), np.random.default_rng(3)
    ends = []
    for _ in range(120):
        (tmp_path / "damaged.bpte").write_bytes(_damage(content, random))
        command = [str(runner.path), "--model", "damaged.bpte", "--output-verification"]
        ends.append(subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False))
    assert {ended.returncode for ended in ends} == {0, 1, 2}
    assert all(b"etviz_runner: " in ended.stderr for ended in ends if ended.returncode == 2)


def test_bundle_that_repeats_a_vector_is_refused(runner: CppRunner, tmp_path: Path):
    """A thousand suites of a thousand cases of a thousand inputs, in 13 kB: each vector is there once."""
    builder = flatbuffers.Builder()

    def vector(item: int) -> int:
        builder.StartVector(4, 1000, 4)
        for _ in range(1000):
            builder.PrependUOffsetTRelative(item)
        return builder.EndVector()

    def table(*fields: int) -> int:
        builder.StartObject(3)
        for slot, field in enumerate(fields):
            if field:
                builder.PrependUOffsetTRelativeSlot(slot, field, 0)
        return builder.EndObject()

    cases = vector(table(vector(table())))
    suites = vector(table(builder.CreateString("forward"), cases))
    builder.Finish(table(0, suites, builder.CreateByteVector(bytes(64))), file_identifier=b"BP08")
    (tmp_path / "small.bpte").write_bytes(builder.Output())
    assert "damaged" in runner(tmp_path, "--model", "small.bpte", status=2)


def test_header_that_points_beyond_the_program_is_refused(
    executed: Callable[[str], Executed], runner: CppRunner, tmp_path: Path
):
    content = bytearray(executed("plain_cnn").path("pte").read_bytes())
    for at in (16, 24, 32):  # its size, where its segments are, and their size
        changed = bytearray(content)
        changed[at : at + 8] = (2**40).to_bytes(8, "little")
        (tmp_path / "model.pte").write_bytes(changed)
        assert "its header points beyond its end" in runner(tmp_path, "--model", "model.pte", status=2)


def test_tables_of_a_program_are_verified_before_they_are_followed(
    executed: Callable[[str], Executed], runner: CppRunner, tmp_path: Path
):
    content, said = executed("plain_cnn").path("pte").read_bytes(), b""
    for at in range(48, 800, 24):  # offsets that lead out of the program
        changed = content[:at] + (0x7FFFFFF0).to_bytes(4, "little") + content[at + 4 :]
        (tmp_path / "model.pte").write_bytes(changed)
        command = [str(runner.path), "--model", "model.pte"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
        assert ended.returncode in (0, 2)
        said += ended.stderr
    assert b"Verification failed" in said
    assert b"Error::InvalidProgram" in said
