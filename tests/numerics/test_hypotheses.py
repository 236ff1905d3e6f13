"""Each planted change of an operator or a weight is named, in words a reader can act on, and nothing else is said."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.extension.llm.custom_ops import custom_ops as _  # noqa: F401 - registers llama::custom_sdpa
from torch import Tensor, nn

import etviz
from etviz.artifacts.record.checksum import checksum_of
from etviz.artifacts.record.record_file import read_record, write_record
from etviz.tensors.fingerprints import SETTING
from etviz.tensors.fingerprints import WEIGHTS as OTHER_WEIGHTS

Function = Callable[..., Tensor]


class Applied(nn.Module):
    """A function of the inputs, between two operators that keep it from being the whole program."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Tensor) -> Tensor:
        return torch.relu(self.function(*(torch.sin(x) * 3 for x in given)))


def run_against(
    right: nn.Module, wrong: nn.Module, inputs: tuple[Tensor, ...], folder: Path, **options: Any
) -> etviz.Inspection:
    """A run of one program beside the record of another, whose operators are the same but for what was planted."""
    for name, model in (("right", right), ("wrong", wrong)):
        etviz.debug(model.eval(), inputs, workdir=folder / name, **options)
    record = replace(read_record(folder / "right/model.etviz"), pte_checksum=checksum_of(folder / "wrong/model.pte"))
    write_record(record, folder / "adopted.etviz")
    return etviz.load(
        folder / "wrong/etdump.etdp",
        etrecord=folder / "right/etrecord.bin",
        debug_buffer=folder / "wrong/debug_buffer.bin",
        record=folder / "adopted.etviz",
        pte=folder / "wrong/model.pte",
    )


def matrix(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


SETTINGS: dict[str, tuple[Function, Function, tuple[Tensor, ...], str]] = {
    "swapped difference": (
        torch.sub,
        lambda a, b: b - a,
        (matrix(4, 6, 6), matrix(4, 6, 6) + 1),
        "sub with self and other swapped",
    ),
    "swapped division": (
        torch.div,
        lambda a, b: b / a,
        (matrix(4, 6, 6).abs() + 0.5, matrix(6, 6).abs() + 0.5),
        "div with self and other swapped",
    ),
    "axis of a softmax": (
        lambda x: torch.softmax(x, -1),
        lambda x: torch.softmax(x, 1),
        (matrix(2, 6, 7),),
        "softmax with dim=1 (the program says -1)",
    ),
    "axis of a mean": (
        lambda x: x.mean(1),
        lambda x: x.mean(2),
        (matrix(3, 6, 6),),
        "mean with dim=[2] (the program says [1])",
    ),
    "rounding mode": (
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        (matrix(5, 8) * 9, matrix(8, 5).T.contiguous()),
        "div with rounding_mode='trunc' (the program says 'floor')",
    ),
    "trunc for floor": (
        lambda x: torch.floor(5 * x),
        lambda x: torch.trunc(5 * x),
        (matrix(5, 8),),
        "fit trunc (the program says floor)",
    ),
    "order of a cat": (
        lambda a, b: torch.cat((a, b), 1),
        lambda a, b: torch.cat((b, a), 1),
        (matrix(3, 4, 5), matrix(3, 4, 5) - 1),
        "cat with its tensors in the order (1, 0)",
    ),
    "start of a slice": (
        lambda x: x[:, 1:6],
        lambda x: x[:, 2:7],
        (matrix(6, 9),),
        "slice_copy with start=2 (the program says 1)",
    ),
    "index of a select": (
        lambda x: x[:, 3],
        lambda x: x[:, 4],
        (matrix(6, 9, 4),),
        "select_copy with index=4 (the program says 3)",
    ),
    "approximation": (
        lambda x: nn.functional.gelu(x, approximate="none"),
        lambda x: nn.functional.gelu(x, approximate="tanh"),
        (matrix(6, 32),),
        "gelu with approximate='tanh' (the program says 'none')",
    ),
    "epsilon": (
        lambda x: nn.functional.layer_norm(x * 0.05, (16,), eps=1e-5),
        lambda x: nn.functional.layer_norm(x * 0.05, (16,), eps=0.02),
        (matrix(6, 16),),
        "native_layer_norm with eps=0.02 (the program says 1e-05)",
    ),
    "bound": (
        lambda x: torch.clamp(x, -1.5, 1.5),
        lambda x: torch.clamp(x, -1.5, 2.5),
        (matrix(6, 16),),
        "clamp with max=2.5 (the program says 1.5)",
    ),
    "scale of an attention": (
        lambda q, k, v: torch.ops.llama.custom_sdpa(q, k, v, 0, None, 0.0, True),
        lambda q, k, v: torch.ops.llama.custom_sdpa(q, k, v, 0, None, 0.0, True, 0.125),
        tuple(matrix(1, 4, heads, 16) for heads in (2, 2, 2)),
        "custom_sdpa with scale=0.125 (the program says None)",
    ),
    "order of a permute": (
        lambda x: x.permute(0, 2, 1).contiguous(),
        lambda x: x.permute(2, 1, 0).contiguous(),
        (matrix(5, 5, 5),),
        "permute_copy with dims=[2, 1, 0] (the program says [0, 2, 1])",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_named(name: str, tmp_path: Path) -> None:
    right, wrong, inputs, words = SETTINGS[name]
    inspection = run_against(Applied(right), Applied(wrong), inputs, tmp_path)
    finding = inspection.diagnosis(look_inside=False)["finding"]
    found = inspection.row(finding["row"]).fingerprints()
    assert len(found) == 1, found.to_dict("records")
    assert words in found["evidence"][0]
    assert found["score"][0] > 0.99
    assert f"{words}" in finding["text"]


def changed(change: Callable[[Tensor], Tensor], layer: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Tanh(), layer or nn.Linear(24, 24), nn.Tanh())
    with torch.no_grad():
        weight = model[1].weight
        assert isinstance(weight, Tensor)
        weight.copy_(change(weight.clone()))
    return model


def scaled_row(weight: Tensor, row: int = 17, factor: float = -1.0) -> Tensor:
    weight[row] *= factor
    return weight


def scaled_column(weight: Tensor) -> Tensor:
    weight[:, 5] *= 1.5
    return weight


def scaled_element(weight: Tensor) -> Tensor:
    weight[3, 4] *= -6
    return weight


def swapped_rows(weight: Tensor) -> Tensor:
    weight[[3, 9]] = weight[[9, 3]]
    return weight


WEIGHTS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "a row": (scaled_row, "row 17 of 1.weight is ×−1"),
    "a column": (scaled_column, "column 5 of 1.weight is ×1.5"),
    "an element": (scaled_element, "element (3, 4) of 1.weight is ×−6"),
    "two rows": (swapped_rows, "rows 3 and 9 of 1.weight are swapped"),
    "transposed": (lambda weight: weight.T, "1.weight is transposed"),
    "rolled": (lambda weight: weight.roll(1, 0), "1.weight is rolled by 1 along axis 0"),
    "rolled columns": (lambda weight: weight.roll(-1, 1), "1.weight is rolled by −1 along axis 1"),
    "reversed": (lambda weight: weight.flip(0), "1.weight is reversed along axis 0"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_is_named_by_the_files_and_by_the_values(name: str, tmp_path: Path) -> None:
    """The `.pte` tells what its weight is; without it, the runtime's values do."""
    change, words = WEIGHTS[name]
    inputs = (matrix(40, 24),)
    inspection = run_against(changed(lambda weight: weight), changed(change), inputs, tmp_path)
    finding = inspection.diagnosis(look_inside=False)["finding"]
    assert f"other weights than the reference: {words}" in finding["text"]

    logs = [Path(shutil.copy(tmp_path / "wrong" / name, tmp_path)) for name in ("etdump.etdp", "debug_buffer.bin")]
    alone = etviz.load(logs[0], etrecord=tmp_path / "right/etrecord.bin", debug_buffer=logs[1])
    row = alone.diagnosis(look_inside=False)["finding"]["row"]
    fingerprint = alone.row(row).fingerprints().to_dict("records")[0]
    if name == "transposed":  # the kernel reads it through a permute: another order of the axes gives the same
        words = "The values fit permute_copy with dims=[0, 1] (the program says [1, 0])"
    assert fingerprint["evidence"].startswith(words), alone.row(row).fingerprints().to_dict("records")
    assert fingerprint["score"] > 0.99


class Particular(nn.Module):
    """Constants that their contents do not tell: equal ones, few values, one element, in a list, a view's."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(6)
        self.a = nn.ParameterList([nn.Parameter(torch.arange(1.0, 9.0).repeat(6, 1)) for _each in range(2)])
        self.epsilon = nn.Buffer(torch.tensor([1e-6]))
        self.first = nn.Parameter(matrix(1, 1, 8, 8))
        self.viewed = nn.Parameter(matrix(64))
        self.order = nn.Buffer(torch.tensor([0, 2, 1, 3, 4, 5]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(torch.tanh(x))
        for each in self.a:
            x = torch.tanh(x * each[:, None])
        x = x * torch.rsqrt((x * x).mean(1, keepdim=True) + self.epsilon)
        return torch.cat([self.first, x[:, self.order]], 1) + self.viewed.view(8, 8)


def particular(name: str = "", change: Callable[[Tensor], object] = lambda constant: None) -> nn.Module:
    model = Particular()
    constants = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for mean in (model.norm.bias, model.norm.running_mean):
            assert mean is not None
            mean.copy_(matrix(6))
        if name:
            change(constants[name])
    return model


PARTICULAR: dict[str, tuple[str, Callable[[Tensor], object], str]] = {
    "few values": ("norm.running_var", lambda t: t[3].mul_(4), "element 3 of norm.running_var is ×4"),
    "all ones": ("norm.running_var", lambda t: t.add_(0.3), "norm.running_var is ×1.3"),
    "the first of two equal ones": ("a.0", lambda t: t[3].mul_(2), "row 3 of a.0 is ×2"),
    "the second of two equal ones": ("a.1", lambda t: t[:, 2].mul_(30), "column 2 of a.1 is ×30"),
    "one element": ("epsilon", lambda t: t.fill_(0.1), "epsilon is ×100000"),
    "in a list": ("first", lambda t: t.copy_(matrix(1, 1, 8, 9)[..., :8]), "first (every element"),
    "a view": ("viewed", lambda t: t[9].mul_(-1), "element 9 of viewed is ×−1"),
    "a NaN": ("viewed", lambda t: t[9].fill_(torch.nan), "element 9 of viewed is NaN instead of "),
    "infinite": ("a.1", lambda t: t[3].fill_(torch.inf), "8 elements of a.1 are NaN or Inf (8 of 48 elements)"),
    "integers": ("order", lambda t: t.copy_(torch.arange(6)), "elements 1 and 2 of order are swapped"),
}


@pytest.mark.parametrize("name", PARTICULAR)
def test_the_constant_that_an_instruction_reads_is_compared(name: str, tmp_path: Path) -> None:
    """With the record's graph, and the one that is derived from `.pte` and ETRecord."""
    where, change, words = PARTICULAR[name]
    exact = run_against(particular(), particular(where, change), (matrix(1, 6, 8, 8),), tmp_path)
    wrong, right = tmp_path / "wrong", tmp_path / "right/etrecord.bin"
    derived = etviz.load(
        wrong / "etdump.etdp", etrecord=right, debug_buffer=wrong / "debug_buffer.bin", pte=wrong / "model.pte"
    )
    for found in (exact, derived):
        assert f"other weights than the reference: {words}" in found.diagnosis(look_inside=False)["finding"]["text"]
        assert [difference.name for difference in found.analysis.findings.constants] == [where]
        for row, gap in enumerate(found.analysis.tables.gaps):
            if gap.reference is None or gap.level not in ("warn", "bad"):
                continue
            proposed = found.row(row).fingerprints()
            about = proposed.loc[proposed["name"].isin([OTHER_WEIGHTS, SETTING]), "evidence"]
            assert all(f" {where} " in f" {text}" for text in about), about.tolist()


def test_constants_that_are_alike_do_not_differ(tmp_path: Path) -> None:
    found = run_against(particular(), particular(), (matrix(1, 6, 8, 8),), tmp_path)
    assert found.analysis.findings.constants == ()
    told = pd.concat([found.row(row).constants for row in found.gaps.index])
    assert set(told["name"]) == {
        *("norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"),
        *("a.0", "a.1", "epsilon", "first", "viewed", "order"),
    }
    assert set(told["pte"]) == {"same bytes"}


class Equal(nn.Module):
    """Layers that begin with equal constants, inside delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _each in range(2)])
        self.linears = nn.ModuleList([nn.Linear(8, 8) for _each in range(3)])
        for layer in (*self.convolutions, *self.linears):
            assert isinstance(layer, (nn.Conv2d, nn.Linear))
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
            with torch.no_grad():
                layer.weight.copy_(matrix(*layer.weight.shape) / math.sqrt(layer.weight[0].numel()))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.convolutions:
            x = torch.tanh(layer(x))
        x = x.flatten(2)
        for layer in self.linears:
            x = torch.tanh(layer(x))
        return x


EQUAL: dict[str, tuple[str, Callable[[Tensor], object], str]] = {
    "a convolution's weight": ("convolutions.1.weight", lambda t: t[:, 2].mul_(2), "input channel 2 of {} is ×2"),
    "a convolution's bias": ("convolutions.0.bias", lambda t: t.add_(0.2), "{} is +0.2"),
    "a linear layer's weight": ("linears.2.weight", lambda t: t[4].mul_(-1), "row 4 of {} is ×−1"),
    "a NaN": ("linears.2.weight", lambda t: t[4, 1].fill_(torch.nan), "element (4, 1) of {} is NaN instead of"),
    "a linear layer's bias": ("linears.0.bias", lambda t: t[2].add_(1), "element 2 of {} is 1 instead of 0"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_one_of_equal_constants_inside_a_delegate_is_named(name: str, tmp_path: Path) -> None:
    where, change, words = EQUAL[name]
    wrong = Equal()
    with torch.no_grad():
        change(dict(wrong.named_parameters())[where])
    found = run_against(Equal(), wrong, (matrix(1, 8, 2, 4),), tmp_path, partitioner=[XnnpackPartitioner()])
    text = found.diagnosis(look_inside=False)["finding"]["text"]
    assert f"other weights than the reference: {words.format(where)}" in text
    assert [difference.name for difference in found.analysis.findings.constants] == [where]


def test_channels_of_a_convolution(tmp_path: Path) -> None:
    def halved(weight: Tensor) -> Tensor:
        weight[2] *= 0.5
        return weight

    right, wrong = (changed(change, nn.Conv2d(3, 8, 3, padding=1)) for change in (lambda weight: weight, halved))
    inspection = run_against(right, wrong, (matrix(1, 3, 9, 9),), tmp_path)
    assert "channel 2 of 1.weight is ×0.5" in inspection.summary()


def noisy(x: Tensor) -> Tensor:
    return x + 0.2 * matrix(*x.shape)


UNFIT: dict[str, tuple[Function, Function, tuple[Tensor, ...], set[str]]] = {
    "border of a division": (
        torch.div,
        lambda a, b: torch.div(a, b * nn.functional.pad(torch.ones(1, 4, 6, 6), (1, 1, 1, 1), value=1.5)),
        (matrix(1, 4, 8, 8), matrix(1, 4, 8, 8).abs() + 1),
        {"border pixels"},
    ),
    "offsets of a mean": (
        lambda x: x.mean(-1),
        lambda x: x.mean(-1) + matrix(6),
        (matrix(40, 6, 8),),
        {"bias", "constant offset"},
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_the_operator_is_not_said(name: str) -> None:
    from etviz.comparison.hypotheses import fits
    from etviz.tensors.fingerprints import fingerprints

    right, wrong, inputs, unfit = UNFIT[name]
    operators = frozenset(("aten.div.Tensor",) if "division" in name else ("aten.mean.dim",))
    found = {item.name for item in fingerprints(right(*inputs), wrong(*inputs))}
    assert found & unfit, "the pattern is there"
    assert not {item for item in found & unfit if fits(item, operators, on_grid=False)}


class TwoOutputs(nn.Module):
    """One delegate gives `y`, which is right, and what `second` makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _each in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        return torch.sinh(y) + torch.sinh(self.third(torch.tanh(self.second(y))))


def two_outputs(factor: float = 1.0) -> nn.Module:
    torch.manual_seed(0)
    model = TwoOutputs()
    with torch.no_grad():
        model.second.weight[3, 1] *= factor
    return model


@pytest.mark.parametrize("factor", [-6.0, math.nan])
def test_the_share_and_the_proof_of_an_operator_inside_a_delegate_of_several_outputs(
    factor: float, tmp_path: Path
) -> None:
    """All of the error is its own, and goes with it, NaN too."""
    x = matrix(5, 8)
    found = run_against(two_outputs(), two_outputs(factor), (x,), tmp_path, partitioner=[XnnpackPartitioner()])
    culprit = found.diagnosis()["culprit"]
    assert culprit["inside_of"] is not None
    assert "second" in culprit["name"]
    assert [output["matches"] for output in culprit["proof"]["outputs"]] == [True]
    assert math.isnan(factor) or culprit["share"] == pytest.approx(1.0, abs=0.05)
