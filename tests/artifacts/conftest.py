"""Real programs, exported, lowered and executed once a session, whose files the readers are tested on."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer
from executorch.exir import ExecutorchProgramManager, to_edge_transform_and_lower
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary
from executorch.runtime import Runtime, Verification
from functorch.experimental import control_flow
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from executorch.exir.backend.partitioner import Partitioner

CAPACITY = 1 << 20

# The bundle's file, its cases' inputs, and their expected outputs.
Bundle = tuple[Path, list[tuple[Any, ...]], list[Any]]


@dataclass(frozen=True)
class Run:
    """The files of one executed program."""

    pte: Path
    etdump: Path
    buffer: Path
    outputs: list[list[Any]]


class PartlyDelegated(nn.Module):
    """Convolution and linear layers go to XNNPACK; layer norm, cumsum and argmax stay portable."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.LayerNorm(16)
        self.inner = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.norm(torch.relu(self.conv(x)))
        y = torch.cumsum(torch.relu(self.inner(y)) + y, -1)
        return self.head(y), y.argmax(-1)


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return y.relu(), y.sum()


class ManyConvolutions(nn.Module):
    """Six kernel calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(6)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ManyKinds(nn.Module):
    """Empty and 0-dim tensors, a list, and every element type that an ETDump can hold."""

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        return (
            x[:0] + 1,
            torch.split(x, 2, 1),
            x.sum(),
            x.to(torch.bool),
            x.to(torch.int8),
            x.to(torch.uint8),
            x.to(torch.int16),
            x.to(torch.int32) + 1,
            x.double().sin(),
        )


class HalfInside(nn.Module):
    """Float32 at both ends, a 16-bit type in the middle."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.sin(x).to(self.dtype) * 2
        return torch.cos(y.float()) + x, y


class OnlyHalf(nn.Module):
    """Nothing that it computes can be described in an ETDump."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(torch.cos(x) + x)


class Branches(nn.Module):
    def forward(self, flag: Tensor, x: Tensor) -> Tensor:
        return torch.cond(flag, lambda y: torch.sin(y) + 1, lambda y: torch.cos(y), (x,)) * 2


class Loop(nn.Module):
    """Runs its body once for each row."""

    def forward(self, x: Tensor) -> Tensor:
        loop: Any = control_flow.map
        return loop(lambda row, other: torch.sin(row) + other, x, x[0] * 2) + 1


class Dynamic(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x @ x.transpose(0, 1), -1).reshape(-1) + 1


def lower(
    module: nn.Module, inputs: tuple[Any, ...], partitioned: bool = False, **options: Any
) -> ExecutorchProgramManager:
    program = torch.export.export(module.eval(), inputs, **options)
    partitioner: list[Partitioner] | None = [XnnpackPartitioner()] if partitioned else None
    return to_edge_transform_and_lower(program, partitioner=partitioner).to_executorch()


def execute(
    folder: Path,
    name: str,
    manager: ExecutorchProgramManager,
    calls: list[tuple[str, Any]],
    capacity: int = CAPACITY,
) -> Run:
    """Save a program and run it, all calls into one ETDump."""
    pte, etdump, buffer = (folder / f"{name}.{end}" for end in ("pte", "etdp", "bin"))
    manager.save(str(pte))
    options = {"enable_etdump": True, "debug_buffer_size": capacity}
    program = Runtime.get().load_program(str(pte), verification=Verification.Minimal, **options)
    outputs = []
    for method, inputs in calls:
        loaded = program.load_method(method)
        assert loaded is not None
        outputs.append([copy.deepcopy(item) for item in loaded.execute(inputs)])
    program.write_etdump_result_to_file(str(etdump), str(buffer))
    return Run(pte, etdump, buffer, outputs)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Every program of this file, executed."""
    folder = tmp_path_factory.mktemp("programs")
    torch.manual_seed(0)
    image, square = torch.randn(1, 3, 16, 16), torch.randn(4, 4)
    nhwc = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    tall = torch.randn(9, 4)
    flags = torch.tensor(True), torch.tensor(False)
    rows = {"dynamic_shapes": ({0: torch.export.Dim("rows", min=2, max=32)},)}
    two = to_edge_transform_and_lower(
        {
            "forward": torch.export.export(ChannelsLast().eval(), (nhwc,)),
            "other": torch.export.export(HalfInside(torch.float32).eval(), (square,)),
        }
    )
    plans: dict[str, tuple[Callable[[], ExecutorchProgramManager], list[tuple[str, Any]]]] = {
        "partly": (lambda: lower(PartlyDelegated(), (image,), True), [("forward", (image,))]),
        "channels_last": (lambda: lower(ChannelsLast(), (nhwc,)), [("forward", (nhwc,))]),
        "kinds": (lambda: lower(ManyKinds(), (square,)), [("forward", (square,))]),
        "half": (lambda: lower(HalfInside(torch.float16), (square,)), [("forward", (square,))] * 2),
        "bfloat16": (lambda: lower(HalfInside(torch.bfloat16), (square,)), [("forward", (square,))]),
        "all_half": (
            lambda: lower(PartlyDelegated().half(), (image.half(),), True),
            [("forward", (item.half(),)) for item in (image, image + 1)],
        ),
        "only_half": (
            lambda: lower(OnlyHalf(), (square.half(),)),
            [("forward", (item.half(),)) for item in (square, square + 1)],
        ),
        "branches": (
            lambda: lower(Branches(), (flags[0], square)),
            [("forward", (flag, square)) for flag in flags],
        ),
        "loop": (lambda: lower(Loop(), (tall,)), [("forward", (tall,))]),
        "dynamic": (lambda: lower(Dynamic(), (square,), True, **rows), [("forward", (torch.randn(7, 4),))]),
        "two_methods": (two.to_executorch, [("forward", (nhwc,)), ("other", (square,))]),
    }
    return {name: execute(folder, name, make(), calls) for name, (make, calls) in plans.items()}


SOUND = ("partly", "channels_last", "kinds", "branches", "loop", "dynamic", "two_methods")


@pytest.fixture(params=SOUND)
def sound(runs: dict[str, Run], request: pytest.FixtureRequest) -> Run:
    """Each program whose ETDump upstream can read, in turn."""
    return runs[request.param]


@pytest.fixture(scope="session")
def long_program(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program file with 4,000 instructions: those of a real one, repeated."""
    file = deserialize_pte_binary(runs["channels_last"].pte.read_bytes())
    plan = file.program.execution_plan[0]
    plan.values *= 1000
    plan.chains[0].instructions *= 1000
    path = tmp_path_factory.mktemp("long") / "long.pte"
    path.write_bytes(bytes(serialize_pte_binary(PTEFile(program=file.program))))
    return path


@pytest.fixture(scope="session")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One ETDump of 600 executions, more than 10,000 events."""
    torch.manual_seed(0)
    image = torch.randn(1, 3, 4, 4)
    calls = [("forward", (image,))] * 600
    return execute(tmp_path_factory.mktemp("long"), "long", lower(ManyConvolutions(), (image,)), calls, 16 << 20)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundled program with three cases, their inputs and their expected outputs."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ChannelsLast()

        def forward(self, x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
            y, total = self.inner(x)
            return y * factor, total

    torch.manual_seed(1)
    module = Scaled().eval()
    batch = torch.randn(3, 3, 8, 8).to(memory_format=torch.channels_last)
    inputs = [(batch[row : row + 1], 2) for row in range(3)]
    expected = [module(*item) for item in inputs]
    cases = [MethodTestCase(item, output) for item, output in zip(inputs, expected, strict=True)]
    manager = lower(module, inputs[0])
    bundled = BundledProgram(manager, [MethodTestSuite("forward", cases)])
    path = tmp_path_factory.mktemp("bundle") / "model.bpte"
    path.write_bytes(serialize_from_bundled_program_to_flatbuffer(bundled))
    return path, inputs, expected
