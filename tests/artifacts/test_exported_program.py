"""Graphs of the files come back as programs that compute what the model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn
from torch.export import ExportedProgram

import etviz
from etviz.errors import PairingError, UsageError


class Counting(nn.Module):
    """Delegates, several outputs, and a buffer that each execution changes."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.count.add_(1)
        y = self.norm(torch.relu(self.linear(x)))
        return y.topk(2, -1)[0].cumsum(-1) + self.count[:2], y


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[etviz.Inspection, nn.Module, Tensor, Path]:
    torch.manual_seed(0)
    model, x, folder = Counting().eval(), torch.randn(2, 4), tmp_path_factory.mktemp("counting")
    etviz.debug(model, (x,), workdir=folder, partitioner=[XnnpackPartitioner()])
    names = {"etrecord": "etrecord.bin", "pte": "model.pte", "record": "model.etviz"}
    given: Any = {kind: folder / name for kind, name in names.items()}
    loaded = etviz.load(folder / "etdump.etdp", debug_buffer=folder / "debug_buffer.bin", **given)
    return loaded, model, x, folder


@pytest.mark.parametrize("name", ["exported", "edge", "edge_dialect_exported_program/forward", "lowered"])
def test_a_graph_computes_what_the_model_computes(
    made: tuple[etviz.Inspection, nn.Module, Tensor, Path], name: str
) -> None:
    inspection, model, x, _ = made
    program = inspection.export.exported_program(name)
    assert isinstance(program, ExportedProgram)
    fresh = Counting().eval()
    fresh.load_state_dict(model.state_dict())
    fresh.count.zero_()
    module: Any = program.module()
    for _ in range(2):  # the buffer is carried over
        for found, expected in zip(module(x), fresh(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_what_is_not_there_or_dynamic_is_said(
    made: tuple[etviz.Inspection, nn.Module, Tensor, Path], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="there is no program 'nope'; the files hold exported, "):
        made[0].export.exported_program("nope")
    bare = etviz.load((made[3] / "etdump.etdp").read_bytes())
    with pytest.raises(UsageError, match="neither an ETRecord nor a record"):
        bare.export.exported_program()
    exported = torch.export.export(
        nn.Linear(4, 4).eval(), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=9)},)
    )
    etviz.debug(exported, (torch.randn(3, 4),), workdir=tmp_path)
    dynamic = etviz.load(tmp_path / "etdump.etdp", etrecord=tmp_path / "etrecord.bin")
    with pytest.raises(PairingError, match="dynamic sizes"):
        dynamic.export.exported_program("edge")
