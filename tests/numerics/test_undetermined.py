"""NaN and Inf beside integer grids: judged where they don't come to one, not judged where they do."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch import Tensor, nn

import etviz
from tests.zoo.made import Made


class Attention(nn.Module):
    """What a mask of −Inf is added to, behind a layer that is quantized when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 6)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Weights of a mix."""
        return torch.softmax(self.second(self.first(x)) * 0.3 + mask, -1)


class Divided(nn.Module):
    """0 / 0 inside of what is quantized, where the input holds zeros; a float operator follows."""

    def forward(self, x: Tensor) -> Tensor:
        """Sums along the last axis."""
        return torch.cumsum((x / (x + x)) + x, -1)


class Buckets(nn.Module):
    """A bias by distance as in T5: the logarithm of 0 becomes an integer, which a `where` replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Weights of the values at each distance."""
        distance = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])[None]
        distance = -torch.min(distance, torch.zeros_like(distance))
        far = torch.min(3 + torch.log(distance.float() / 3).to(torch.int64), torch.full_like(distance, 7))
        return x[..., None, None] * torch.softmax(self.bias(torch.where(distance < 3, distance, far)), -1)


def ran(model: nn.Module, inputs: tuple[Tensor, ...], folder: Path, way: str, *, dynamic: bool) -> etviz.Inspection:
    """What is said of it, loaded in one way."""
    torch.manual_seed(0)
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    found = etviz.debug(
        model.eval(),
        inputs,
        partitioner=[XnnpackPartitioner()],
        quantizer=XNNPACKQuantizer().set_global(config),
        calibration=[tuple(torch.rand_like(item) + 0.5 for item in inputs)],
        workdir=folder,
    )
    return found if way == "record" else Made("made here", folder).load(way)


@pytest.mark.parametrize("way", ["record", "derived", "ETRecord"])
def test_a_mask_of_inf_beside_a_grid_that_is_chosen_is_judged(tmp_path: Path, way: str) -> None:
    x = torch.randn(1, 6, 16)
    mask = torch.full((6, 6), -math.inf).triu(1)
    found = ran(Attention(), (x, mask), tmp_path, way, dynamic=True)
    delegates = found.gaps[found.gaps["kind"] == "delegate"]
    assert len(delegates) >= 1
    assert delegates["introduced_rmse"].notna().all()
    assert found.outputs["rmse"].notna().all()
    assert found.analysis.digest.level in ("ok", "warn")
    assert "integer grid" not in found.summary()


@pytest.mark.parametrize("way", ["record", "derived", "ETRecord"])
def test_integers_made_of_inf_that_are_the_references_are_judged(tmp_path: Path, way: str) -> None:
    torch.manual_seed(0)
    found = etviz.debug(Buckets().eval(), (torch.randn(2, 5),), workdir=tmp_path)
    found = found if way == "record" else Made("made here", tmp_path).load(way)
    made = found.gaps[found.gaps["op"].str.contains("_to_dim_order_copy") & found.gaps["dtype"].eq("int64")]
    assert len(made) >= (way != "ETRecord")
    assert made["rmse"].eq(0).all()
    assert found.analysis.digest.level == "ok"
    assert found.outputs["rmse"].notna().all()


class Place(nn.Module):
    """The logarithm of an input's distances as an integer: 0 is among them at some places only."""

    def forward(self, at: Tensor) -> Tensor:
        """A number for each distance."""
        distance = (torch.arange(6) - at).abs()
        return torch.where(distance < 1, distance, torch.log(distance.float()).to(torch.int64)).float() * 0.5


def test_without_inputs_an_integer_that_inf_makes_as_in_the_reference_is_not_the_reason(tmp_path: Path) -> None:
    etviz.debug(Place(), [(torch.tensor([at]),) for at in (9, 2, 3)], workdir=tmp_path)
    alone = tmp_path / "alone" / "model.pte"
    alone.parent.mkdir()
    alone.write_bytes((tmp_path / "model.pte").read_bytes())
    found = etviz.load(
        tmp_path / "etdump.etdp",
        pte=alone,
        etrecord=tmp_path / "etrecord.bin",
        debug_buffer=tmp_path / "debug_buffer.bin",
    )
    verdict = found.analysis.digest.verdict
    assert verdict.endswith("2 of 3 executions can't be judged: give inputs= for each execution, from the first.")


@pytest.mark.parametrize("way", ["record", "derived"])
def test_nan_that_is_made_inside_and_put_on_a_grid_is_not_judged(tmp_path: Path, way: str) -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    x[1, 2:5] = 0.0
    found = ran(Divided(), (x,), tmp_path, way, dynamic=False)
    assert found.first_divergence is None
    assert (
        found.analysis.digest.verdict
        == "Final outputs were not compared: they follow from NaN or Inf that was put on an integer grid."
    )
    assert "puts NaN or Inf on an integer grid" in found.summary()
    assert "any number may come of it" in str(found.gaps["reason"].to_list())
