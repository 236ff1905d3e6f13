"""The values of two models side by side, in units of measured noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from etviz.parity.parameters import Match, corresponding, match_parameters
from etviz.parity.runs import Arguments, Edits, Point, Trace, noise_of, run
from etviz.tensors.metrics import EPS, THRESHOLD

OUTPUT: Final = Point("", "result")


@dataclass(frozen=True, slots=True)
class Pair:
    """A point of the model, and the points of the reference that it is compared with.

    `others` are several where the model fuses modules. `rows` is the model's order of the last axis, None for the
    reference's. `factor` is the model's value over the reference's.
    """

    point: Point
    others: tuple[Point, ...]
    rows: torch.Tensor | None = None
    factor: float = 1.0

    def expected(self, reference: Trace, like: torch.Tensor) -> torch.Tensor | None:
        """The reference's value in the model's layout, in float64; None where the shapes do not fit."""
        parts = [value for other in self.others if (value := _at(reference, other)) is not None]
        if len(parts) < len(self.others) or len({part.shape[:-1] for part in parts}) > 1:
            return None
        value = torch.cat(parts, -1).double() * self.factor
        if self.rows is not None:
            if not value.ndim or int(self.rows.max()) >= value.shape[-1]:
                return None
            value = value[..., self.rows]
        return _fitted(value, like.shape)


def _at(trace: Trace, point: Point) -> torch.Tensor | None:
    return trace.output if point == OUTPUT else trace.values.get(point)


def _fitted(value: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
    if value.shape == shape:
        return value
    if value.ndim == 4 and value.transpose(1, 2).shape == shape:
        return value.transpose(1, 2)
    if value.numel() == math.prod(shape) and value.shape[-1:] == shape[-1:]:
        return value.reshape(shape)
    if value.ndim == 3 and value.shape[0] == shape[0] and value.shape[2:] == shape[-1:]:
        if len(shape) == 2:
            return value[:, -1]
        if len(shape) == 3 and 0 < shape[1] < value.shape[1]:
            return value[:, -shape[1] :]
    return None


@dataclass(frozen=True, slots=True)
class PortStage:
    """`rmse` and `max_abs` are in the value's units; `rel_l2` is relative to the reference's norm.

    `noise` is the RMS that the rounding of both models explains, measured.
    """

    pair: Pair
    shape: tuple[int, ...]
    rmse: float
    max_abs: float
    rel_l2: float
    noise: float

    @property
    def severity(self) -> float:
        """RMSE over noise; 0 where nothing differs, NaN where a value is not finite."""
        if self.rmse == 0:
            return 0.0
        return self.rmse / self.noise if self.noise else math.inf

    @property
    def agrees(self) -> bool:
        return self.severity < THRESHOLD


@dataclass(slots=True)
class Port:
    """A model beside its reference.

    `modules` maps a module of the model to that of the reference with the same parameters. `plain` and `expected` are
    the two runs; `noise` is RMS; `missing` parameters the model lacks.
    """

    model: torch.nn.Module
    reference: torch.nn.Module
    arguments: Arguments
    reference_arguments: Arguments
    tensors: dict[str, torch.Tensor]
    reference_tensors: dict[str, torch.Tensor]
    matches: dict[str, Match]
    modules: dict[str, str]
    plain: Trace
    expected: Trace
    pairs: list[Pair] = field(default_factory=list)
    noise: dict[Point, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    applied: Edits = field(default_factory=Edits)

    def stages(self, edits: Edits | None = None) -> list[PortStage]:
        trace = self.plain if edits is None else self.run(edits, [pair.point for pair in self.pairs])
        return [stage for pair in self.pairs if (stage := self._stage(pair, trace)) is not None]

    def run(self, edits: Edits, only: Sequence[Point] | None = None) -> Trace:
        return run(self.model, self.arguments, self.applied.joined(edits), only=only)

    def changed(self, edits: Edits, hidden: frozenset[Point]) -> Port:
        return replace(
            self,
            plain=self.run(edits),
            pairs=[pair for pair in self.pairs if pair.point not in hidden],
            tensors=self.tensors | edits.tensors,
            applied=self.applied.joined(edits),
        )

    def value(self, pair: Pair, trace: Trace | None = None) -> tuple[torch.Tensor, torch.Tensor] | None:
        value = _at(trace or self.plain, pair.point)
        expected = None if value is None else pair.expected(self.expected, value)
        return None if value is None or expected is None else (value.double(), expected)

    def _stage(self, pair: Pair, trace: Trace) -> PortStage | None:
        values = self.value(pair, trace)
        if values is None:
            return None
        value, expected = values
        gap = value - expected
        gap = torch.where((value == expected) | (value.isnan() & expected.isnan()), 0.0, gap)
        norm, size = float(expected.norm()), math.sqrt(max(gap.numel(), 1))
        rmse = float(gap.norm()) / size
        plain = _at(trace, pair.point)
        floor = EPS.get(str(plain.dtype).removeprefix("torch."), 0.0) / 2 / math.sqrt(3) if plain is not None else 0.0
        return PortStage(
            pair,
            tuple(value.shape),
            rmse if math.isfinite(rmse) else math.inf,
            float(gap.abs().max()) if gap.numel() else 0.0,
            float(gap.norm()) / norm if norm else (0.0 if rmse == 0 else math.inf),
            math.hypot(self.noise.get(pair.point, 0.0), floor * norm / size),
        )


def stored(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers; all-zero buffers hold state, not weights."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    kept = {
        name: value
        for name, value in model.state_dict(keep_vars=True).items()
        if name not in parameters and value.is_floating_point() and bool(value.any())
    }
    return {
        name: value.detach()
        for name, value in {**parameters, **kept}.items()
        if value.is_floating_point() and value.numel()
    }


def put_side_by_side(
    model: torch.nn.Module,
    reference: torch.nn.Module,
    arguments: Arguments,
    reference_arguments: Arguments,
    update: Callable[[], object],
) -> Port:
    mine, theirs = stored(model), stored(reference)
    plain = run(model, arguments)
    update()
    expected = run(reference, reference_arguments)
    update()
    matches = match_parameters(mine, theirs, _called(plain), _called(expected))
    by_name = {match.name: match for match in matches}
    modules = corresponding(list(mine), list(theirs), by_name)
    used = {source for match in matches for source in match.sources}
    port = Port(model, reference, arguments, reference_arguments, mine, theirs, by_name, modules, plain, expected)
    port.missing = [name for name in theirs if name not in used]
    port.pairs = _pairs(port)
    _measure_noise(port, update)
    return port


def _called(trace: Trace) -> list[str]:
    return list(dict.fromkeys(point.module for point in trace.values))


def _pairs(port: Port) -> list[Pair]:
    pairs = {}
    for point in port.plain.values:
        pair = _leaf_pair(port, point) or _container_pair(port, point)
        if pair is not None and port.value(pair) is not None:
            pairs[point] = pair
    result = Pair(OUTPUT, (OUTPUT,))
    return [*pairs.values(), *([result] if port.value(result) is not None else [])]


def own_matches(port: Port, path: str) -> list[Match]:
    return [match for name, match in port.matches.items() if name.rpartition(".")[0] == path and match.sources and path]


def _leaf_pair(port: Port, point: Point) -> Pair | None:
    matches = own_matches(port, point.module)
    if not matches:
        return None
    match = max(matches, key=lambda each: port.tensors[each.name].ndim)
    value = port.tensors[match.name]
    owners = tuple(dict.fromkeys(source.rpartition(".")[0] for source in match.sources))
    embedding = isinstance(port.model.get_submodule(point.module), torch.nn.Embedding)
    if point.side == "input":
        columns = match.rows if value.ndim == 1 and match.relation != "fused" else match.columns
        return Pair(point, (Point(owners[0], "input", point.call),), columns)
    others = tuple(Point(owner, "output", point.call) for owner in owners)
    if embedding or match.relation.endswith("transposed"):
        return Pair(point, others[:1], match.columns if embedding else None, match.factor if embedding else 1.0)
    matrix = value.ndim > 1
    return Pair(point, others, match.rows if value.ndim <= 2 else None, match.factor if matrix else 1.0)


def _container_pair(port: Port, point: Point) -> Pair | None:
    other = port.modules.get(point.module)
    if other is None or not point.module:
        return None
    children = {path for path in port.modules if path.startswith(point.module + ".")}
    if any(port.modules[child] == other for child in children):
        return None
    return Pair(point, (Point(other, point.side, point.call),))


def _measure_noise(port: Port, update: Callable[[], object]) -> None:
    squares: dict[Point, float] = {}
    lanes = 0
    for mine, theirs in zip(
        noise_of(port.model, port.arguments, port.plain),
        noise_of(port.reference, port.reference_arguments, port.expected),
        strict=True,
    ):
        lanes += 1
        update()
        for pair in port.pairs:
            moved = _at(mine, pair.point)
            other = None if moved is None else pair.expected(theirs, moved)
            for part in (moved, other):
                if part is not None:
                    squares[pair.point] = squares.get(pair.point, 0.0) + float(part.double().square().mean())
    rounded = _rounded(port)
    for point, square in squares.items():
        port.noise[point] = math.sqrt(square / lanes + rounded.get(point, 0.0))


def _rounded(port: Port) -> dict[Point, float]:
    values: dict[str, torch.Tensor] = {}
    for match in port.matches.values():
        if match.rounded:
            values |= match.put_into(port.tensors[match.name], port.reference_tensors | values)
    if not values:
        return {}
    gaps = run(port.reference, port.reference_arguments, Edits(values)).less(port.expected)
    squares = {}
    for pair in port.pairs:
        like = _at(port.plain, pair.point)
        gap = None if like is None else pair.expected(gaps, like)
        if gap is not None:
            squares[pair.point] = float(gap.square().mean())
    return squares


def first_difference(stages: Sequence[PortStage]) -> PortStage | None:
    """None also where values inside differ and the outputs agree: another cut of the same computation."""
    if stages and stages[-1].pair.point == OUTPUT and stages[-1].agrees:
        return None
    return next((stage for stage in stages if not stage.agrees), None)
