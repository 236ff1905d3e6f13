"""Random correct programs: what nobody would write, in every precision and on both backends, is left alone too.

``python -m tests.zoo.random_programs --first 0 --count 200`` prints those that etviz calls broken, or fails on. Each is
a chain of operators drawn by its seed, with branches between them, on inputs of a drawn kind. What ExecuTorch is known
to compute otherwise is not among them: gelu with tanh, sines of large numbers, sizes times 1.5 and clamps of int8
values on XNNPACK, layer norms far from 0, comparisons of 16-bit values with numbers that these can't hold.
"""

from __future__ import annotations

import argparse
import copy
import functools
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

import etviz
from etviz.errors import EtvizError
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from etviz.tensors.metrics import FALSE_ALARMS, THRESHOLD
from tests.zoo import judge
from tests.zoo.made import FILES, WAYS, Made
from tests.zoo.programs import Recipe

PRECISIONS = ("fp32", "fp32", "fp16", "bf16", "int8", "int8-tensor", "dynamic", "dynamic")
BACKENDS = ("portable", "xnnpack")
SCALES = (1.0, 1.0, 1.0, 1e-3, 30.0, 1e3)
Draw = random.Random
Step = Callable[[Tensor, Tensor], Tensor]
"""Computes a value from the last one and an earlier one of its shape."""

ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": lambda x: torch.exp(functional.hardtanh(x, -6, 6)),
    "sqrt": lambda x: torch.sqrt(x.abs()),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.1),
    "log": lambda x: torch.log(x.abs() + 0.01),
    "log1p": lambda x: torch.log1p(x.abs()),
    "abs": torch.abs,
    "neg": torch.neg,
    "square": torch.square,
    "floor": torch.floor,
    "round": torch.round,
    "ceil": torch.ceil,
    "sin": lambda x: torch.sin(functional.hardtanh(x, -3, 3)),
    "cos": lambda x: torch.cos(functional.hardtanh(x, -3, 3)),
    "erf": torch.erf,
    "reciprocal": lambda x: torch.reciprocal(x.abs() + 0.5),
    "pow": lambda x: torch.pow(x, 3),
    "hardtanh": functional.hardtanh,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.1),
    "elu": functional.elu,
    "clamp": lambda x: functional.hardtanh(x, -0.5, 1.5),
    "above": lambda x: (x > 0.125).to(x.dtype),
    "masked": lambda x: x.masked_fill(x < 0, -3.0),
    "shifted": lambda x: x + 100.0,
    "scaled": lambda x: x * 0.01,
    "between": lambda x: ((x > -0.5) & (x < 1.0)).to(x.dtype) - x,
    "whole": lambda x: torch.div((functional.hardtanh(x, -50, 50) * 2).to(torch.int32), 3, rounding_mode="floor").to(
        x.dtype
    ),
    "largest at": lambda x: x + torch.argmax(x, -1, keepdim=True).to(x.dtype) * 0.1,
    "counted": lambda x: x + (x > 0.25).sum(-1, keepdim=True).to(x.dtype),
}
TOGETHER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, y: x / (y.abs() + 0.5),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "where": lambda x, y: torch.where(x > y, x, 2 * y),
    "gated": lambda x, y: x * torch.sigmoid(y),
    "joined": lambda x, y: torch.cat([x, y], -1)[..., ::2],
}
ALONG: dict[str, Callable[[Tensor, int], Tensor]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "cumsum": torch.cumsum,
    "less_mean": lambda x, dim: x - x.mean(dim, keepdim=True),
    "less_largest": lambda x, dim: x - x.amax(dim, keepdim=True),
    "over_sum": lambda x, dim: x / (x.abs().sum(dim, keepdim=True) + 1.0),
    "over_deviation": lambda x, dim: x / (x.var(dim, keepdim=True) + 0.1).sqrt(),
    "over_norm": lambda x, dim: x / (x.square().mean(dim, keepdim=True) + 1e-3).sqrt(),
    "less_logsumexp": lambda x, dim: x - torch.logsumexp(x, dim, keepdim=True),
    "flipped": lambda x, dim: torch.flip(x, [dim]),
    "rolled": lambda x, dim: torch.cat([x.narrow(dim, 1, x.shape[dim] - 1), x.narrow(dim, 0, 1)], dim),
}


class Layer(nn.Module):
    """Applies a function of its layers to the last value."""

    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """`y` is what an earlier step gave."""
        return self.function(x, y, *self.layers)


class Chain(nn.Module):
    """Applies each step to the last value and an earlier one of its shape, if there is one.

    Parameters
    ----------
    steps
        In order.
    earlier
        By step: which of the values of its shape it has beside the last one.
    also
        Steps whose values are outputs too.
    """

    def __init__(self, steps: list[Layer], earlier: list[int], also: set[int]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self._earlier, self._also = earlier, also

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """All its outputs, the last value first."""
        values, outputs = [x], []
        for at, (step, back) in enumerate(zip(self.steps, self._earlier, strict=True)):
            same = [value for value in values if value.shape == x.shape]
            x = step(x, same[back % len(same)])
            values.append(x)
            if at in self._also:
                outputs.append(x)
        return (x, *outputs)


def _linear(draw: Draw, shape: list[int]) -> Layer:
    layer = nn.Linear(shape[-1], width := draw.choice((4, 7, 16, 33)), bias=draw.random() < 0.7)
    shape[-1] = width
    return Layer(lambda x, _, layer: layer(x), layer)


def _convolution(draw: Draw, shape: list[int]) -> Layer:
    if len(shape) != 4:
        return _linear(draw, shape)
    channels, width = shape[1], draw.choice((4, 6, 8))
    groups = draw.choice((1, channels))
    layer = nn.Conv2d(channels, width * groups, draw.choice((1, 3)), padding=1, groups=groups)
    shape[1:] = layer(torch.zeros(shape)).shape[1:]
    return Layer(lambda x, _, layer: layer(x), layer)


def _pooling(draw: Draw, shape: list[int]) -> Layer:
    if len(shape) != 4 or min(shape[2:]) < 4:
        return _along(draw, shape)
    layer = draw.choice((nn.MaxPool2d(2), nn.AvgPool2d(3, 1, 1), nn.AvgPool2d(2), nn.Upsample(scale_factor=2)))
    if isinstance(layer, nn.Upsample) and shape[2] > 12:
        return _along(draw, shape)
    shape[2:] = layer(torch.zeros(shape)).shape[2:]
    return Layer(lambda x, _, layer: layer(x), layer)


def _norm(draw: Draw, shape: list[int]) -> Layer:
    """Layer norms of rows whose mean is 0: ExecuTorch's lose digits where that is far larger than the deviation."""
    if len(shape) == 4:
        layer: nn.Module = draw.choice((nn.BatchNorm2d(shape[1]), nn.GroupNorm(1, shape[1])))
    else:
        layer = nn.LayerNorm(shape[-1])
    with torch.no_grad():
        for name, value in (*layer.named_parameters(), *layer.named_buffers()):
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + (0.5 if "var" in name or "weight" in name else -0.5))
    if isinstance(layer, nn.LayerNorm):
        return Layer(lambda x, _, layer: layer(x - x.mean(-1, keepdim=True)), layer)
    return Layer(lambda x, _, layer: layer(x), layer)


def _attention(draw: Draw, shape: list[int]) -> Layer:
    if len(shape) != 3:
        return _elementwise(draw, shape)
    size, layers = shape[-1], [nn.Linear(shape[-1], shape[-1]) for _ in range(2)]

    def attend(x: Tensor, y: Tensor, query: nn.Module, key: nn.Module) -> Tensor:
        return torch.softmax(query(x) @ key(y).transpose(1, 2) / size**0.5, -1) @ y

    return Layer(attend, *layers)


def _masked(draw: Draw, shape: list[int]) -> Layer:
    """Attention of one head to what came before, with scores of −Inf elsewhere."""
    if len(shape) != 3:
        return _elementwise(draw, shape)
    size, layers = shape[-1], [nn.Linear(shape[-1], shape[-1]) for _ in range(3)]

    def attend(x: Tensor, _: Tensor, query: nn.Module, key: nn.Module, value: nn.Module) -> Tensor:
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (query(x) @ key(x).transpose(1, 2) / size**0.5).masked_fill(later, -torch.inf)
        return x + torch.softmax(scores, -1) @ value(x)

    return Layer(attend, *layers)


def _recurrent(draw: Draw, shape: list[int]) -> Layer:
    if len(shape) != 3:
        return _linear(draw, shape)
    width = draw.choice((4, 8))
    layer = draw.choice((nn.GRU, nn.LSTM))(shape[-1], width, batch_first=True)
    shape[-1] = width
    return Layer(lambda x, _, layer: layer(x)[0], layer)


def _upward(draw: Draw, shape: list[int]) -> Layer:
    if len(shape) != 4 or shape[2] > 12:
        return _linear(draw, shape)
    width = draw.choice((4, 8))
    layer = draw.choice(
        (
            nn.ConvTranspose2d(shape[1], width, 3, 2, 1),
            nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(shape[1], width, 1)),
            nn.Sequential(nn.Conv2d(shape[1], 4 * width, 1), nn.PixelShuffle(2)),
        )
    )
    shape[1:] = layer(torch.zeros(shape)).shape[1:]
    return Layer(lambda x, _, layer: layer(x), layer)


def _picked(draw: Draw, shape: list[int]) -> Layer:
    """Rows of a table, of the last axis in another order, or the largest along it."""
    size = shape[-1]
    kind = draw.randrange(3)
    if kind == 0:
        table = nn.Embedding(5, size)
        return Layer(lambda x, _, table: x + table(functional.hardtanh(x[..., 0], 0, 4).long()).reshape(x.shape), table)
    if kind == 1:
        order = torch.tensor(draw.sample(range(size), size))
        return Layer(lambda x, _: x[..., order])
    shape[-1] = max(1, size // 2)
    return Layer(lambda x, _: torch.topk(x, max(1, size // 2), -1)[0])


def _moved(draw: Draw, shape: list[int]) -> Layer:
    if len(shape) == 4:
        shape[1:] = shape[2], shape[3], shape[1]
        return Layer(lambda x, _: x.permute(0, 2, 3, 1))
    if len(shape) == 3:
        shape[1:] = shape[2], shape[1]
        return Layer(lambda x, _: x.transpose(1, 2))
    return _along(draw, shape)


def _elementwise(draw: Draw, shape: list[int]) -> Layer:
    function = ELEMENTWISE[draw.choice(sorted(ELEMENTWISE))]
    return Layer(lambda x, _: function(x))


def _together(draw: Draw, shape: list[int]) -> Layer:
    function = TOGETHER[draw.choice(sorted(TOGETHER))]
    return Layer(function)


def _along(draw: Draw, shape: list[int]) -> Layer:
    function, dim = ALONG[draw.choice(sorted(ALONG))], draw.randrange(1, len(shape))
    return Layer(lambda x, _: function(x, dim))


STEPS: dict[Callable[[Draw, list[int]], Layer], int] = {
    _linear: 4,
    _convolution: 3,
    _pooling: 1,
    _norm: 2,
    _attention: 1,
    _masked: 1,
    _recurrent: 1,
    _upward: 1,
    _picked: 1,
    _moved: 1,
    _elementwise: 7,
    _together: 4,
    _along: 2,
}
"""Make a step for a shape, which they change; drawn so often."""


def _inputs(draw: Draw, shape: list[int]) -> Tensor:
    kind, scale = draw.choice(("normal", "normal", "uniform", "whole", "sparse", "outlier", "constant", "rows")), 1.0
    x = torch.randn(shape)
    match kind:
        case "uniform":
            x = torch.rand(shape)
        case "whole":
            x = torch.randint(-6, 7, shape).float()
        case "sparse":
            x = x * (torch.rand(shape) < 0.1)
        case "outlier":
            x.view(-1)[draw.randrange(x.numel())] = 200.0
        case "constant":
            x = torch.full(shape, 0.37)
        case "rows":  # of unlike size, as the tokens of a prompt
            x = x * 10.0 ** torch.randint(-3, 4, (*shape[:-1], 1))
    scale = draw.choice(SCALES) if kind not in ("whole", "outlier", "rows") else 1.0
    return x * scale


def recipe(seed: int) -> Recipe:
    """The program of a seed."""
    draw = random.Random(seed)
    precision, backend = draw.choice(PRECISIONS), draw.choice(BACKENDS)
    if precision.startswith(("int8", "dynamic")):
        backend = "xnnpack" if draw.random() < 0.8 else backend
    return Recipe(f"random {seed}", functools.partial(_built, seed), precision, backend)


def _built(seed: int) -> tuple[nn.Module, tuple[Tensor]]:
    draw = random.Random(-1 - seed)
    torch.manual_seed(draw.randrange(1 << 30))
    shape: list[int] = list(draw.choice(((1, 3, 8, 8), (2, 3, 9, 7), (1, 5, 16), (2, 6, 12), (3, 16), (1, 40))))
    inputs = _inputs(draw, shape)
    makers = draw.choices(list(STEPS), list(STEPS.values()), k=draw.randint(3, 14))
    steps = [make(draw, shape) for make in makers]
    earlier = [draw.randrange(1 << 16) for _ in steps]
    also = {at for at in range(len(steps) - 1) if draw.random() < 0.1}
    return Chain(steps, earlier, also).eval(), (inputs,)


class NotMadeError(Exception):
    """ExecuTorch can't lower or run the program, or its values overflow: a kernel's partial sums may do so before."""


def examine(seed: int, folder: Path) -> dict[str, judge.Said]:
    """What is said of the program of a seed, by way of loading.

    Raises
    ------
    NotMadeError
        If there is none.
    """
    program = examine_once(seed, folder)
    (folder / "model.etviz").rename(folder / FILES["record"])
    made = Made(program.name, folder)
    return {way: judge.judge(made, way) for way in WAYS}


def examine_once(seed: int, folder: Path) -> Recipe:
    """Lower and run the program of a seed; a `NotMadeError` if that fails, or its values overflow."""
    program = recipe(seed)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        exported, inputs = program.export()
        if not all(output.isfinite().all() for output in exported.module()(*inputs)):
            raise NotMadeError("its values overflow")
        etviz.debug(exported, inputs, partitioner=program.partitioner(), workdir=folder)
    except NotMadeError:
        raise
    except Exception as error:
        raise NotMadeError(f"{type(error).__name__}: {error}") from error
    return program


def two_faults(seed: int, folder: Path) -> tuple[list[str], list[str]]:
    """Run the program of a seed with weights of two layers doubled in part, and judge it by the right reference.

    Returns the two layers and those that are named, the first divergence first, both by module path.

    Raises
    ------
    NotMadeError
        If there is no program, or it has not two layers with weights.
    """
    model, inputs = _built(seed)
    layers = [name for name, layer in model.named_modules() if isinstance(getattr(layer, "weight", None), Tensor)]
    if len(layers) < 2:
        raise NotMadeError("it has not two layers with weights")
    wrong = copy.deepcopy(model)
    changed = random.Random(seed).sample(layers, 2)
    with torch.no_grad():
        for name in changed:
            weight = wrong.get_parameter(f"{name}.weight")
            weight[: len(weight) // 3 + 1].mul_(2)
    try:
        for at, one in (("right", model), ("wrong", wrong)):
            (folder / at).mkdir(parents=True)
            lower(one, inputs, folder / at)
        run = execute(folder / "wrong" / "model.pte", [list(inputs)], workdir=folder / "wrong")
    except Exception as error:
        raise NotMadeError(f"{type(error).__name__}: {error}") from error
    found = etviz.load(
        run.etdump,
        record=folder / "right" / "model.etviz",
        etrecord=folder / "right" / "etrecord.bin",
        debug_buffer=run.debug_buffer,
        inputs=[inputs],
    ).diagnosis(look_inside=False)
    named = [found["culprit"], *found["suspects"]] if found["culprit"] is not None else []
    return sorted(changed), [item["module"] for item in named]


def named_values(seed: int, count: int, folder: Path) -> tuple[int, list[str]]:
    """Execute the program of a seed on `count` inputs: how many values were compared, and those that are named.

    Raises
    ------
    NotMadeError
        If there is no program.
    """
    examine_once(seed, folder)
    draw = random.Random(~seed)
    shape = list(recipe(seed).export()[1][0].shape)
    inputs = [(_inputs(draw, shape),) for _ in range(count)]
    run = execute(folder / "model.pte", [list(item) for item in inputs], workdir=folder / "many")
    found = etviz.load(
        run.etdump,
        etrecord=folder / "etrecord.bin",
        pte=folder / "model.pte",
        debug_buffer=run.debug_buffer,
        inputs=inputs,
    )
    finite = found.gaps[(found.gaps["reference_nan"] == 0) & (found.gaps["reference_inf"] == 0)]
    named = finite[finite["introduced_severity"] >= THRESHOLD]
    return len(finite), [
        f"{judge.describe(row)} output {row['output']}, run {row['event_block']}: {row['introduced_severity']:.3g}"
        for _, row in named.iterrows()
    ]


def _counted(item: tuple[int, int]) -> tuple[int, int, list[str]]:
    seed, count = item
    with tempfile.TemporaryDirectory() as folder:
        try:
            return seed, *named_values(seed, count, Path(folder))
        except (NotMadeError, EtvizError):
            return seed, 0, []


def _examined(seed: int) -> tuple[int, dict[str, judge.Said] | str]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return seed, examine(seed, Path(folder))
        except NotMadeError as error:
            return seed, " ".join(str(error).split())[:150]


def _quiet() -> None:
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)


def main() -> int:
    """Examine some; the exit status is 1 if one is called broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.random_programs", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="seed of the first; %(default)s by default")
    parser.add_argument("--count", type=int, default=100, help="%(default)s by default")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="%(default)s by default")
    parser.add_argument("--inputs", type=int, default=0, help="count the values named over so many inputs of each")
    asked = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    if asked.inputs:
        return _count(asked, console)
    missing = alarmed = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.processes, mp_context=context, initializer=_quiet) as pool:
        for seed, said in pool.map(_examined, range(asked.first, asked.first + asked.count)):
            if isinstance(said, str):
                missing += 1
                console.print(f"{seed}: not made: {said}", markup=False)
                continue
            loud = {way: item for way, item in said.items() if not item.calm}
            alarmed += bool(loud)
            for way, item in loud.items():
                program = recipe(seed)
                about = f"{item.first} {item.first_severity:.1f}" if item.first else f"worst {item.worst}"
                kind = f"{program.precision} {program.backend}"
                console.print(f"{seed} {kind}, {way}: {item.verdict} | {about}", markup=False)
    console.print(f"{asked.count} programs: {alarmed} alarmed, {missing} not made", markup=False)
    return 1 if alarmed else 0


def _count(asked: argparse.Namespace, console: Console) -> int:
    """The values that are named, of all; the exit status is 1 if there are more than `FALSE_ALARMS` allows."""
    context, values, named = multiprocessing.get_context("spawn"), 0, 0
    seeds = [(seed, asked.inputs) for seed in range(asked.first, asked.first + asked.count)]
    with ProcessPoolExecutor(asked.processes, mp_context=context, initializer=_quiet) as pool:
        for seed, count, found in pool.map(_counted, seeds):
            values, named = values + count, named + len(found)
            for text in found:
                program = recipe(seed)
                console.print(f"{seed} {program.precision} {program.backend}: {text}", markup=False)
            console.print(f"{values:,} values, {named} named", markup=False)
    return 1 if named > max(1.0, FALSE_ALARMS * values) else 0


if __name__ == "__main__":
    sys.exit(main())
