"""Graphs of exported models: what overwrites a value is replaced, and each operator has a name of its own."""

from __future__ import annotations

import io
import json
import zipfile

import torch
from torch import Tensor, nn

from etviz.graph.from_export import read_exported_program
from etviz.pipeline.capture import capture_reference


class Shares(nn.Module):
    """Overwrites one of two results of an operator, then reads the other."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = torch.topk(x, 3)
        values /= values.sum(-1, keepdim=True)
        return values, indices * 2


class Alike(nn.Module):
    """A sine before, in both branches of, and after a condition."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(x)
        return torch.sin(torch.cond(y.sum() > 0, lambda v: torch.sin(v) + 1, lambda v: torch.sin(2 * v), (y,)))


def test_a_result_is_overwritten_beside_its_siblings() -> None:
    program = torch.export.export(Shares(), (torch.randn(2, 8),), strict=False)
    targets = [node.target for node in capture_reference(program, "forward", {}).nodes]
    assert targets == [
        "aten.topk.default",
        *["getitem"] * 2,
        "aten.sum.dim_IntList",
        "aten.div.Tensor",
        "aten.mul.Tensor",
    ]


def test_operators_in_a_branch_have_names_of_their_own() -> None:
    program = torch.export.export(Alike(), (torch.randn(3),))
    stored = io.BytesIO()
    torch.export.save(program, stored)
    with zipfile.ZipFile(stored) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("models/model.json"))
        content = json.loads(archive.read(name))
    for graph in (capture_reference(program, "forward", {}), read_exported_program(content)):
        names = [node.name for node in graph.walk()]
        assert sum(node.target == "aten.sin.default" for node in graph.walk()) == 4
        assert len(names) == len(set(names))
