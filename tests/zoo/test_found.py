"""Faults of executorch 1.5.1 that nobody planted: they are named, and what is correct beside them is not."""

from __future__ import annotations

import math
import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.runtime import Runtime
from torch import Tensor, nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import etviz
from tests.zoo.made import WAYS, Made
from tests.zoo.models import Gelu, Shared, TalkingHeads


def _run(pte: Path, x: Tensor) -> Tensor:
    program = Runtime.get().load_program(pte)
    method = program.load_method("forward")
    assert method is not None
    return method.execute([x])[0].clone()


def test_xnnpack_computes_the_tanh_gelu_as_the_erf_form(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Gelu("tanh").eval(), torch.randn(4, 32)
    inspection = etviz.debug(model, (x,), partitioner=[XnnpackPartitioner()], workdir=tmp_path)

    other = Gelu("none").eval()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        runtime, tanh, erf = _run(tmp_path / "model.pte", x), model(x), other(x)
    assert torch.allclose(runtime, erf, rtol=0, atol=1e-5)
    assert (runtime - tanh).abs().max() > 3e-4

    assert inspection.analysis.digest.level == "bad"
    first = inspection.first_divergence
    assert first is not None
    assert first["kind"] == "delegate"
    inside = inspection.zoom(first)
    assert inside.faithful
    beyond = inside.gaps[inside.gaps["introduced_severity"] > 100]
    assert list(beyond["reference_ops"]) == ["gelu", "gelu_1", "gelu_2"]
    divergence = inside.first_divergence
    assert divergence is not None
    assert divergence["reference_ops"] == "gelu"


def test_weight_only_int8_on_xnnpack(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16)).eval(), torch.randn(3, 32)
    quantize_(model, Int8WeightOnlyConfig())
    inspection = etviz.debug(model, (x,), partitioner=[XnnpackPartitioner()], workdir=tmp_path / "xnnpack")
    with torch.no_grad():
        assert (_run(tmp_path / "xnnpack" / "model.pte", x) - model(x)).abs().max() > 100

    assert inspection.analysis.digest.level == "bad"
    first = inspection.first_divergence
    assert first is not None
    assert first["kind"] == "delegate"
    inside = inspection.zoom(first)
    assert inside.faithful is False
    assert "mul (no such operator), add_ (no such operator)" in inside.summary()

    portable = etviz.debug(model, (x,), workdir=tmp_path / "portable")
    assert portable.first_divergence is None
    assert portable.analysis.digest.level == "ok"


def test_xnnpack_takes_the_softmax_between_convolutions_over_the_channels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = TalkingHeads().eval(), torch.randn(1, 4, 6, 6)
    inspection = etviz.debug(model, (x,), partitioner=[XnnpackPartitioner()], workdir=tmp_path)
    runtime = _run(tmp_path / "model.pte", x)
    with torch.no_grad():
        assert torch.allclose(runtime, model.after(torch.softmax(model.before(x), 1)), rtol=0, atol=1e-6)
        assert (runtime - model(x)).abs().max() > 0.1

    assert inspection.analysis.digest.level == "bad"
    first = inspection.first_divergence
    assert first is not None
    inside = inspection.zoom(first)
    assert inside.faithful
    divergence = inside.first_divergence
    assert divergence is not None
    assert divergence["reference_ops"] == "softmax"
    assert "softmax" in inspection.diagnosis()["culprit"]["name"]


def test_xnnpack_has_one_bias_for_a_quantized_layer_that_is_used_twice(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = Shared().eval(), (torch.randn(4, 16), 1.5 * torch.randn(4, 16))
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    inspection = etviz.debug(
        model, inputs, partitioner=[XnnpackPartitioner()], quantizer=quantizer, workdir=tmp_path / "shared"
    )
    (right, first), (wrong, second) = (inspection.tensors(row) for row in inspection.gaps.index)
    assert torch.equal(right, first)
    sizes = [float(x.max() - x.min()) for x in inputs]
    error = model.layer.bias.detach() * (sizes[1] / sizes[0] - 1)
    assert torch.allclose((second - wrong).median(0).values, error, atol=0.03)
    assert error.abs().max() > 0.08

    assert inspection.analysis.digest.level == "bad"
    divergence = inspection.first_divergence
    assert divergence is not None
    assert divergence["output"] == 1
    inside = inspection.zoom(divergence).first_divergence
    assert inside is not None
    assert inside["reference_ops"] == "linear_1"


class Clipped(nn.Module):
    """A product that is an output, and that a clamp reads."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 0.5
        return y, y.clamp(-1, 1) * 2


def test_xnnpack_does_not_write_an_int8_output_that_a_clamp_reads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 16)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    inspection = etviz.debug(
        Clipped().eval(), (x,), partitioner=[XnnpackPartitioner()], quantizer=quantizer, workdir=tmp_path
    )
    assert _run(tmp_path / "model.pte", x).abs().max() == 0
    assert inspection.outputs["matches"].tolist() == [False, True]
    assert inspection.analysis.digest.level == "bad"
    divergence = inspection.first_divergence
    assert divergence is not None
    assert (divergence["kind"], divergence["output"]) == ("delegate", 0)


class Counted(nn.Module):
    def forward(self, x: Tensor, y: Tensor, terms: Tensor, whole: Tensor) -> tuple[Tensor, ...]:
        return whole % 5, x // y, terms.cumsum(-1)


def test_portable_remainders_floors_and_running_sums(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    x, y = 10 * torch.randn(2000, generator=random), torch.rand(2000, generator=random) + 0.1
    inputs = (x, y, (0.1 * torch.rand(3, 2000, generator=random)).bfloat16(), torch.arange(-7, 8))
    inspection = etviz.debug(Counted().eval(), inputs, workdir=tmp_path)
    remainder, floor, running = (inspection.tensors(row)[1] for row in inspection.gaps.index[:3])
    assert remainder.tolist() == [math.fmod(at, 5) for at in range(-7, 8)]
    assert (floor != floor.round()).any()
    assert (torch.floor(x.double() / y.double()) - floor).abs().max() < 1e-4
    assert (running.double() / inputs[2].double().cumsum(-1))[:, -1].max() < 0.8
    first = inspection.first_divergence
    assert first is not None
    assert first["reference_ops"] == "remainder"
    named = inspection.gaps[inspection.gaps["introduced_severity"] >= 3]
    assert list(named["reference_ops"]) == ["remainder", "floor_divide", "cumsum"]


def test_portable_layer_norm_far_from_zero(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 32) + 100
    norm = nn.LayerNorm(32).eval()
    inspection = etviz.debug(nn.Sequential(norm, nn.Linear(32, 32)).eval(), (x,), workdir=tmp_path / "far")
    with torch.no_grad():
        exact = nn.functional.layer_norm(x.double(), (32,))
        assert (norm(x) - exact).abs().max() < 2e-5
    runtime = inspection.tensors(inspection.gaps.iloc[0])[1]
    assert (runtime - exact).abs().max() > 1e-3

    first = inspection.first_divergence
    assert first is not None
    assert first["reference_ops"] == "layer_norm"

    near = etviz.debug(nn.Sequential(norm, nn.Linear(32, 32)).eval(), (x - 100,), workdir=tmp_path / "near")
    assert near.first_divergence is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="how many are read at once is the processor's")
def test_layer_norm_of_wide_rows_of_16_bits() -> None:
    """From 256 values on the kernel reads them as if they were float32, eight at every eighth of the first half."""
    x = 5 * torch.randn(6, 256, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    wide = etviz.debug(nn.LayerNorm(256).to(x.dtype).eval(), (x,))
    places = 4 * np.arange(16)[:, None] + np.arange(8)
    read = x.view(torch.int16).numpy().view(np.float32)[:, places].astype(np.float64)
    between = 32 * np.square(read.mean(1) - read.mean((1, 2))[:, None]).sum(1)
    variance = (np.square(read - read.mean(1, keepdims=True)).sum((1, 2)) + between) / 256
    _, mean, scale = (wide.tensors(row)[1].double().flatten().numpy() for row in wide.gaps.index[-3:])
    np.testing.assert_allclose(mean, read.mean((1, 2)), rtol=2**-8)
    np.testing.assert_allclose(scale, 1 / np.sqrt(variance + 1e-5), rtol=2**-7)
    assert wide.analysis.digest.level == "bad"
    first = wide.first_divergence
    assert first is not None
    assert first["op"] == "aten::native_layer_norm.out"

    narrow = etviz.debug(nn.LayerNorm(240).to(x.dtype).eval(), (x[:, :240].contiguous(),))
    assert narrow.first_divergence is None
    assert narrow.analysis.digest.level == "ok"


@pytest.mark.parametrize("way", ["record", "ETRecord"])
def test_a_layer_norm_far_from_zero_loses_digits_by_its_formula(tmp_path: Path, way: str) -> None:
    """The kernel's values are those of a loop in float32 that takes the squared mean from the mean square."""
    torch.manual_seed(0)
    model, x = nn.LayerNorm(24).eval(), torch.randn(5, 24) + 300.0
    inspection = etviz.debug(model, (x,), workdir=tmp_path)
    if way == "ETRecord":
        inspection = Made("made here", tmp_path).load(way)
    rows, total, squares = x.numpy(), np.zeros(5, np.float32), np.zeros(5, np.float32)
    for column in rows.T:
        total, squares = total + column, squares + column * column
    mean = total / np.float32(24)
    deviation = np.sqrt(squares / np.float32(24) - mean * mean + np.float32(1e-5))
    np.testing.assert_allclose(_run(tmp_path / "model.pte", x), (rows - mean[:, None]) / deviation[:, None], rtol=1e-5)

    diagnosis = inspection.diagnosis(look_inside=False)
    finding = diagnosis["finding"]
    assert "the values fit a layer_norm whose variance is the mean square less the squared mean" in finding["text"]
    (fingerprint,) = inspection.row(finding["row"]).fingerprints().to_dict("records")
    assert fingerprint["name"] == "another formula"
    assert "before the norm" in diagnosis["next"][0]["text"]
    # The operator is named once, whichever of its outputs are off.
    assert diagnosis["culprit"]["name"] == "#0 layer_norm"
    assert diagnosis["suspects"] == []
    assert fingerprint["score"] > 0.99


@pytest.mark.parametrize("way", WAYS)
def test_xnnpack_resizes_by_the_ratio_of_the_sizes(tmp_path: Path, way: str) -> None:
    """13 of 9 rows are not 1.5 times as many: its values are those of torch with the sizes in place of the factors."""
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Upsample(scale_factor=1.5, mode="bilinear"), nn.Conv2d(3, 4, 1)),
        torch.randn(1, 3, 9, 7),
    )
    inspection = etviz.debug(model.eval(), (x,), partitioner=[XnnpackPartitioner()], workdir=tmp_path)
    with torch.no_grad():
        by_sizes = model[1](nn.functional.interpolate(x, size=(13, 10), mode="bilinear"))
    torch.testing.assert_close(_run(tmp_path / "model.pte", x), by_sizes, rtol=0, atol=1e-5)
    if way != "record":
        inspection = Made("made here", tmp_path).load(way)
    finding = inspection.diagnosis(look_inside=False)["finding"]
    said = "the values fit upsample_bilinear2d by the ratio of the sizes (the program gives the factors 1.5, 1.5)"
    assert said in finding["text"]
    assert etviz.debug(model, (x,)).first_divergence is None


class Compared(nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        return (x == self.number).to(torch.float32) + 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_number_is_compared_before_it_is_rounded_to_16_bits(tmp_path: Path, dtype: torch.dtype) -> None:
    """torch rounds the number to the tensor's dtype first, so a value that was rounded equals it."""
    x = torch.tensor([0.1, 0.2]).to(dtype)
    assert Compared(0.1)(x).tolist() == [2.0, 1.0]
    inspection = etviz.debug(Compared(0.1), (x,), workdir=tmp_path)
    assert _run(tmp_path / "model.pte", x).tolist() == [1.0, 1.0]
    first = inspection.first_divergence
    assert first is not None
    assert first["op"].startswith("aten::eq.")
    held = etviz.debug(Compared(0.125), (torch.tensor([0.125, 0.2]).to(dtype),))
    assert held.first_divergence is None
