"""The real models that the tests export, lower and run: small, seeded, and of every kind that a user brings."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.devtools.backend_debug import get_delegation_info
from executorch.devtools.backend_debug.delegation_info import DelegationInfo
from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
from executorch.exir.schema import ExecutionPlan
from torch import Tensor, nn
from torch.export import ExportedProgram

import etviz
from etviz.demo.digits import load_digits, train
from tests.shelf import Shelf


class EncoderBlock(nn.Module):
    """A pre-norm transformer encoder block; its layer norms are not XNNPACK's."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5, -1)
        x = x + self.project((weights @ value).transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(self.norm_2(x))


class Encoder(nn.Module):
    """Two encoder blocks and a classifying head."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class PlainCNN(nn.Module):
    """A convolutional net that runs on the portable kernels only."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU()
        )
        self.head = nn.Linear(8 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.head(self.features(x).flatten(1)), -1)


class ResidualCNN(nn.Module):
    """Convolutions go to XNNPACK; layer norm and cumsum stay portable, between residual additions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.norm = nn.LayerNorm(8)
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = self.norm(x + self.block(x))
        return torch.cumsum(x + torch.sin(x), -1).mean((2, 3)) + self.last(x).sum((1, 2, 3)).unsqueeze(1)


class ManyOutputs(nn.Module):
    """Nested inputs; delegates with several outputs, one of them early; float, integer, boolean and list outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, batch: dict[str, Tensor], pair: tuple[Tensor, Tensor]) -> dict[str, Any]:
        early = torch.relu(self.first(batch["x"]))
        middle = torch.sigmoid(self.second(early))
        late = torch.tanh(middle + early) * pair[0]
        values, indices = torch.topk(late, 3, -1)
        return {
            "early": early,
            "late": (late, middle),
            "indices": indices,
            "positive": late > batch["threshold"],
            "parts": torch.split(torch.cumsum(early, -1), 4, -1),
            "count": pair[1] + indices.sum(),
            "values": values,
        }


class Counter(nn.Module):
    """Keeps a running mean in a mutable buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.linear = nn.Linear(4, 4)
        self.mean: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.linear(x - self.mean)


class Branches(nn.Module):
    """`torch.cond` with Python scalars in its branches, for which upstream cannot save an ETRecord."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, flag: Tensor, x: Tensor) -> Tensor:
        x = self.linear(x)
        return torch.cond(flag, lambda y: torch.sin(y) * 2.5 + 1, lambda y: torch.cos(y) - 1, (x,)) * 2


class Casts(nn.Module):
    """Values whose type only the memory tells that they are written to."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        whole = (x * 10).to(torch.int32)
        filled = torch.full_like(x, 2.9, dtype=torch.int64)
        return whole + 1, filled * whole, (x > 0).to(torch.float32) + x, x.to(torch.bool), x.to(torch.uint8)


class ChannelsLast(nn.Module):
    """Values with other strides than their shape suggests."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.conv(x).relu())


class Poisoned(nn.Module):
    """XNNPACK gives NaN where eager gives none: it takes 1e-40 for 0, on every processor. Both agree on an Inf."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(x / x) + 1, torch.cumsum(x * 10, -1)


@dataclass(frozen=True)
class Recipe:
    """How to make a program; `make test` asks the quick ones what is asked of all."""

    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    delegated: bool = False
    quantized: bool = False
    strict: bool = True
    quick: bool = True


@dataclass(frozen=True)
class Lowering:
    """A program while it was lowered.

    Attributes
    ----------
    edge, emitted
        As it was before `to_executorch()`, and afterwards.
    plan
        What upstream emitted for the runtime.
    info
        What upstream says about its delegation, asked at the right time.
    """

    edge: ExportedProgram
    emitted: ExportedProgram
    plan: ExecutionPlan
    info: DelegationInfo


@dataclass(frozen=True, eq=False)
class Executed:
    """A program that `etviz.debug` ran, once a test run; only its files and tables are there in every process.

    Attributes
    ----------
    folder
        The files that `etviz.debug` wrote, and nothing else.
    made
        Set in the process that made it.
    """

    name: str
    recipe: Recipe
    folder: Path
    made: Lowering | None = None

    def path(self, kind: str) -> Path:
        """One of the artifacts, by its argument of `etviz.load`."""
        return self.folder / FILES[kind]

    def told(self, name: str) -> str:
        """What the Inspection that `etviz.debug` gave had: a table as CSV, the tree or the summary."""
        return (self.folder.parent / "told" / name).read_text("utf-8")

    def load(self, **changes: Any) -> etviz.Inspection:
        """An Inspection of one's own, with the times of the run that logged its values."""
        files = {kind: self.path(kind) for kind in FILES if kind != "timing" and self.path(kind).exists()}
        given: dict[str, Any] = {**files, "inputs": self.inputs} | changes
        return etviz.load(given.pop("etdump"), **given)

    @cached_property
    def inspection(self) -> etviz.Inspection:
        """The Inspection that all tests of a process share, with rows: none of them zooms, selects or attributes."""
        found = self.load()
        assert len(found.gaps)
        return found

    @cached_property
    def _built(self) -> tuple[nn.Module, tuple[Any, ...]]:
        return build(self.recipe)

    @property
    def model(self) -> nn.Module:
        """The model that was given to `etviz.debug`."""
        return self._built[0]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The inputs that it ran on."""
        return self._built[1]

    @cached_property
    def lowering(self) -> Lowering:
        """The program in memory; it is lowered again where another process made it."""
        if self.made is not None:
            return self.made
        with tempfile.TemporaryDirectory() as folder, torch.enable_grad():
            return lower(self.recipe, Path(folder))[1]

    @property
    def edge(self) -> ExportedProgram:
        """The program before `to_executorch()`."""
        return self.lowering.edge

    @property
    def emitted(self) -> ExportedProgram:
        """Afterwards."""
        return self.lowering.emitted

    @property
    def plan(self) -> ExecutionPlan:
        """What upstream emitted for the runtime."""
        return self.lowering.plan

    @property
    def info(self) -> DelegationInfo:
        """What upstream says about its delegation."""
        return self.lowering.info


def _digits() -> nn.Module:
    return train(load_digits(), epochs=2)


def _image(*shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(*shape),)


def _nested() -> tuple[Any, ...]:
    return {"x": torch.randn(5, 8), "threshold": torch.tensor(0.1)}, (torch.randn(8), torch.tensor([3, -4]))


TABLES = ("gaps", "coverage", "outputs")

FILES = {
    "etdump": "etdump.etdp",
    "etrecord": "etrecord.bin",
    "debug_buffer": "debug_buffer.bin",
    "pte": "model.pte",
    "record": "model.etviz",
    "timing": "timing.etdp",
}

RECIPES = {
    "digits_int8": Recipe(_digits, lambda: (load_digits().test_images[:1],), delegated=True, quantized=True),
    "encoder": Recipe(Encoder, _image(1, 6, 16), delegated=True),
    "plain_cnn": Recipe(PlainCNN, _image(2, 3, 8, 8), quick=False),
    "residual_cnn": Recipe(ResidualCNN, _image(1, 3, 8, 8), delegated=True, strict=False, quick=False),
    "many_outputs": Recipe(ManyOutputs, _nested, delegated=True),
    "counter": Recipe(Counter, _image(3, 4)),
    "branches": Recipe(Branches, lambda: (torch.tensor(True), torch.randn(3, 4)), delegated=True),
    "casts": Recipe(Casts, _image(4, 5), quick=False),
    "channels_last": Recipe(
        ChannelsLast, lambda: (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),), quick=False
    ),
    "poisoned": Recipe(Poisoned, lambda: (torch.tensor([[-1e38, 1e-40, 3e38, 1.0]]),), delegated=True),
}


def build(recipe: Recipe) -> tuple[nn.Module, tuple[Any, ...]]:
    """The model and its inputs, the same ones each time; whoever asks may be anywhere in a test."""
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        return recipe.model().eval(), recipe.inputs()


def lower(recipe: Recipe, folder: Path) -> tuple[etviz.Inspection, Lowering]:
    """What `etviz.debug` gives; keeps what `to_executorch()` would overwrite."""
    model, inputs = build(recipe)
    options: dict[str, Any] = {}
    if recipe.delegated:
        options["partitioner"] = [XnnpackPartitioner()]
    if recipe.quantized:
        options["quantizer"] = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
        options["calibration"] = [(image[None],) for image in load_digits().train_images[:16]]
    before: list[ExportedProgram] = []
    infos: list[DelegationInfo] = []
    after: list[ExecutorchProgramManager] = []
    original = EdgeProgramManager.to_executorch

    def watched(manager: EdgeProgramManager, *args: Any, **kwargs: Any) -> Any:
        before.append(copy.deepcopy(manager.exported_program()))
        infos.append(get_delegation_info(manager.exported_program().graph_module))
        after.append(original(manager, *args, **kwargs))
        return after[-1]

    with mock.patch.object(EdgeProgramManager, "to_executorch", watched):
        inspection = etviz.debug(model, inputs, workdir=folder, strict=recipe.strict, **options)
    program, plan = after[0].exported_program(), after[0].executorch_program.execution_plan[0]
    return inspection, Lowering(before[0], program, plan, infos[0])


def run(name: str, shelf: Shelf) -> Executed:
    """A program of `RECIPES`; it is made if no process has made it yet."""
    made: list[Lowering] = []

    def make(folder: Path) -> None:
        (folder / "files").mkdir()
        (folder / "told").mkdir()
        inspection, lowering = lower(RECIPES[name], folder / "files")
        told = {table: getattr(inspection, table).to_csv() for table in TABLES}
        told |= {"tree": repr(inspection.tree), "summary": inspection.summary()}
        if RECIPES[name].quantized:
            told["quantization"] = inspection.quantization().to_csv()
        for about, text in told.items():
            (folder / "told" / about).write_text(text, "utf-8")
        made.append(lowering)

    folder = shelf.folder(name, make)
    return Executed(name, RECIPES[name], folder / "files", *made)
