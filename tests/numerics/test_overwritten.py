"""Values that the memory plan of a program puts into one place, so that the second is written over the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime
from torch import Tensor, nn
from torch.export import export

import etviz
from etviz.analysis.diagnosis import diagnose
from tests.statements import contradictions


class Twice(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cumsum(x, 0), torch.cumsum(x, 1)


class Read(nn.Module):
    """A delegate reads the first sum after the second was made."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        first, second = torch.cumsum(x, 0), torch.cumsum(x, 1)
        return torch.relu(self.linear(first)) - second


class OnePlace(MemoryPlanningPass):
    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        found = super().run(graph_module, graph_signature)
        sums = [node.meta["spec"] for node in graph_module.graph.nodes if "cumsum" in str(node.target)]
        sums[0].mem_offset = sums[1].mem_offset
        return found


def _files(model: nn.Module, folder: Path, planning: MemoryPlanningPass) -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    partitioner: Any = [XnnpackPartitioner()] if isinstance(model, Read) else None
    exported = export(model.eval(), (x,))
    edge = to_edge_transform_and_lower(exported, partitioner=partitioner, generate_etrecord=True)
    manager = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    manager.save(str(folder / "model.pte"))
    etrecord = manager.get_etrecord()
    etrecord.update_representative_inputs((x,))
    etrecord.save(str(folder / "etrecord.bin"))
    program = Runtime.get().load_program(folder / "model.pte", enable_etdump=True, debug_buffer_size=1 << 16)
    method = program.load_method("forward")
    assert method is not None
    method.execute([x])
    program.write_etdump_result_to_file(str(folder / "etdump.etdp"), str(folder / "debug_buffer.bin"))
    return {
        "etrecord": folder / "etrecord.bin",
        "debug_buffer": folder / "debug_buffer.bin",
        "pte": folder / "model.pte",
    }


def _said(inspection: etviz.Inspection, level: str) -> str:
    finding = inspection.analysis.finder.finding()
    assert finding is not None
    assert finding.level == level
    assert contradictions(inspection) == []
    return finding.text


def test_an_output_that_was_written_over(tmp_path: Path) -> None:
    """No operator is at fault: each one's value is right when it is logged."""
    files, dump = _files(Twice(), tmp_path, OnePlace()), tmp_path / "etdump.etdp"
    told = "Output 0 is not what #0 cumsum wrote"
    found = etviz.load(dump, **files, introduced=True)
    assert _said(found, "warn") == f"{told}; no operator adds more error than its precision explains."
    assert found.first_divergence is None
    assert f"{told}: other values came into its memory after that" in found.summary()
    assert _said(etviz.load(dump, **files, introduced=False), "warn") == f"{told}."


def test_an_input_that_was_written_over(tmp_path: Path) -> None:
    """The delegate computes right from what it received."""
    files, dump = _files(Read(), tmp_path, OnePlace()), tmp_path / "etdump.etdp"
    told = "Input 0 of #2 linear +2 is not what #0 cumsum wrote"
    found = etviz.load(dump, **files, introduced=True)
    assert _said(found, "warn") == f"{told}; no operator adds more error than its precision explains."
    assert found.gaps["introduced_severity"].max() < 3 < found.gaps["severity"].max()
    assert f"{told}: other values came" in found.summary()
    assert _said(etviz.load(dump, **files, introduced=False), "warn") == f"{told}."
    assert diagnose(found.analysis)["culprit"] is None


@pytest.mark.parametrize("model", [Twice(), Read()])
def test_values_in_places_of_their_own(model: nn.Module, tmp_path: Path) -> None:
    files = _files(model, tmp_path, MemoryPlanningPass())
    found = etviz.load(tmp_path / "etdump.etdp", **files)
    assert found.analysis.finder.decision().overwritten is None
    assert "wrote" not in found.summary()
