"""Whether the answer changed: the classes with the largest scores, against NumPy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import etviz
from etviz.analysis.answer import answer, is_scores
from tests.programs import FILES, Executed


def test_top_1_and_top_5_are_numpys() -> None:
    random = np.random.default_rng(0)
    for classes in (2, 5, 6, 40):
        for spread in (0.0, 0.3, 3.0):
            reference = random.normal(size=(1, classes)).astype(np.float32)
            runtime = (reference + spread * random.normal(size=reference.shape)).astype(np.float32)
            text = answer([(torch.from_numpy(reference), torch.from_numpy(runtime))])
            first, now = int(np.argsort(reference[0])[-1]), int(np.argsort(runtime[0])[-1])
            said = f"top-1 changes from {first} to {now}" if first != now else f"top-1 is the same ({first})"
            assert text.startswith(said)
            five = [set(np.argsort(side[0])[-5:].tolist()) for side in (reference, runtime)]
            assert ("top-5" in text) == (classes > 5)
            assert ("top-5 the same" in text) == (classes > 5 and five[0] == five[1])


def test_several_executions_are_counted() -> None:
    scores = torch.eye(4)
    pairs = [(scores[k : k + 1], scores[(k + (k == 1)) : (k + (k == 1)) + 1]) for k in range(4)]
    assert answer(pairs) == "top-1 is the same in 3 of 4 rows"


@pytest.mark.parametrize("shape", [(7, 9), (1, 7, 9)])
def test_rows_of_a_batch_and_positions_of_a_text_are_counted(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    reference = random.normal(size=shape).astype(np.float32)
    runtime = (reference + 0.3 * random.normal(size=shape)).astype(np.float32)
    rows, others = reference.reshape(7, 9), runtime.reshape(7, 9)
    same = int((rows.argmax(1) == others.argmax(1)).sum())
    five = sum(set(np.argsort(a)[-5:]) == set(np.argsort(b)[-5:]) for a, b in zip(rows, others, strict=True))
    assert 0 < five < 7
    pair = torch.from_numpy(reference), torch.from_numpy(runtime)
    assert answer([pair]) == f"top-1 is the same in {same} of 7 rows, top-5 in {five} of 7"


def test_other_outputs_have_no_answer() -> None:
    values = [
        torch.zeros(2, 3, 4),
        torch.zeros(1, 1),
        torch.zeros(5),
        torch.zeros(0, 5),
        torch.zeros(1, 5, dtype=torch.int64),
        3.0,
        None,
    ]
    assert not any(map(is_scores, values))
    assert answer(zip(values, values, strict=True)) == ""
    assert answer([(torch.full((1, 3), torch.nan), torch.zeros(1, 3))]) == ""


def test_the_numbers_of_a_verdict_begin_with_it() -> None:
    torch.manual_seed(0)
    model, image = torch.nn.Sequential(torch.nn.Linear(8, 7), torch.nn.Softmax(-1)).eval(), torch.randn(1, 8)
    expected = int(model(image).argmax())
    assert f" (top-1 is the same ({expected}), top-5 the same; " in str(etviz.debug(model, (image,)))


def test_a_sum_has_no_best_class(executed: Callable[[str], Executed]) -> None:
    assert "top-1" not in str(executed("residual_cnn").inspection)


def _verdict(*layers: torch.nn.Module, **given: object) -> str:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 7), *layers).eval()
    return str(etviz.debug(model, (torch.randn(1, 8),), **given)).splitlines()[1]  # type: ignore[arg-type]


def test_numbers_that_nothing_tells_to_be_scores_have_no_best_class() -> None:
    """A regression ends in a linear layer, and a softmax over a batch is none over classes."""
    assert "top-1" not in _verdict()
    assert "top-1" not in _verdict(torch.nn.Softmax(0))
    assert "top-1" not in _verdict(torch.nn.Softmax(-1), torch.nn.Linear(7, 7))


@pytest.mark.parametrize("recipe", ["portable", "xnnpack-int8"])
@pytest.mark.parametrize("name", ["classifier", "output_layer"])
def test_the_name_of_the_last_layer_tells(recipe: str, name: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential()
    model.add_module("body", torch.nn.Linear(8, 8))
    model.add_module(name, torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(8, 7)))
    said = str(etviz.debug(model.eval(), (torch.randn(1, 8),), recipe)).splitlines()[1]
    assert ("top-1 is the same" in said) == (name == "classifier")


@pytest.mark.parametrize("recipe", ["portable", "xnnpack-int8"])
def test_a_softmax_tells(recipe: str) -> None:
    assert "top-1 is the same" in _verdict(torch.nn.LogSoftmax(1), recipe=recipe)


def test_a_softmax_of_a_graph_that_was_read_from_files_tells(tmp_path: Path) -> None:
    """Serialized graphs name all arguments."""
    made, read = tmp_path / "made", tmp_path / "read"
    verdict = _verdict(torch.nn.Softmax(1), workdir=made)
    read.mkdir()
    files: dict[str, Any] = {
        kind: shutil.copy(made / FILES[kind], read) for kind in ("etdump", "debug_buffer", "etrecord", "pte")
    }
    found = etviz.load(**files)
    assert found.analysis.findings.graph.nodes[-1].kwargs["dim"] == 1
    assert "top-1 is the same" in verdict
    assert str(found).splitlines()[1] == verdict


def test_the_task_tells() -> None:
    assert "(top-1 is the same (" in _verdict(task="top1")

    def largest(expected: list[torch.Tensor], found: list[torch.Tensor], label: object) -> float:
        return float(found[0].amax() - expected[0].amax()) + 3

    def broken(expected: list[torch.Tensor], found: list[torch.Tensor], label: object) -> float:
        raise ValueError("no such class")

    told = _verdict(task=[largest, "accuracy", broken])
    assert "largest 3, accuracy not known, broken not known (ValueError: no such class); max |error|" in told
    assert "(largest 3; " in _verdict(task=largest)


class _Shifted(nn.Module):
    """A group norm whose mean is large beside its deviation, in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.nn.functional.gelu(x) + 1000)


def test_an_output_that_rounding_may_destroy_is_not_called_wrong() -> None:
    """A one-pass variance may lose all digits here; the kernel loses some of them, and no operator is at fault."""
    torch.manual_seed(0)
    found = etviz.debug(_Shifted().half().eval(), (torch.randn(2, 8, 4, 4).half(),), "portable")
    assert not found.outputs["matches"].any()
    assert found.first_divergence is None
    verdict = found.summary().splitlines()[0]
    assert verdict.startswith("The final output can't be judged, because rounding"), verdict
    assert "most of it in instruction 3 (native_group_norm)" in verdict
    assert found.diagnosis()["level"] == "warn"
