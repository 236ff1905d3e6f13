"""Loops: every operator in the body of a `torch.map` or a `scan` is compared in all its rounds, and so is the rest."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir.backend.partitioner import Partitioner
from safetensors.torch import load_file
from torch import Tensor, nn
from torch._higher_order_ops.map import map as upstream_map
from torch._higher_order_ops.scan import scan

import etviz
from etviz.comparison.exact import compare_exact
from tests.kinds.test_delegate_in_branch import InBranches
from tests.shelf import Shelf

map_rows: Any = upstream_map  # which is annotated for no more than a tensor that is mapped
X = torch.linspace(-2, 2, 12).reshape(3, 4)
H = torch.tensor([0.5, -1.0, 2.0, 0.0])


class Mapped(nn.Module):
    """An operator before the loop, three in it, two after it."""

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        rows = map_rows(lambda row, other: torch.sin(row * other) + other, torch.exp(x), h)
        return torch.tanh(rows) * h


class Recurrent(nn.Module):
    """Two carries, two sequences, one operand; the last carries are read after the loop."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 0.5, -1.0, 2.0]))

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        def step(carries: tuple[Tensor, Tensor], rows: tuple[Tensor, Tensor]) -> Any:
            state, total = carries
            state = torch.tanh(state + rows[0])
            return (state, total + state * rows[1]), state * self.scale

        (state, total), results = scan(step, (h, h * h), (torch.exp(x), x))
        return results + total, torch.sigmoid(state)


class Nested(nn.Module):
    """A loop in a loop, and a branch in that: each round may take the other one."""

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        def body(row: Tensor, other: Tensor) -> Tensor:
            return torch.cond(row.sum() > 0, lambda y, z: torch.sin(y) * z, lambda y, z: torch.cos(y) + z, (row, other))

        rows = map_rows(lambda part, other: map_rows(body, part, other) - other, x.reshape(3, 2, 2), h[:2])
        return torch.exp(rows)


MODELS: dict[str, tuple[type[nn.Module], list[Partitioner]]] = {
    "mapped": (Mapped, []),
    "mapped_delegate": (Mapped, [InBranches()]),
    "recurrent": (Recurrent, []),
    "nested": (Nested, []),
}
Load = Callable[..., Any]


@pytest.fixture(scope="module")
def load(shelf: Shelf) -> Load:
    """Loads what `etviz.debug` kept of a model, of the kinds of files that are asked for."""

    def get(name: str, *kinds: str) -> Any:
        model, partitioner = MODELS[name]

        def make(folder: Path) -> None:
            importlib.import_module("executorch.backends.xnnpack.xnnpack_preprocess")  # registers the backend
            etviz.debug(model().eval(), (X, H), partitioner=partitioner or None, workdir=folder)

        folder = shelf.folder(f"loop_{name}", make)
        if "record" in kinds:
            return etviz.load(folder)
        files: dict[str, Any] = {"pte": folder / "model.pte", "etrecord": folder / "etrecord.bin"}
        apart = folder.parent / f"loop_{name}_{'_'.join(kinds)}"
        apart.mkdir(exist_ok=True)
        given: dict[str, Any] = {kind: shutil.copy(files[kind], apart) for kind in kinds}
        return etviz.load(folder / "etdump.etdp", debug_buffer=folder / "debug_buffer.bin", inputs=(X, H), **given)

    return get


def numbers(found: Any, instruction: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Reference and runtime value of an instruction in float64, and its row."""
    row = found.gaps.index[found.gaps["instruction"] == instruction][0]
    reference, runtime = found.tensors(row)
    return reference.double().numpy(), runtime.double().numpy(), found.gaps.loc[row]


def check(found: Any, expected: dict[int, Any]) -> None:
    """Hold every row against what NumPy computes in float64, and its figure against the two tensors."""
    assert set(found.gaps["instruction"]) == set(expected)
    assert (found.coverage["status"] == "compared").all()
    for instruction, value in expected.items():
        reference, runtime, row = numbers(found, instruction)
        assert row["shape"] == np.shape(value) == runtime.shape
        np.testing.assert_allclose(reference, value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(runtime, value, rtol=1e-5, atol=1e-6)
        assert row["rmse"] == pytest.approx(np.sqrt(np.mean((runtime - reference) ** 2)), rel=1e-6, abs=0)


x, h = X.double().numpy(), H.double().numpy()


@pytest.mark.parametrize("kinds", [("record",), ("pte", "etrecord")], ids="-".join)
def test_map(kinds: tuple[str, ...], load: Load) -> None:
    """Each operator of the body has a row of all rounds; what comes after the loop is compared too."""
    rows = np.exp(x)
    body = {2: rows, 3: rows * h, 4: np.sin(rows * h), 5: np.sin(rows * h) + h}
    after = {11: np.tanh(body[5]), 12: np.tanh(body[5]) * h}
    found = load("mapped", *kinds)
    check(found, {0: rows, **body, **after})
    assert set(found.gaps.set_index("instruction").loc[list(body), "reason"]) == {
        "executed 3 times in a loop, here one after the other"
    }
    # What was introduced follows from what the runtime had, round by round.
    sine, given = numbers(found, 4), numbers(found, 3)[1]
    local = torch.stack([torch.sin(row) for row in torch.from_numpy(given).float()]).double().numpy()
    assert sine[2]["introduced_rmse"] == pytest.approx(np.sqrt(np.mean((sine[1] - local) ** 2)), rel=1e-6)


@pytest.mark.parametrize("kinds", [("record",), ("pte", "etrecord")], ids="-".join)
def test_scan(kinds: tuple[str, ...], load: Load) -> None:
    """The carries of each round are those of the one before."""
    scale = np.array([1.0, 0.5, -1.0, 2.0])
    state, total = h, h * h
    rounds: list[list[Any]] = []
    for first, second in zip(np.exp(x), x, strict=True):
        summed = state + first
        state = np.tanh(summed)
        product = state * second
        total = total + product
        rounds.append([first, second, summed, state, product, total, state * scale, state, total])
    body = {5 + at: np.stack(values) for at, values in enumerate(zip(*rounds, strict=True))}
    before = {0: h * h, 1: np.exp(x), 3: h, 4: h * h}
    check(load("recurrent", *kinds), {**before, **body, 19: body[11] + total, 20: 1 / (1 + np.exp(-state))})


def test_a_branch_in_a_loop_in_a_loop(load: Load) -> None:
    """What is executed often has its executions along the first axis; a branch has those that took it."""
    rows, z = x.reshape(6, 2), h[:2]
    taken = rows.sum(1) > 0
    assert taken.tolist() == [False, False, False, True, True, True]
    sine, cosine = np.sin(rows[taken]), np.cos(rows[~taken])
    inner = np.concatenate([cosine + z, sine * z]).reshape(3, 2, 2)
    inside = {2: rows.reshape(3, 2, 2), 4: rows, 5: rows.sum(1), 6: taken, 20: inner - z}
    branches = {8: sine, 9: sine * z, 12: cosine, 13: cosine + z}
    found = load("nested", "record")
    check(found, {0: z, **inside, **branches, 26: np.exp(inner - z)})
    times = found.gaps.set_index("instruction")["reason"].str.extract(r"executed (\d) times", expand=False)
    assert times.fillna("1").astype(int).to_dict() == {
        **dict.fromkeys([0, 26], 1),
        **dict.fromkeys([2, 20, 8, 9, 12, 13], 3),
        **dict.fromkeys([4, 5, 6], 6),
    }


@pytest.mark.parametrize("kinds", [("pte",), ("etrecord",), ("pte", "etrecord")], ids="-".join)
@pytest.mark.parametrize("name", ["mapped_delegate", "nested"])
def test_without_the_record(name: str, kinds: tuple[str, ...], load: Load) -> None:
    """Where it is not known which operators a loop executes, the rest is compared, and the reason said."""
    found = load(name, *kinds)
    silent = found.coverage[found.coverage["status"] != "compared"]
    assert len(silent) > 0
    assert (silent["reason"] != "").all()
    before_and_after = {"mapped_delegate": [0, 9, 10], "nested": [0, 26]}[name]
    compared = found.gaps[found.gaps["status"] != "not compared"]
    assert list(compared["instruction"]) == (before_and_after if "etrecord" in kinds else [])
    if "etrecord" in kinds:
        assert (found.gaps["rmse"] < 1e-6).all()
        first = found.gaps.iloc[1]  # what the loop's operators added is not known to be its own
        assert "(map)" in first["reason"] or "getitem__all" in first["reason"]


@pytest.mark.parametrize(("instruction", "count"), [(4, 2), (4, 4), (3, 0)])
def test_values_that_do_not_go_with_the_rounds(instruction: int, count: int, load: Load) -> None:
    """Of an instruction that logged fewer or more values than there are rounds it is not known which are which."""
    replay = load("mapped", "record").analysis.tables.compared.replay
    (execution,) = replay.executions
    stored = execution.log._stored  # what an ETDump of another length holds
    stored[instruction] = (stored[instruction] * 2)[:count]
    found = compare_exact(replay.fresh(), execution.log, execution.inputs)
    assert instruction not in [gap.instruction for gap in found.gaps]
    reason = "how many values the runtime logged for it does not go together with its rounds"
    assert found.reasons == {instruction: reason if count else "the runtime logged no value for it"}
    assert len(found.gaps) == 6
    after = found.gaps[-1]
    assert after.metrics["rmse"] < 1e-6


def test_a_branch_that_only_the_runtime_takes_in_a_loop(load: Load) -> None:
    """The rounds in which the reference goes another way have no counterpart, and it is said how many these are."""
    replay = load("nested", "record").analysis.tables.compared.replay
    (execution,) = replay.executions
    condition = execution.log.values(6)
    assert [bool(value) for value in condition] == [False, False, False, True, True, True]
    inputs = [execution.inputs[0].clone(), execution.inputs[1]]
    inputs[0].view(6, 2)[4] *= -1  # of another run than the values: the reference takes the other branch once
    found = {gap.instruction: gap for gap in compare_exact(replay.fresh(), execution.log, inputs).gaps}
    assert {at: (gap.rounds, len(gap.runtime)) for at, gap in found.items() if at in (8, 13)} == {8: (3, 2), 13: (3, 3)}
    assert found[8].note == (
        "executed 3 times in a loop, here the 2 where the reference takes the same branch, one after the other"
    )
    rows = execution.inputs[0].view(6, 2)
    assert torch.equal(found[8].runtime, torch.sin(rows[[3, 5]]))
    assert found[8].metrics["rmse"] == 0.0
    assert tuple(found[20].runtime.shape) == (3, 2, 2)
    assert found[20].introduced is not None
    assert found[20].introduced["rmse"] == 0.0


def test_a_delegate_in_a_loop(load: Load, tmp_path: Path) -> None:
    """It is executed once a round; looking inside of it shows the last time."""
    found = load("mapped_delegate", "record")
    rows = np.exp(x)
    value = np.sin(rows * h) + h
    check(found, {0: rows, 2: rows, 3: value, 9: np.tanh(value), 10: np.tanh(value) * h})
    row = found.gaps.index[found.gaps["kind"] == "delegate"][0]
    inside = found.zoom(row)
    assert inside.faithful
    assert "executed 3 times in a loop; these are the values of the last time" in str(inside.summary())
    assert list(inside.gaps["reference_ops"]) == ["mul", "sin", "add"]
    np.testing.assert_allclose(inside.tensors(2)[1], value[-1], rtol=1e-5)
    assert (found.repro(row, tmp_path / "repro") / "model.pte").exists()


@pytest.mark.parametrize("name", MODELS)
def test_explanations(name: str, load: Load, tmp_path: Path) -> None:
    """Shares of the error, what the outputs would be, the view and its tree know loops."""
    found = load(name, "record")
    shares = found.attribution()
    assert shares.attrs["sum"] == pytest.approx(1, abs=0.05)
    after = found.what_if(list(found.gaps.index)).after
    assert (after["rmse"] == 0).all()
    assert len(found.time.ledger()) == len(found.coverage)
    assert any("(taken)" in label for label in found.tree.label) == (name == "nested")
    at = found.gaps.index[(found.gaps["reason"] != "") & (found.gaps["op"] != "aten::copy_")][-1]
    folder = found.repro(at, tmp_path / "repro")
    last, again = found.tensors(at)[1][-1], load_file(folder / "runtime.safetensors")["output_0"]
    assert torch.equal(again, last)
    assert torch.allclose(load_file(folder / "expected.safetensors")["output_0"], last, atol=1e-6)
    assert "times in a loop; this is the last time" in (folder / "README.md").read_text()
    page = found.to_html(tmp_path / "report.html")
    assert page is None or Path(page).exists()
