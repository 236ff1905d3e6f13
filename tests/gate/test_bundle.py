"""Bundles are written, run and judged as upstream does it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer
from executorch.exir import ExecutorchProgramManager, to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import _load_bundled_program_from_buffer
from torch import Tensor, nn
from typer.testing import CliRunner

import etviz
from etviz.artifacts.program.bundled_program import BundledTensor, read_bundled_program
from etviz.cli.app import app
from etviz.errors import ArtifactError, UsageError


class Mixed(nn.Module):
    """Float, integer and 16-bit outputs, and a plain number among the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, factor: int) -> tuple[Tensor, ...]:
        y = self.linear(x) * factor
        return y, y.argmax(-1), y.half(), y.to(torch.bfloat16)


def _inputs(count: int = 3) -> list[tuple[Any, ...]]:
    return [(torch.randn(2, 4), 2) for _ in range(count)]


def _lower(model: nn.Module, inputs: tuple[Any, ...]) -> ExecutorchProgramManager:
    return to_edge_transform_and_lower(torch.export.export(model.eval(), inputs)).to_executorch()


@dataclass(frozen=True)
class Lowered:
    """The model, lowered once for all tests, and two inputs."""

    model: nn.Module
    inputs: list[tuple[Any, ...]]
    manager: ExecutorchProgramManager

    def expected(self) -> list[list[Tensor]]:
        """The eager outputs, to be changed."""
        return [[value.detach().clone() for value in self.model(*given)] for given in self.inputs]


@pytest.fixture(scope="module")
def mixed() -> Lowered:
    torch.manual_seed(0)
    model, inputs = Mixed().eval(), _inputs(2)
    return Lowered(model, inputs, _lower(model, inputs[0]))


@pytest.fixture(scope="module")
def given(mixed: Lowered, tmp_path_factory: pytest.TempPathFactory) -> list[list[Tensor]]:
    """What the runtime gives, so that only a change is off."""
    plain = etviz.bundle(mixed.manager, mixed.inputs, tmp_path_factory.mktemp("bundle") / "plain.bpte")
    assert len(etviz.verify(plain, rtol=0, atol=0)) == 8
    module = _load_bundled_program_from_buffer(plain.read_bytes())
    found = []
    for test_set in range(2):
        try:
            outputs = module.verify_result_with_bundled_expected_output("forward", test_set, 1e-2, 1e-1)
        except RuntimeError as error:
            pytest.fail(str(error))
        found.append([item.clone() for item in outputs])
    return found


def _upstream_verdict(path: Path, test_set: int, rtol: float, atol: float) -> bool:
    module = _load_bundled_program_from_buffer(path.read_bytes())
    try:
        module.verify_result_with_bundled_expected_output("forward", test_set, rtol, atol)
    except RuntimeError:
        return False
    return True


def test_bundle_of_a_model_holds_its_inputs_and_eager_outputs(tmp_path: Path):
    model, inputs = Mixed().eval(), _inputs()
    path = etviz.bundle(model, inputs, tmp_path / "model.bpte")
    cases = read_bundled_program(path).suites["forward"]
    assert len(cases) == 3
    for case, given in zip(cases, inputs, strict=True):
        x, factor = case.input_values()
        assert factor == 2
        assert torch.equal(x, given[0])
        for stored, expected in zip(case.expected_outputs, model(*given), strict=True):
            assert isinstance(stored, BundledTensor)
            assert torch.equal(stored.tensor(), expected)
    table = etviz.verify(path, rtol=1e-3, atol=1e-2)
    assert table.verified.all()
    assert list(table.test_set) == [0] * 4 + [1] * 4 + [2] * 4


def test_bundle_of_a_program_is_upstreams_bundle(mixed: Lowered, tmp_path: Path):
    manager, inputs, expected = mixed.manager, mixed.inputs, mixed.expected()
    path = etviz.bundle(manager, {"forward": inputs}, tmp_path / "ours.bpte", expected={"forward": expected})
    cases = [MethodTestCase(*pair) for pair in zip(inputs, expected, strict=True)]
    theirs = serialize_from_bundled_program_to_flatbuffer(BundledProgram(manager, [MethodTestSuite("forward", cases)]))
    assert path.read_bytes() == theirs
    computed = read_bundled_program(etviz.bundle(manager, inputs, tmp_path / "computed.bpte")).suites["forward"]
    for case, outputs in zip(computed, expected, strict=True):
        for found, output in zip(case.expected_outputs, outputs, strict=True):
            assert isinstance(found, BundledTensor)
            torch.testing.assert_close(found.tensor(), output)


SPOILED = {
    "equal": (0, 0.0, 1e-5, 1e-8),
    "off": (0, 1.0, 1e-5, 1e-8),
    "within the tolerance": (0, 1.0, 1e-5, 2.0),
    "exactly": (0, 0.0, 0.0, 0.0),
    "index": (1, 1, 1e-5, 5.0),
    "half": (2, 0.5, 1e-5, 1e-8),
    "half within the tolerance": (2, 0.5, 0.0, 0.6),
    "bfloat16 is compared bit for bit": (3, 0.5, 0.0, 5.0),
    "nan": (0, float("nan"), 1e-5, 5.0),
    "inf": (0, float("inf"), 1e-5, 5.0),
}


@pytest.mark.parametrize("case", SPOILED.values(), ids=SPOILED)
def test_verdict_is_upstreams(
    case: tuple[int, float, float, float], mixed: Lowered, given: list[list[Tensor]], tmp_path: Path
):
    output, change, rtol, atol = case
    expected = copy.deepcopy(given)
    expected[1][output].view(-1)[2 if output != 1 else 1] += change
    path = etviz.bundle(mixed.manager, mixed.inputs, tmp_path / "model.bpte", expected=expected)
    table = etviz.verify(path, rtol=rtol, atol=atol)
    for test_set in range(2):
        ours = bool(table[table.test_set == test_set].verified.all())
        assert ours == _upstream_verdict(path, test_set, rtol, atol), table
    wrong = table[~table.verified.astype(bool)]
    if len(wrong):
        row = wrong.iloc[0]
        assert (row.test_set, row.output, row.off) == (1, output, 1)
        assert row["index"] == np.unravel_index(2 if output != 1 else 1, row["shape"])
        if output == 0 and np.isfinite(change):
            assert row["expected"] - row["found"] == pytest.approx(change, rel=1e-6)


def test_command_says_which_element_is_off(mixed: Lowered, tmp_path: Path):
    expected = mixed.expected()
    expected[1][0][1, 2] += 3
    path = etviz.bundle(mixed.manager, mixed.inputs, tmp_path / "model.bpte", expected=expected)
    ended = CliRunner().invoke(app, ["verify", str(path), "--atol", "0.1"])
    assert ended.exit_code == 1
    assert "FAILED forward, test set 1, output 0: 1 of 6 elements are off, the worst at [1, 2]" in ended.stdout
    assert CliRunner().invoke(app, ["verify", str(path), "--atol", "4"]).exit_code == 0


def test_mistakes_are_said(mixed: Lowered, tmp_path: Path):
    model, inputs = mixed.model, mixed.inputs[:1]
    path = tmp_path / "model.bpte"
    with pytest.raises(UsageError, match="a list of tuples"):
        etviz.bundle(model, 3, path)
    with pytest.raises(UsageError, match="method forward only"):
        etviz.bundle(model, {"other": inputs}, path)
    with pytest.raises(UsageError, match="has no reference"):
        etviz.bundle(tmp_path / "model.pte", inputs, path)
    with pytest.raises(UsageError, match="expected= has 2"):
        etviz.bundle(model, inputs, path, expected=[(torch.ones(1),)] * 2)
    with pytest.raises(UsageError, match="found int"):
        etviz.bundle(5, inputs, path)  # pyright: ignore[reportArgumentType]
    assert not path.exists()
    with pytest.raises(ArtifactError, match="no such file"):
        etviz.verify(path)
    with pytest.raises(UsageError, match="rtol must be a finite number"):
        etviz.verify(path, rtol=-1)
    etviz.bundle(mixed.manager, inputs, path)
    with pytest.raises(UsageError, match="no test sets of the method 'other'"):
        etviz.verify(path, method="other")


def test_outputs_of_another_shape_are_not_compared(mixed: Lowered, tmp_path: Path):
    program, inputs, outputs = mixed.manager, mixed.inputs[:1], mixed.expected()[0]
    path = etviz.bundle(program, inputs, tmp_path / "a.bpte", expected=[(outputs[0][:1], *outputs[1:])])
    row = etviz.verify(path).iloc[0]
    assert not row.verified
    assert row.reason == "the expected output is float32 (1, 3), the program gives float32 (2, 3)"
    path = etviz.bundle(program, inputs, tmp_path / "b.bpte", expected=[outputs[:2]])
    row = etviz.verify(path).iloc[0]
    assert not row.verified
    assert row.reason == "the test set has 2 expected outputs, the program gives 4"
