"""Delegates whose program can be read and not run here: Vulkan, Core ML and the native backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import etviz
from etviz.artifacts.program.held import held_operators
from etviz.artifacts.program.program import read_program
from etviz.cli.sizes import needs
from etviz.errors import ArtifactError, ExecutionError, UsageError
from etviz.explain.zoom.native_values import read_native
from etviz.pipeline import interpreters
from etviz.pipeline.emulation import emulate
from etviz.pipeline.lower import Lowered, lower
from etviz.pipeline.worker import WORKER

pytestmark = pytest.mark.slow
VENDOR = '''
from etviz.evaluation.evaluator import Evaluator
from etviz.pipeline.interpreters import ShownInside
import torch

def show(graph, payload, names, inputs, path):
    """What a device would return."""
    weights = torch.load({weights!r})
    own = {{item.target: weights[item.target.rpartition("/")[2]] for item in graph.inputs if item.target}}
    return ShownInside([], Evaluator(graph, own).run(list(inputs), replay=False), dict.fromkeys(names, ""))
'''


class Net(nn.Module):
    """A convolution with a batch norm, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.last(torch.relu(self.norm(self.first(x))).mean((2, 3))))


def _net() -> tuple[nn.Module, tuple[Tensor]]:
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(1, 2, 6, 6),)


def _vulkan() -> Any:
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    return VulkanPartitioner()


def _core_ml() -> Any:
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner

    return CoreMLPartitioner()


def _native() -> Any:
    from executorch.backends.native.partitioner import NativePartitioner

    return NativePartitioner()


PARTITIONERS: dict[str, Callable[[], Any]] = {
    "VulkanBackend": _vulkan,
    "CoreMLBackend": _core_ml,
    "NativeBackend": _native,
}


@pytest.fixture(scope="session", params=list(PARTITIONERS))
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Lowered]:
    """A backend and the model's files; Vulkan and Core ML take 20 seconds to import."""
    backend = request.param
    model, inputs = _net()
    try:
        return backend, lower(model, inputs, tmp_path_factory.mktemp(backend), partitioner=[PARTITIONERS[backend]()])
    except ImportError:
        pytest.skip(f"executorch can't lower for {backend} here")


def _payloads(found: Lowered) -> list[memoryview]:
    program = read_program(found.pte)
    calls = [item for item in program.method().instructions if item.kind == "delegate"]
    return [payload for call in calls if (payload := program.payload("forward", call.index)) is not None]


def test_the_operators_of_a_program_are_listed(one: tuple[str, Lowered]) -> None:
    backend, found = one
    held = [item for payload in _payloads(found) for item in held_operators(backend, payload) or ()]
    kinds = " ".join(item.kind for item in held)
    assert "conv" in kinds
    assert "linear" in kinds or "addmm" in kinds
    assert "tanh" in kinds
    (method,) = needs(found.pte)["methods"]
    listed = [item["operators"] for item in method["delegates"]]
    assert sum(sum(counts.values()) for counts in listed) == len(held)


def test_a_missing_backend_is_an_error_with_the_next_step(one: tuple[str, Lowered], tmp_path: Path) -> None:
    backend, _ = one
    model, inputs = _net()
    advice = "give runner='emulated'" if backend == "NativeBackend" else "run it on its device"
    with pytest.raises(ExecutionError, match=f"The runtime here has no {backend}, .*; {advice}") as error:
        etviz.debug(model, inputs, partitioner=[PARTITIONERS[backend]()], workdir=tmp_path)
    assert "Traceback" not in str(error.value)


def test_a_look_inside_tells_what_the_program_has(
    one: tuple[str, Lowered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a device, whose backend returned the right values and logged none inside."""
    backend, found = one
    model, inputs = _net()
    inspection = _from_a_device(backend, found, model, inputs, tmp_path, monkeypatch)
    told = ""
    for row in inspection.gaps.index[inspection.gaps["kind"] == "delegate"]:
        inside = inspection.zoom(row)
        reasons = inside.coverage.loc[inside.coverage["status"] == "not compared", "reason"]
        if backend == "NativeBackend":
            assert inside.faithful is True
            assert reasons.empty
            continue
        assert inside.faithful is None
        assert f"{backend} does not run on this machine" in str(inside.summary())
        assert reasons.str.startswith(f"{backend} does not run here").all()
        assert inside.first_divergence is None
        told += " ".join(reasons)
    if backend == "CoreMLBackend":
        assert "its program has conv for it" in told


def _from_a_device(
    backend: str,
    found: Lowered,
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> etviz.Inspection:
    torch.save(dict(model.state_dict()), folder / "weights.pt")
    code = VENDOR.format(weights=str(folder / "weights.pt"))
    (folder / "device_of_test.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with monkeypatch.context() as only:
        only.setattr(interpreters, "INTERPRETERS", dict(interpreters.INTERPRETERS))
        interpreters.register(backend, "device_of_test:show", "device")
        WORKER.stop()
        emulate(found.pte, found.record, [list(inputs)], workdir=folder, data=found.data)
        WORKER.stop()
    etdump = folder / "etdump.etdp"
    etdump.write_bytes(etdump.read_bytes().replace(b'"emulated"', b'"simulate"'))
    return etviz.load(etdump, debug_buffer=folder / "debug_buffer.bin", pte=found.pte, record=found.record,
                      etrecord=found.etrecord, data=found.data)  # fmt: skip


def test_damaged_programs_end_in_errors_that_say_so(one: tuple[str, Lowered]) -> None:
    backend, found = one
    content = bytes(_payloads(found)[0])
    random = np.random.default_rng(0)
    refused = 0
    for at in range(400):
        damaged = bytearray(content if at % 2 else content[: random.integers(len(content))])
        for place in random.integers(0, max(len(damaged), 1), 8 if damaged else 0):
            damaged[place] = random.integers(0, 256)
        try:
            held_operators(backend, memoryview(damaged))
            if backend == "NativeBackend":
                read_native(memoryview(damaged))
        except (ArtifactError, UsageError):
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("backend", list(PARTITIONERS))
def test_another_format_is_named(backend: str) -> None:
    with pytest.raises(UsageError, match=r"the delegate('s|) .*(VH00|NPTG|Core ML)"):
        held_operators(backend, memoryview(b"\x08\0\0\0XXXX" * 4))


def test_other_backends_are_not_read() -> None:
    assert held_operators("QnnBackend", memoryview(b"anything")) is None


# ---- the native graph is evaluated ----


def test_the_native_graph_gives_every_value(tmp_path: Path) -> None:
    model, inputs = _net()
    inspection = etviz.debug(model, inputs, partitioner=[_native()], runner="emulated", workdir=tmp_path)
    assert "Emulated: PyTorch kernels computed the delegates" in str(inspection.summary())
    torch.testing.assert_close(inspection.tensors(len(inspection.gaps) - 1)[1], model(*inputs))
    for row in inspection.gaps.index[inspection.gaps["kind"] == "delegate"]:
        assert inspection.zoom(row).coverage["status"].isin(["compared", "grouped"]).all()


def test_a_native_program_with_another_weight_is_told(tmp_path: Path) -> None:
    model, inputs = _net()
    other = model.state_dict()["last.weight"].clone()
    other[1] *= 0.25
    etviz.debug(model, inputs, partitioner=[_native()], runner="emulated", workdir=tmp_path / "right")
    found = next((tmp_path / "right").glob("model.ptd"))
    weight = model.state_dict()["last.weight"].numpy().tobytes()
    content = found.read_bytes()
    assert content.count(weight) == 1
    found.write_bytes(content.replace(weight, other.numpy().tobytes()))
    pte, record = tmp_path / "right/model.pte", tmp_path / "right/model.etviz"
    emulate(pte, record, [list(inputs)], workdir=tmp_path, data=found)
    inspection = etviz.load(tmp_path / "etdump.etdp", debug_buffer=tmp_path / "debug_buffer.bin", pte=pte,
                            record=record, etrecord=tmp_path / "right/etrecord.bin", data=found)  # fmt: skip
    row = inspection.worst(1).index[0]
    inside = inspection.zoom(row)
    assert inside.faithful is True
    assert "linear" in str(inside.worst(1).iloc[0]["reference_ops"])
