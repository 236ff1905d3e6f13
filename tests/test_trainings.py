"""Files of two trainings of one model: calls, names and shapes agree, and yet each mixture is noticed."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import etviz
from etviz.errors import ArtifactError
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower

NAMES = {
    "etdump": "etdump.etdp",
    "debug_buffer": "debug_buffer.bin",
    "pte": "model.pte",
    "record": "model.etviz",
    "etrecord": "etrecord.bin",
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


@pytest.fixture(scope="module", params=["portable", "xnnpack"])
def trainings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of both."""
    found = {}
    for seed, letter in enumerate("AB"):
        torch.manual_seed(seed)
        found[letter] = tmp_path_factory.mktemp(f"{request.param}-{letter}")
        partitioner = [XnnpackPartitioner()] if request.param == "xnnpack" else None
        with torch.random.fork_rng():
            etviz.debug(Net().eval(), (torch.ones(3, 6),), partitioner=partitioner, workdir=found[letter])
    return found


def load(trainings: dict[str, Path], folder: Path, chosen: dict[str, str]) -> etviz.Inspection:
    files: dict[str, Any] = {}
    for kind, letter in chosen.items():
        if letter != "-":
            files[kind] = shutil.copy(trainings[letter] / NAMES[kind], folder / f"{kind}.file")
    return etviz.load(**files, inputs=(torch.ones(3, 6),))


def test_every_mixture_is_refused_or_named(trainings: dict[str, Path], tmp_path: Path) -> None:
    silent = []
    for pte, record, etrecord in itertools.product("-AB", repeat=3):
        chosen = {"etdump": "A", "debug_buffer": "A", "pte": pte, "record": record, "etrecord": etrecord}
        by_handles = pte == record == "-"
        numbers = {pte, etrecord} - {"-"}  # a record refers to the weights in the ETRecord
        if "B" not in numbers or etrecord == "-" or by_handles:
            continue
        try:
            said = load(trainings, tmp_path, chosen).summary()
        except ArtifactError as error:
            said = str(error)
        if not any(text in said for text in ("other weights", "training", "checksums differ")):
            silent.append(chosen)
    assert not silent


def test_files_of_one_training_are_not_doubted(trainings: dict[str, Path], tmp_path: Path) -> None:
    for pte, record in itertools.product("-A", repeat=2):
        found = load(
            trainings,
            tmp_path,
            {"etdump": "A", "debug_buffer": "A", "pte": pte, "record": record, "etrecord": "A"},
        )
        assert "weights" not in found.summary()
        assert not found.gaps.empty


@dataclass(frozen=True)
class Static:
    """A static int8 model, and the ETRecord of the program that was lowered from it."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    etrecord: Path

    def load_with(self, name: str, change: float, folder: Path) -> etviz.Inspection:
        """The ETRecord with the run of a program in which the named tensor is multiplied by `change`."""
        tensor = dict([*self.model.named_parameters(), *self.model.named_buffers()])[name]
        right = tensor.detach().clone()
        with torch.no_grad():
            tensor.mul_(change)
            try:
                lowered = lower(self.model, self.inputs, folder, partitioner=[XnnpackPartitioner()])
            finally:
                tensor.copy_(right)
        run = execute(lowered.pte, [self.inputs], workdir=folder)
        assert run.etdump is not None
        return etviz.load(
            run.etdump,
            debug_buffer=run.debug_buffer,
            pte=folder / "model.pte",
            etrecord=self.etrecord,
            inputs=self.inputs,
        )


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Static:
    torch.manual_seed(0)
    inputs = (torch.randn(5, 6),)
    prepared = prepare_pt2e(
        torch.export.export(Net().eval(), inputs).module(),
        XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True)),
    )
    prepared(*inputs)
    model = convert_pt2e(prepared)
    lowered = lower(model, inputs, tmp_path_factory.mktemp("right"), partitioner=[XnnpackPartitioner()])
    assert lowered.etrecord is not None
    return Static(model, inputs, lowered.etrecord)


@pytest.mark.parametrize(("change", "said"), [(0.0, "first.bias is 0 everywhere"), (0.5, "first.bias"), (1.0, "")])
def test_the_integer_bias_of_a_static_layer_is_compared(
    change: float, said: str, static: Static, tmp_path: Path
) -> None:
    """A wrong one may hide below the noise of the layer's grids, and is in both files all the same."""
    found = static.load_with("first.bias", change, tmp_path)
    constants = [str(item) for item in found.analysis.tables.constants]
    assert len(constants) == bool(said)
    assert all(item.startswith(said) for item in constants), constants


def test_other_steps_of_a_weight_are_left_to_the_zoom(static: Static, tmp_path: Path) -> None:
    found = static.load_with("_scale_0", 1.05, tmp_path)
    assert not [str(item) for item in found.analysis.tables.constants if str(item).startswith("scale of")]
    assert "another quantization of its filter" in found.zoom(0).summary()
