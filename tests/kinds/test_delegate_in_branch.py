"""A delegate inside of a branch of `torch.cond`: everything that is known of other delegates is known of it."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.graph_module import get_control_flow_submodules
from torch import Tensor, nn
from torch.export import ExportedProgram

import etviz
from tests.shelf import Shelf

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Chosen(nn.Module):
    """Each branch is one delegate."""

    def forward(self, flag: Tensor, x: Tensor) -> Tensor:
        return torch.sin(torch.cond(flag, lambda y: torch.sigmoid(y * y) + y, lambda y: torch.tanh(y + y) * y, (x,)))


class InBranches(Partitioner):
    """Gives XNNPACK what stands in branches, which its own partitioner leaves."""

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        for name, module, _ in get_control_flow_submodules(exported_program.graph_module):
            for node in module.graph.nodes:
                if node.op == "call_function":
                    node.meta["delegation_tag"] = name
                    tags[name] = DelegationSpec("XnnpackBackend", [])
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)


@pytest.fixture(scope="module")
def files(shelf: Shelf) -> dict[str, Any]:
    """What `etviz.debug` kept."""

    def make(folder: Path) -> None:
        importlib.import_module("executorch.backends.xnnpack.xnnpack_preprocess")  # registers the backend
        etviz.debug(Chosen().eval(), (torch.tensor(True), X), partitioner=[InBranches()], workdir=folder)

    folder = shelf.folder("delegate_in_branch", make)
    names = {
        "etdump": "etdump.etdp",
        "debug_buffer": "debug_buffer.bin",
        "etrecord": "etrecord.bin",
        "pte": "model.pte",
    }
    return {kind: folder / name for kind, name in names.items()}


def test_everything_is_known_of_it(files: dict[str, Any], tmp_path: Path) -> None:
    """Upstream's ETRecord tells of no delegate in a branch: that is no contradiction."""
    found = etviz.load(**files)
    compared = found.gaps[found.gaps["status"] != "not compared"]
    assert list(compared["instruction"]) == [1, 6]
    assert list(found.gaps["kind"]) == ["delegate", "kernel"]
    assert list(found.coverage["status"]) == ["compared", "not compared", "compared"]
    reference, runtime = found.tensors(0)
    expected = torch.sigmoid(X * X) + X
    torch.testing.assert_close(reference, expected)
    assert found.gaps["rmse"][0] == pytest.approx(float((runtime.double() - expected.double()).square().mean().sqrt()))
    inner = found.zoom(0)
    assert inner.faithful
    assert list(inner.gaps["reference_ops"]) == ["mul", "sigmoid", "add"]
    assert found.attribution().attrs["sum"] == pytest.approx(1, abs=0.05)
    after = found.what_if([0, 1])
    assert after.after["rmse"][0] == 0 < after.before["rmse"][0]
    assert list(found.time.ledger()["kind"]).count("delegate") == 2
    assert (found.repro(0, tmp_path / "repro") / "model.pte").exists()


@pytest.mark.parametrize("kinds", [("pte",), ("etrecord",), ("pte", "etrecord")], ids="-".join)
def test_without_the_record(kinds: tuple[str, ...], files: dict[str, Any], tmp_path: Path) -> None:
    """What is not known of it is said, and the kernel after it is compared all the same."""
    copies: dict[str, Any] = {kind: shutil.copy(files[kind], tmp_path) for kind in kinds}
    found = etviz.load(files["etdump"], debug_buffer=files["debug_buffer"], inputs=(torch.tensor(True), X), **copies)
    silent = found.coverage[found.coverage["status"] != "compared"]
    assert (silent["reason"] != "").all()
    compared = found.gaps[found.gaps["status"] != "not compared"]
    assert list(compared["instruction"]) == ([6] if "etrecord" in kinds else [])
