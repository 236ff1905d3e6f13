"""Real programs, exported, lowered and executed once a test run, whose files the readers are tested on."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

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

from tests.shelf import Shelf

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


def two_methods(image: Tensor, square: Tensor) -> ExecutorchProgramManager:
    other = HalfInside(torch.float32)
    methods = {"forward": (ChannelsLast(), image), "other": (other, square)}
    programs = {name: torch.export.export(module.eval(), (x,)) for name, (module, x) in methods.items()}
    return to_edge_transform_and_lower(programs).to_executorch()


Calls: TypeAlias = list[tuple[str, tuple[Any, ...]]]


def plans() -> dict[str, tuple[Callable[[], ExecutorchProgramManager], Calls]]:
    """How each program is lowered, and what is called of it."""
    generator = torch.Generator().manual_seed(0)
    image, square = (torch.randn(*shape, generator=generator) for shape in ((1, 3, 16, 16), (4, 4)))
    nhwc = torch.randn(2, 3, 4, 5, generator=generator).to(memory_format=torch.channels_last)
    tall, seven = (torch.randn(rows, 4, generator=generator) for rows in (9, 7))
    small = torch.randn(1, 3, 4, 4, generator=generator)
    flags = torch.tensor(True), torch.tensor(False)
    rows = {"dynamic_shapes": ({0: torch.export.Dim("rows", min=2, max=32)},)}
    return {
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
        "dynamic": (lambda: lower(Dynamic(), (square,), True, **rows), [("forward", (seven,))]),
        "two_methods": (lambda: two_methods(nhwc, square), [("forward", (nhwc,)), ("other", (square,))]),
        "long": (lambda: lower(ManyConvolutions(), (small,)), [("forward", (small,))] * 600),
    }


def execute(folder: Path, manager: ExecutorchProgramManager, calls: Calls, capacity: int) -> None:
    """Save a program and run it, all calls into one ETDump."""
    manager.save(str(folder / "model.pte"))
    options = {"enable_etdump": True, "debug_buffer_size": capacity}
    program = Runtime.get().load_program(folder / "model.pte", verification=Verification.Minimal, **options)
    outputs = []
    for method, inputs in calls:
        loaded = program.load_method(method)
        assert loaded is not None
        outputs.append([copy.deepcopy(item) for item in loaded.execute(inputs)])
    program.write_etdump_result_to_file(str(folder / "etdump.etdp"), str(folder / "debug_buffer.bin"))
    torch.save(outputs, folder / "outputs.pt")


class Runs(dict[str, Run]):
    """Every program of this file by name; it is lowered and executed if no process has done so yet."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__()
        self._shelf = shelf

    def __missing__(self, name: str) -> Run:
        folder = self._shelf.folder(f"{name}-artifacts", lambda folder: self._make(name, folder))
        outputs = torch.load(folder / "outputs.pt", weights_only=True)
        self[name] = Run(folder / "model.pte", folder / "etdump.etdp", folder / "debug_buffer.bin", outputs)
        return self[name]

    def _make(self, name: str, folder: Path) -> None:
        make, calls = plans()[name]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            manager = make()
        execute(folder, manager, calls, CAPACITY if len(calls) < 10 else 16 << 20)


@pytest.fixture(scope="session")
def runs(shelf: Shelf) -> Runs:
    """Every program of this file, executed."""
    return Runs(shelf)


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
def long_run(runs: dict[str, Run]) -> Run:
    """One ETDump of 600 executions, more than 10,000 events."""
    return runs["long"]


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

    with torch.random.fork_rng():
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
