"""Files of two trainings of one model: calls, names and shapes agree, and yet each mixture is noticed."""

from __future__ import annotations

import itertools
import shutil
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


@pytest.mark.parametrize(("change", "said"), [(0.0, "first.bias is 0 everywhere"), (0.5, "first.bias"), (1.0, "")])
def test_the_integer_bias_of_a_static_layer_is_compared(change: float, said: str, tmp_path: Path) -> None:
    """A wrong one may hide below the noise of the layer's grids, and is in both files all the same."""
    torch.manual_seed(0)
    inputs = (torch.randn(5, 6),)
    prepared = prepare_pt2e(
        torch.export.export(Net().eval(), inputs).module(),
        XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True)),
    )
    prepared(*inputs)
    model = convert_pt2e(prepared)
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    lowered = lower(model, inputs, right, partitioner=[XnnpackPartitioner()])
    with torch.no_grad():
        model.get_parameter("first.bias").mul_(change)
    run = execute(lower(model, inputs, wrong, partitioner=[XnnpackPartitioner()]).pte, [inputs], workdir=wrong)
    assert run.etdump is not None
    found = etviz.load(
        run.etdump,
        debug_buffer=run.debug_buffer,
        pte=wrong / "model.pte",
        etrecord=lowered.etrecord,
        inputs=inputs,
    )
    constants = [str(item) for item in found.analysis.tables.constants]
    assert len(constants) == bool(said)
    assert all(item.startswith(said) for item in constants), constants
