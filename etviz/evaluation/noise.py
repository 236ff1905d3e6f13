"""Noise: the difference that a correct implementation may have, by law for one operator and by measurement for several.

One operator on known inputs has the noise ``ε/2 · rms S`` of the law (`etviz.evaluation.law`). In a chain of operators
the rounding of earlier ones propagates. It is measured by Monte Carlo arithmetic (D. S. Parker, "Monte Carlo
Arithmetic: exploiting randomness in floating-point arithmetic", 1997): the graph is evaluated again, each result is
replaced by ``result + u·(ε/2)·S`` with random u, and the RMS of the difference is the noise.

Grids have two rules (docs/noise.md). A value moves by ``u·δ·step`` before a quantize rounds it. Values after a grid of
step s are granted what an error of ``s/√12`` becomes there (B. Widrow, "Statistical analysis of amplitude-quantized
sampled-data systems", 1961): in separate lanes each grid starts from plain values, which move by ``u·s/√12``, and in
all lanes if a backend chooses the grid at run time.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np
import torch

from etviz.errors import EtvizError, PairingError
from etviz.evaluation.affine import PER_TENSOR, rounded_to_grid
from etviz.evaluation.evaluator import Again, Evaluator, Scope
from etviz.evaluation.further_axis import has_further_axis, in_memory, unwrapped
from etviz.evaluation.language_kernels import reads_grids, without_grids
from etviz.evaluation.law import (
    ENOUGH,
    allowance,
    chance,
    goes_through,
    half_ulp,
    independent,
    largest_size,
    only_picks,
    sizes,
)
from etviz.evaluation.operator_rules import by_position
from etviz.evaluation.products import weight_of
from etviz.evaluation.rounds import Rounds
from etviz.evaluation.series import Series
from etviz.evaluation.several import (
    Several,
    in_one,
    lane_of,
    over_axis,
    over_lanes,
    part_of,
    several,
)
from etviz.evaluation.threads import has_small_operators
from etviz.evaluation.unpacked import elements, largest_value
from etviz.evaluation.values import Value, flat_values
from etviz.graph.draws import draws
from etviz.graph.ir import CONTROL, Graph, Node, Ref
from etviz.graph.quantize_ops import (
    DEQUANTIZE,
    QUANTIZE,
    chooses_grid,
    conversion,
    grid_arguments,
    is_dequantize,
    is_quantize,
    unpacked_weights,
)
from etviz.graph.uses import is_stateful, item_of
from etviz.native import pair_squares
from etviz.tensors.blocks import equal
from etviz.tensors.digest import octets
from etviz.tensors.metrics import MEASURED, NAN, THRESHOLD, Noise, unavoidable
from etviz.upstream.libraries import is_users

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Self

    from etviz.evaluation.interludes import Interlude
    from etviz.evaluation.law import Sizes

logger = logging.getLogger(__name__)
DELTA: Final = 1e-3
"""Part of a step by which a value moves before it is rounded to a grid. Requantization factors of 20 to 30 bits let
values up to 2⁷ steps miss the middle of two steps by up to 2⁻¹³ to 2⁻²³; ties of fixed-point arithmetic add to it.
"""
PASSES: Final = 5
"""Maximum number of perturbed lanes. More of them cost time; fewer widen the noise of single numbers (by 105 for 2)."""
_CHAINED: Final = 2
"""The same for operators whose values were not logged in large programs: every evaluation computes them."""
_SMALL: Final = 1 << 19
"""Elements of a program's largest value up to which its lanes take little memory side by side."""
_SIGNS: Final = 64
"""Maximum number of lanes with other signs."""
_SEEDS: Final = 0x9E3779B97F4A
"""First seed. Models and inputs are often drawn from small ones, which would not be independent of the rounding."""
_KEYED: Final = 4096
"""Number of elements of a value from which its random numbers follow."""
_GRIDS: Final = (QUANTIZE, DEQUANTIZE)
_UNIFORM: Final = math.sqrt(3.0)
"""Half width of a uniform distribution with an RMS of 1."""
_DRAWN: Final = 1 << 22
"""Random numbers that are drawn once. A value takes a part of them, from a random place on, unless it needs most."""


class Computed:
    """The last operator that one of several roundings computed, for the others on the same arguments."""

    def __init__(self) -> None:
        self._given: list[Any] = []
        self._value: Any = None
        self._sizes: Sizes | None = None

    def value(self, call: Callable[..., Any], node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        given = [node, *args, *kwargs.values()]
        may_draw = draws(node) or is_users(node.target)
        if may_draw or len(given) != len(self._given) or any(map(operator.is_not, given, self._given)):
            self._given, self._value, self._sizes = given, call(node.target, args, kwargs), None
        return self._value

    def sizes(self, node: Node, args: Any, kwargs: Any, value: Any, call: Callable[..., Any]) -> Sizes:
        if value is not self._value:
            return sizes(node, args, kwargs, value, call)
        if self._sizes is None:
            self._sizes = sizes(node, args, kwargs, value, call)
        return self._sizes


class Rounding:
    """Perturbs the results of operators.

    `grids` are `Grids.values`, to measure only the effect of grids; nothing else is perturbed then. `quantized` has an
    entry for each call of a quantize, by the id of its node.
    """

    def __init__(
        self, seed: int, grids: Mapping[int, Sequence[Any]] | None = None, computed: Computed | None = None
    ) -> None:
        self._computed = computed
        self.quantized: dict[int, list[Any]] = defaultdict(list)
        self._grids = grids
        self._seed = _SEEDS + seed
        self._random = Random()

    def call(
        self,
        call: Callable[..., Any],
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any:
        if self._grids is not None and to_grid(node):
            known, at = self._grids.get(id(node), ()), len(self.quantized[id(node)])
            self.quantized[id(node)].append(None)
            return known[at] if at < len(known) else call(node.target, args, kwargs)
        if is_quantize(node):
            self.quantized[id(node)].append(None)
            self.begin(key_of(args or list(kwargs.values())))
            return self.quantize(call, node, args, kwargs)
        if self._grids is not None and reads_grids(node.target):
            self.begin(key_of(args))
            return call(node.target, [], without_grids(node.target, args, kwargs, self._off_grid))
        known = self._computed
        value = known.value(call, node, args, kwargs) if known is not None else call(node.target, args, kwargs)
        self.begin(key_of(value))
        if is_dequantize(node) and (self._grids is not None or (delegated and is_chosen(node))):
            value = self.on_grid(node, args, kwargs, value)
        if self._grids is not None:
            return value
        given = node, args, kwargs, value, call
        return self.moved(value, known.sizes(*given) if known is not None else sizes(*given))

    def begin(self, key: int) -> None:
        self._random.seed(self._seed ^ key)

    def quantize(self, call: Callable[..., Any], node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value = args[0] if args else kwargs.get("input")
        step = steps(node, args, kwargs)
        if step is None or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return call(node.target, args, kwargs)
        if node.target == PER_TENSOR and value.dtype == torch.float32:
            grid = by_position(node.target, args, kwargs)[0][1:]
            moved_to = partial(_moved_to_grid, grid, DELTA * step)
            return in_memory(moved_to, value, self.moves(value, step))
        moved = value + (self.moves(value, step) * (DELTA * step)).to(value.dtype) * (value != 0)  # 0 is on each grid
        return (
            call(node.target, [moved, *args[1:]], kwargs) if args else call(node.target, [], {**kwargs, "input": moved})
        )

    def moves(self, value: torch.Tensor, step: Any) -> torch.Tensor:
        return self.uniform(value)

    def on_grid(self, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> Any:
        step = steps(node, args, kwargs)
        if step is None or half_ulp(value) is None:
            return value
        return self._off_grid(value, step)  # 0 too, which stands for all that is small on this grid

    def _off_grid(self, value: torch.Tensor, step: Any) -> torch.Tensor:
        return value + (self.uniform(value) * (step / math.sqrt(12.0))).to(value.dtype)

    def moved(self, value: Any, each: Sizes) -> Any:
        """``value + u·(ε/2)·S`` for each result."""
        if isinstance(value, (list, tuple)):
            return [self.moved(result, [size]) for result, size in zip(value, each, strict=True)]
        half, size = half_ulp(value), each[0]
        if half is None or size is None:
            return value
        if value.is_complex():  # whose parts share the error
            step = self.uniform(value) * (size.unsqueeze(-1) * (half / math.sqrt(2.0)))
            return value + torch.view_as_complex(step).to(value.dtype)
        if value.dtype == torch.float32:
            return torch.addcmul(value, self.uniform(value), size.to(value.dtype), value=half)
        return value + (self.uniform(value) * size).mul_(half).to(value.dtype)

    def uniform(self, like: torch.Tensor) -> torch.Tensor:
        if has_further_axis(like):
            return in_memory(self.uniform, like)
        like = torch.view_as_real(like) if like.is_complex() else like
        count = like.numel()
        if 2 * count > _DRAWN:
            return _drawn(count, self._random.getrandbits(63)).view(like.shape)
        first = self._random.randrange(_DRAWN - count)
        return _numbers()[first : first + count].view(like.shape)


class Ties(Rounding):
    """Rounds each value that is within reach of the middle of two steps to the other one."""

    def moves(self, value: torch.Tensor, step: Any) -> torch.Tensor:
        place = value.double() / step
        return (place.floor() + 0.5 - place).sign() * _UNIFORM


def _moved_to_grid(grid: Sequence[Any], part: float, x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    return rounded_to_grid(x, *grid, numbers=numbers.to(x.dtype), part=part)  # `Ties` has float64


def _drawn(count: int, seed: int) -> torch.Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed)).sub_(0.5).mul_(2.0 * _UNIFORM)


@functools.cache
def _numbers() -> torch.Tensor:
    return _drawn(_DRAWN, _SEEDS)


def key_of(value: Any) -> int:
    """A number that follows from an operator's value: it is the same in every form of the program."""
    first = next((tensor for tensor in flat_values(value) if isinstance(tensor, torch.Tensor)), None)
    if first is None:
        return 0
    flat = unwrapped(first).detach().reshape(-1)
    return crc32(octets(flat[:: max(1, flat.numel() // _KEYED)]).numpy().tobytes())


class Grids:
    """Keeps what each quantize and choice of a grid gives, by the id of its node."""

    def __init__(self) -> None:
        self.values: dict[int, list[Any]] = defaultdict(list)

    def call(
        self,
        call: Callable[..., Any],
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any:
        value = call(node.target, args, kwargs)
        if to_grid(node):
            self.values[id(node)].append(value)
        return value


def to_grid(node: Node) -> bool:
    return is_quantize(node) or chooses_grid(node)


def is_chosen(node: Node) -> bool:
    grid = grid_arguments(node.target, node.args, node.kwargs)
    return grid is not None and isinstance(grid.scale, Ref)


def steps(node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    grid = grid_arguments(node.target, args, kwargs)
    value = args[0] if args else kwargs.get("input")
    if grid is None or not isinstance(value, torch.Tensor):
        return None
    if not isinstance(grid.scale, torch.Tensor):
        return abs(grid.scale) if isinstance(grid.scale, (int, float)) else None
    scale = grid.scale.abs().to(torch.float32)
    if scale.numel() == 1:
        return scale.reshape(())
    blocks = grid.blocks(value.shape)
    if len(blocks) != value.ndim or any(
        block < 1 or size % block for size, block in zip(value.shape, blocks, strict=True)
    ):
        return None
    counts = [size // block for size, block in zip(value.shape, blocks, strict=True)]
    if scale.numel() != math.prod(counts):
        return None
    scale = scale.reshape(counts)
    for axis, block in enumerate(blocks):
        scale = scale.repeat_interleave(block, axis) if counts[axis] > 1 and block > 1 else scale
    return scale


def _steps_after(graph: Graph) -> dict[str, float]:
    """The smallest step of the grids that values go to without another use."""
    found, others = dict[str, float](), {*graph.results()}
    for node in reversed(graph.nodes):
        grid = grid_arguments(node.target, node.args, node.kwargs) if is_quantize(node) else None
        step = grid.scale if grid is not None else found.get(node.name) if goes_through(node) else None
        if isinstance(step, float) and node.name not in (others if grid is None else ()):
            found |= {name: min(step, found.get(name, math.inf)) for name in node.reads()}
        else:
            others.update(node.reads())
    return {name: step for name, step in found.items() if name not in others}


def _squares(perturbed: torch.Tensor, value: torch.Tensor) -> tuple[float, float] | None:
    if perturbed is value or (not value.is_floating_point() and equal(perturbed, value)):
        return 0.0, 0.0
    if value.numel() < ENOUGH or any(tensor.dtype != torch.float32 for tensor in (perturbed, value)):
        return None
    perturbed, value = perturbed.contiguous(), value.contiguous()
    return pair_squares(value.data_ptr(), perturbed.data_ptr(), value.numel())


class Spread:
    """Collects the differences of perturbed values to the plain one, lane by lane."""

    def __init__(self) -> None:
        self._by_lane: list[float] = []
        self._each: list[npt.NDArray[np.float64]] = []
        self._count = 0
        self._size = 0.0

    def add(self, perturbed: Any, value: Any) -> None:
        """Takes what is finite, until there are `ENOUGH` samples."""
        if not isinstance(perturbed, torch.Tensor) or not isinstance(value, torch.Tensor):
            return
        if perturbed.shape != value.shape or perturbed.is_complex() or not value.numel() or self.samples >= ENOUGH:
            return
        known = _squares(perturbed, value)
        self._count = value.numel()
        if known is None:
            each = perturbed.double() - value.double()
            finite = torch.isfinite(each)
            each = torch.where(finite, each, 0.0)
            self._count = max(1, int(finite.sum()))
            if value.numel() < ENOUGH:
                self._each.append(each.reshape(1, -1).numpy())
            known = float(each.square().sum()), float(torch.nan_to_num(value.double(), 0.0, 0.0, 0.0).square().sum())
        self._size = self._size if self._by_lane else known[1]
        self._by_lane.append(known[0])

    def add_lanes(self, perturbed: Any, value: Any, lanes: range) -> None:
        wanted = min(len(lanes), math.ceil(ENOUGH / max(1, value.numel()))) if isinstance(value, torch.Tensor) else 0
        first = range(lanes.start, lanes.start + wanted)
        part = perturbed.part(first) if isinstance(perturbed, Several) and perturbed.can_stack else None
        stacked = part.stacked if isinstance(part, Several) else None
        if lanes and stacked is not None and 0 < value.numel() < ENOUGH and not (stacked.is_complex() or self._by_lane):
            plain = value.double()
            each = (stacked.double() - plain).reshape(wanted, -1)
            by_lane = each.square().sum(1).tolist()
            if all(map(math.isfinite, by_lane)):
                self._count, self._size = value.numel(), float(plain.square().sum())
                self._each.append(each.numpy())
                self._by_lane += by_lane
                return
        for at in lanes:
            if self.samples >= ENOUGH:
                return
            self.add(lane_of(perturbed, at), value)

    def told(self) -> list[Any]:
        return [self._by_lane, self._count, self._size, [each.tolist() for each in self._each]]

    @classmethod
    def of_told(cls, told: list[Any]) -> Spread:
        spread = cls()
        spread._by_lane, spread._count, spread._size = [*map(float, told[0])], told[1], told[2]
        spread._each = [np.asarray(each, np.float64) for each in told[3]]
        return spread

    def copied(self) -> Spread:
        other = copy.copy(self)
        other._by_lane, other._each = [*self._by_lane], [*self._each]
        return other

    @property
    def samples(self) -> int:
        return len(self._by_lane) * self._count

    @property
    def noise(self) -> Noise:
        """Their RMS, with the `allowance` for few of them; NaN without any."""
        if not self._by_lane:
            return Noise(NAN)
        each = self.independent
        return Noise(self.rms * allowance(each, each * len(self._by_lane)), MEASURED)

    @property
    def rms(self) -> float:
        return math.sqrt(sum(self._by_lane) / self.samples) if self._by_lane else 0.0

    def explains(self, error: float) -> bool:
        """True if an error is below the threshold, also of differences so large that their chance is `FALSE_ALARMS`."""
        return bool(self._by_lane) and error * chance(self.independent) < THRESHOLD * self.rms

    @property
    def relative(self) -> float:
        return self.over_values(self.rms)

    def over_values(self, error: float) -> float:
        """An RMS error over the RMS of the values; 0 where these are 0."""
        return error * math.sqrt(self._count / self._size) if self._size > 0 else 0.0

    @property
    def independent(self) -> float:
        """Independent elements of one lane.

        The sum of squares of elements with the covariance C has ``(tr C)²/tr C²`` degrees of freedom (F. E.
        Satterthwaite, 1946). The mean squared cosine of the angle between two lanes is ``tr C²/(tr C)²``. Each pair of
        lanes gives one sample of it, whose standard deviation is √2 of the mean.
        """
        if not self._each:
            return float(self._count)
        each = np.concatenate(self._each)
        count, largest = independent(torch.from_numpy(np.square(each).sum(0))), np.abs(each).max(1)
        unit = each[largest > 0] / largest[largest > 0, None]
        if not len(unit):
            return float(self._count)
        if len(unit) > 1:
            unit /= np.sqrt(np.square(unit).sum(1, keepdims=True))
            pairs = len(unit) * (len(unit) - 1) / 2
            cosines = np.square((unit[:, None] * unit).sum(2))  # not `@`, which starts threads for any size
            shared = float(cosines.sum() - cosines.trace()) / 2 / pairs * (1 + math.sqrt(2 / pairs))
            count = min(count, 1 / shared) if shared > 0 else count
        return max(1.0, count)


def propagated(again: Callable[[Any], Any] | Sequence[Any], value: Any) -> list[Noise]:
    """The noise of each result of several operators, from evaluations with other roundings.

    `again` evaluates them with another rounding, or holds the results of these evaluations.
    """
    values = flat_values(value)
    if not callable(again):
        return [spread.noise for spread in _spreads(iter(again), values)]
    if isinstance(again, Again):
        return again.evaluator.noted(again.graph, again.node, MEASURED, partial(_measured, again, values))()
    return _measured(again, values)


def _measured(again: Callable[[Any], Any], values: Sequence[Any]) -> list[Noise]:
    if isinstance(again, Again) and (shown := _shown(again, values)):
        return [larger(rounding.noise, imposed.noise) for rounding, imposed in shown]
    roundings: list[Rounding] = []

    def others(grids: Mapping[int, Sequence[Any]] | None = None) -> Iterator[Any]:
        for seed in range(PASSES):
            roundings.append(Rounding(seed, grids))
            yield again(roundings[-1])

    noises = [spread.noise for spread in _spreads(others(), values)]
    if not roundings[0].quantized:
        return noises
    plain = Grids()
    again(plain)
    imposed = _spreads(others(plain.values), values)
    return [larger(noise, spread.noise) for noise, spread in zip(noises, imposed, strict=True)]


def _shown(again: Again, values: Sequence[Any]) -> list[tuple[Spread, Spread]]:
    """Of a delegate, in lanes that have its arguments: those of the evaluation, if they are enough, or further ones."""
    if again.node.target != "delegate" or is_stateful(again.graph.inside(again.node)):
        return []
    known = again.evaluator
    if isinstance(known, Lanes) and again.perturbed is not None:
        shown = known.shown(again.perturbed, values)
        if known.number >= PASSES or all(first.samples >= ENOUGH for first, _ in shown):
            return shown
    elif again.shown:
        return list(again.shown)
    lanes = _lanes_of(again, values)
    return lanes.shown(lanes.results_again(again.args), values) if lanes is not None else []


def _lanes_of(again: Again, values: Sequence[Any]) -> Lanes | None:
    inner = again.graph.inside(again.node)
    count = min(PASSES, math.ceil(ENOUGH / max(1, min((result.numel() for result in values), default=ENOUGH))))
    if count == 1 or _has_branches(inner) or (largest_value(inner) or _SMALL + 1) > _SMALL:
        return None
    evaluator = again.evaluator
    known = evaluator.lanes_inside.get(id(inner))
    if not isinstance(known, Lanes) or known.number != count:
        known = Lanes(Evaluator(inner, evaluator.constants, evaluator.limits, evaluator.prepared), range(count))
        evaluator.lanes_inside[id(inner)] = known
    return known


def larger(one: Noise, other: Noise) -> Noise:
    return other if math.isnan(one) or other > one else one


def _spreads(others: Iterator[Any], values: Sequence[Any]) -> list[Spread]:
    spreads = [Spread() for _ in values]
    for other in others:
        for spread, perturbed, plain in zip(spreads, flat_values(other), values, strict=False):
            spread.add(perturbed, plain)
        if all(spread.samples >= ENOUGH for spread in spreads):
            break
    return spreads


SeenPerturbed = Callable[[Node, Any, Any], None]
"""Receives a node, its value, and the perturbed value, in which `Several` stands for those of several lanes."""


@dataclass(frozen=True, slots=True)
class _Lane:
    env: Mapping[str, Any]
    at: int

    def __getitem__(self, name: str) -> Any:
        return lane_of(self.env[name], self.at)


class _Given(Rounding):
    def __init__(self, numbers: Sequence[torch.Tensor], grids: Mapping[int, Sequence[Any]] | None) -> None:
        self._numbers, self._grids = iter(numbers), grids

    def uniform(self, like: torch.Tensor) -> torch.Tensor:
        return next(self._numbers)


@dataclass(frozen=True, slots=True)
class _Step:
    """A node whose perturbed values are wanted.

    `multiplied` is a product with a quantized weight. `same`: nothing before was perturbed. `ends`: only grids read it.
    """

    graph: Graph
    node: Node
    perturbed: Mapping[str, Any]
    reference: Any
    multiplied: Any
    sizes: Sizes
    key: Callable[[], int]
    same: bool
    ends: bool

    @property
    def rounded(self) -> list[torch.Tensor]:
        return [item for item, size in zip(flat_values(self.reference), self.sizes, strict=True) if size is not None]


def _moving(value: Any, each: Sizes) -> Sizes:
    return [None if half_ulp(result) is None else size for result, size in zip(flat_values(value), each, strict=True)]


def _rounded(value: Any, sizes: Sizes, numbers: Sequence[torch.Tensor]) -> Any:
    several_results = isinstance(value, (list, tuple))
    rounding, items = _Given(numbers, None), value if several_results else [value]
    moved = [
        result
        if size is None
        else Several((), rounding.moved(result.stacked if isinstance(result, Several) else result, [size]))
        for result, size in zip(items, sizes, strict=True)
    ]
    return moved if several_results else moved[0]


class Lanes(Evaluator):
    """Evaluates a method plainly and, side by side, in perturbed lanes.

    A graph with branches has one perturbed lane, since each lane may take another branch. Where values are rounded to
    grids, as many lanes follow in which each grid is reached from the plain values; none if a backend chooses all grids
    at run time. The first `number` lanes are perturbed from the beginning, `imposed` are the seeds of the others.

    `signs` are values of few elements in further lanes. They are computed from many elements, whose differences in the
    first lane have random signs. If the elements are independent, another lane has such differences. Where elements
    cancel they are not, so these lanes differ by no more than the first lane, widened as for all lanes.
    """

    def __init__(
        self, evaluator: Evaluator, seeds: Sequence[int], *, ties: bool = False, imposed: Sequence[int] | None = None
    ) -> None:
        super().__init__(evaluator.graph, evaluator.constants, evaluator.limits, evaluator.prepared)
        self.runtime_state, self.turns = dict(evaluator.runtime_state), evaluator.turns
        self.number = len(seeds)
        self._others = [Ties(seed) if ties else Rounding(seed) for seed in seeds]
        if imposed is None:
            alone = not (ties or _has_branches(self.graph) or _imposes_in_all_lanes(self.graph))
            imposed = seeds if alone and quantizes(self.graph) else ()
        self._others += [Rounding(PASSES + seed, {}) for seed in imposed]
        self._depth = 0
        self._alone: set[int] = set()
        self._ends_of: dict[int, tuple[Graph, frozenset[str]]] = {}
        self._steps_of: dict[int, tuple[Graph, Mapping[str, float]]] = {}
        self.seen: SeenPerturbed = _unseen
        self.signs: dict[str, Several] = {}
        self.unmoved: set[str] = set()
        self.plain_outputs: list[Any] = []
        self.perturbed_outputs: list[list[Any]] = []

    @property
    def lanes(self) -> int:
        return len(self._others)

    def show(self, spreads: Sequence[tuple[Spread, Spread]], perturbed: Any, values: Sequence[Any]) -> None:
        """Add the differences of some values in the first lanes, and in those that follow them."""
        first, last = range(self.number), range(self.number, self.lanes)
        for (perturbing, imposed), other, plain in zip(spreads, flat_values(perturbed), values, strict=False):
            perturbing.add_lanes(other, plain, first)
            imposed.add_lanes(other, plain, last)

    def shown(self, perturbed: Any, values: Sequence[Any]) -> list[tuple[Spread, Spread]]:
        spreads = [(Spread(), Spread()) for _ in values]
        self.show(spreads, perturbed, values)
        return spreads

    def perturbed_lanes(self, env: Mapping[str, Any]) -> dict[str, Any]:
        return {**env, **self._found(self.perturbed_state)}

    def end_perturbed_lanes(self, perturbed: Mapping[str, Any], plain: Sequence[Any]) -> None:
        outputs = self._ends(self.graph, perturbed)
        self.plain_outputs = list(plain)
        self.perturbed_outputs = [lane_of(outputs, at) for at in range(self.lanes)]
        for at, key in self._exchange.gives.items():
            self.perturbed_state[key] = outputs[at]

    def beside(self, call: Interlude) -> Self:
        other = super().beside(call)
        other.seen = _unseen
        return other

    def perturbed_branch(self, graph: Graph, node: Node, scope: Scope, branch: Graph) -> dict[str, Any] | None:
        """The environment in which the perturbed lane enters the reference's branch; None if it takes the other one."""
        if scope.perturbed is None:
            return None
        taken, env = self.enter(graph, node, scope.perturbed)
        if taken is branch:
            return env
        self.rounding, live = self._others[0], self.limits.live
        try:
            self._walk(taken, Scope(env))
        finally:
            self.rounding, self.limits.live = None, live
        scope.perturbed[node.name] = [self.look_up(env, out) for out in taken.outputs]
        return None

    def rounds(self, graph: Graph, node: Node, scope: Scope) -> Value:
        """A loop in all lanes; the values of an operator in all rounds are passed on together."""
        if scope.perturbed is None or self._depth:
            return super().rounds(graph, node, scope)
        seen, rounds = self.seen, Rounds(self.limits)
        self.seen = lambda node, value, perturbed: rounds.see(node, [Value(value, perturbed, None)])
        try:
            value = super().rounds(graph, node, scope)
        finally:
            self.seen = seen
        rounds.tell(lambda node, values: self._tell_rounds(node, values[0]))
        self.seen(node, value.reference, scope.perturbed[node.name])
        return value

    def _tell_rounds(self, node: Node, value: Value) -> None:
        if not value.missing and value.local is not None:
            self.seen(node, value.reference, value.local)

    def _with_state(self, graph: Graph, env: Mapping[str, Any]) -> dict[str, Any]:
        state = self.perturbed_state
        return {**env, **{item.name: state[item.target] for item in graph.inputs if item.target in state}}

    def _ends(self, graph: Graph, perturbed: Mapping[str, Any]) -> list[Any]:
        for target, name in graph.mutations.items():
            self.perturbed_state[target] = self.look_up(perturbed, Ref(name))
        return [self.look_up(perturbed, out) for out in graph.outputs]

    def reference(self, graph: Graph, node: Node, scope: Scope, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """One node in all lanes; a delegate with branches is evaluated lane by lane."""
        if scope.perturbed is None:
            return super().reference(graph, node, scope, args, kwargs)
        if self.known and graph is self.graph:  # whoever listens was told
            value, others = self.known
            if node.name in others:
                scope.perturbed[node.name] = others[node.name]
            return value[node.name]
        if node.target == "delegate" and all(operator.target not in CONTROL for operator in graph.inside(node).nodes):
            value, perturbed = self._inside(graph.inside(node), node, scope.perturbed, args)
        else:
            value, perturbed = self._in_lanes(graph, node, scope, scope.perturbed, args, kwargs)
            self._change_signs(graph, node, scope, (args, kwargs), value, lane_of(perturbed, 0))
        scope.perturbed[node.name] = perturbed
        if not self._depth:
            if node.target == "delegate" and self.is_unmoved(node, scope):
                self.unmoved.add(node.name)
            self.seen(node, value, perturbed)
        return value

    def _in_lanes(
        self,
        graph: Graph,
        node: Node,
        scope: Scope,
        perturbed: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> tuple[Any, Any]:
        product = weight_of(node.target, args, kwargs) is not None
        if product:
            reference, multiplied = self._multiplied(node, scope, perturbed, args, kwargs)
        else:
            reference, multiplied = self.apply(graph, node, args, kwargs), None
        if self._unpacked.holds(graph, node):
            return reference, reference
        same = self.is_unmoved(node, scope)
        if same and only_picks(node):
            return reference, reference
        if node.target == "getitem":
            return reference, self.apply(graph, node, *self.arguments(perturbed, node))
        try:
            if node.target in ("delegate", *CONTROL):
                return reference, several([self._apart(graph, node, perturbed, at) for at in range(self.lanes)])
            moving: Sizes = [None]
            if not self._is_lost(graph, node, args, kwargs, reference):
                moving = _moving(reference, sizes(node, args, kwargs, reference, self.limits.call))
            key, ends = functools.cache(partial(key_of, reference)), node.name in self._ending(graph)
            step = _Step(graph, node, perturbed, reference, multiplied, moving, key, same, ends)
            others = self._together(step)
            if others is None:
                others = several([self._one_lane(step, at) for at in range(self.lanes)])
            return reference, others
        except EtvizError:
            raise
        except Exception as error:
            raise PairingError(f"{node.name} ({node.target}) fails on perturbed values: {error}") from error
        finally:
            self.rounding = None

    def _change_signs(
        self,
        graph: Graph,
        node: Node,
        scope: Scope,
        given: tuple[Sequence[Any], Mapping[str, Any]],
        value: Any,
        first: Any,
    ) -> None:
        target = over_axis(node.target) if graph is self.graph and self.limits.is_plain(node.target) else None
        if target is None or self.seen is _unseen or not 0 < self.number < PASSES or not self._allowance(value) > 1.0:
            return
        env = {name: self._with_signs(name, scope) for name in self.reads(node)}
        counts = [len(item.stacked) for item in env.values() if isinstance(item, Several)]
        if not counts or None in env.values():
            return

        def one(args: Sequence[Any], kwargs: Mapping[str, Any], _: Any) -> Any:
            return self.limits.call(target, args, kwargs)

        try:
            changed = over_lanes(one, *self.arguments(env, node), (), range(min(counts)), target)
            moving = _moving(value, sizes(node, *given, value, self.limits.call))
            numbers = [_random(value, len(changed.stacked))] * (moving != [None])
            changed = _rounded(changed, moving, numbers)
            most = allowance(value.numel(), value.numel() * PASSES)
            most *= max(_rms(first - value), (half_ulp(value) or 0.0) * _rms(value))
            moved = changed.stacked - value
            self.signs[node.name] = Several((), value + moved * min(1.0, most / max(_rms(moved), most)))
        except Exception:  # as in `_together`
            logger.debug("%s has no lanes with other signs", node.name, exc_info=True)

    def _with_signs(self, name: str, scope: Scope) -> Any:
        """None if unknown."""
        plain, other = scope.env[name], lane_of((scope.perturbed or {})[name], 0)
        if name in self.signs or other is plain:
            return self.signs.get(name, plain)
        if not isinstance(other, torch.Tensor) or self._allowance(plain) != 1.0 or plain.numel() > _SMALL // PASSES:
            return None
        signs = _random(plain, min(_SIGNS, _SMALL // plain.numel())).sign().to(plain.dtype)
        return Several((), plain + signs * (other - plain))

    def _allowance(self, value: Any) -> float:
        """NaN for what is no floating tensor."""
        if not isinstance(value, torch.Tensor) or half_ulp(value) is None or value.is_complex() or not value.numel():
            return NAN
        return allowance(value.numel(), value.numel() * self.number)

    def _ending(self, graph: Graph) -> frozenset[str]:
        """Nodes of a delegate whose values only grids read."""
        if not self._depth:
            return frozenset()
        if id(graph) not in self._ends_of:
            wanted = {*graph.results()}
            for node in reversed(graph.nodes):
                if node.name in wanted and not to_grid(node):
                    wanted.update(node.reads())
            self._ends_of[id(graph)] = graph, frozenset(node.name for node in graph.nodes) - wanted
        return self._ends_of[id(graph)][1]  # the graph is kept, so its id stays its own

    def _is_lost(self, graph: Graph, node: Node, args: Any, kwargs: Any, value: Any) -> bool:
        """True for a product whose rounding is below a third of what moves it before a grid."""
        if not self._depth:
            return False
        if id(graph) not in self._steps_of:
            self._steps_of[id(graph)] = graph, _steps_after(graph)  # as with `_ending`
        step, half = self._steps_of[id(graph)][1].get(node.name), half_ulp(value)
        if step is None or half is None:
            return False
        return THRESHOLD * half * largest_size(node, args, kwargs, value) <= DELTA * step

    def _multiplied(
        self, node: Node, scope: Scope, perturbed: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        if self.is_unmoved(node, scope):
            (reference,) = self.products(node.target, [(args, kwargs)])
            return reference, reference
        given, named = self.arguments(perturbed, node)
        others = any(isinstance(operand, Several) for operand in (*given[1:], *named.values()))
        if given and isinstance(given[0], Several) and given[0].can_stack and not others:
            reference, products = self.products(node.target, [(args, kwargs), ([given[0].stacked, *given[1:]], named)])
            return reference, Several((), products)
        lanes = [self.arguments(_Lane(perturbed, at), node) for at in range(self.lanes)]
        reference, *others = self.products(node.target, [(args, kwargs), *lanes])
        return reference, several(others)

    def _apart(self, graph: Graph, node: Node, perturbed: Mapping[str, Any], lane: int) -> Any:
        self.rounding = self._others[lane]
        return self.apply(graph, node, *self.arguments(_Lane(perturbed, lane), node))

    def _one_lane(self, step: _Step, lane: int) -> Any:
        rounding, first = self._others[lane], lane < self.number
        if step.rounded or is_quantize(step.node) or self._leaves_grid(step, first=first):
            rounding.begin(step.key())
        if not first and (step.ends or to_grid(step.node)):
            return step.reference
        if step.multiplied is not None:
            value = lane_of(step.multiplied, lane)
        else:
            given = self.arguments(_Lane(step.perturbed, lane), step.node)
            value = self._in_lane(step, rounding, *given, first=first)
        return rounding.moved(value, step.sizes) if first else value

    def _together(self, step: _Step) -> Any:
        """The perturbed value from one evaluation with the lanes as a further axis; None where torch has no rule."""
        node = step.node
        if self.lanes == 1 or id(node) in self._alone or not self.limits.is_plain(node.target):
            return None
        if over_axis(node.target) is None and not (step.same and not is_quantize(node) and not is_dequantize(node)):
            return None
        try:
            return self._at_once(step)
        except Exception:  # torch, or the operator, may refuse a further axis in its own way
            logger.debug("%s is evaluated lane by lane", node.name, exc_info=True)
            self._alone.add(id(node))
            return None

    def _at_once(self, step: _Step) -> Any:
        node, first, last = step.node, range(self.number), range(self.number, self.lanes)
        given, plain = self.arguments(step.perturbed, node), step.ends or to_grid(node) or not last
        if is_quantize(node) or is_dequantize(node):
            after = step.reference if plain else self._on_grids(step, given, last)
            return _with_following((self._on_grids(step, given, first) if first else None, first), (after, last))
        value = step.multiplied if step.multiplied is not None else step.reference
        if not step.same and step.multiplied is None:
            lanes = first if plain else range(self.lanes)
            target = over_axis(node.target)

            def one(args: Sequence[Any], kwargs: Mapping[str, Any], _: Any) -> Any:
                if target is None or target == node.target:
                    return self.apply(step.graph, node, args, kwargs)
                return self.limits.call(target, args, kwargs)

            value = over_lanes(one, *given, (), lanes, target or "") if lanes else value
        after = step.reference if plain else part_of(value, last)
        if not first or all(size is None for size in step.sizes):
            return _with_following((part_of(value, first), first), (after, last)) if plain else value
        numbers = self._numbers(step, step.rounded, first)
        return _with_following((_rounded(part_of(value, first), step.sizes, numbers), first), (after, last))

    def _on_grids(self, step: _Step, given: tuple[Sequence[Any], Mapping[str, Any]], lanes: range) -> Any:
        first = lanes.start < self.number
        moves = is_quantize(step.node) or self._leaves_grid(step, first=first)
        numbers = self._numbers(step, [step.reference] * moves + step.rounded * first, lanes)

        def one(args: Sequence[Any], kwargs: Mapping[str, Any], drawn: Sequence[torch.Tensor]) -> Any:
            return self._in_lane(step, _Given(drawn, None if first else {}), args, kwargs, first=first)

        value = over_lanes(one, *given, numbers[:moves], lanes, step.node.target)
        return _rounded(value, step.sizes, numbers[moves:]) if first else value

    def _numbers(self, step: _Step, likes: Sequence[torch.Tensor], lanes: range) -> list[torch.Tensor]:
        drawn: list[list[torch.Tensor]] = []
        for at in lanes if likes else ():
            self._others[at].begin(step.key())
            drawn.append([self._others[at].uniform(like) for like in likes])
        if len(drawn) == 1:
            return [numbers.unsqueeze(0) for numbers in drawn[0]]
        return [torch.stack(numbers) for numbers in zip(*drawn, strict=True)]

    def _leaves_grid(self, step: _Step, *, first: bool) -> bool:
        return not first or (step.graph.is_delegated(step.node) and is_chosen(step.node))

    def _in_lane(
        self, step: _Step, rounding: Rounding, args: Sequence[Any], kwargs: Mapping[str, Any], *, first: bool
    ) -> Any:
        node = step.node
        if is_quantize(node):
            return rounding.quantize(self.limits.call, node, args, kwargs)
        value = self.apply(step.graph, node, args, kwargs)
        if is_dequantize(node) and self._leaves_grid(step, first=first):
            return rounding.on_grid(node, args, kwargs, value)
        return value

    def _inside(
        self, inner: Graph, node: Node, perturbed: Mapping[str, Any], args: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        live, env = self.limits.live, self.bind(inner, args)
        within = self._with_state(inner, self.bind(inner, self.arguments(perturbed, node)[0]))
        self._depth += 1
        try:
            self._walk(inner, Scope(env, perturbed=within))
        finally:
            self._depth -= 1
        self.limits.live = live
        return self.results(inner, env), self._ends(inner, within)

    def results_again(self, args: Sequence[Any]) -> list[Any]:
        live, env = self.limits.live, self.bind(self.graph, args)
        perturbed = dict(env)
        self._walk(self.graph, Scope(env, perturbed=perturbed))
        self.limits.live = live
        return self._ends(self.graph, perturbed)


def _rms(value: torch.Tensor) -> float:
    return float(value.double().square().mean().sqrt())


def _random(value: torch.Tensor, count: int) -> torch.Tensor:
    rounding = Rounding(PASSES)
    rounding.begin(key_of(value))
    return rounding.uniform(value.expand(count, *value.shape))


def _with_following(*parts: tuple[Any, range]) -> Any:
    return in_one([(value, len(lanes)) for value, lanes in parts if lanes])


class Growth:
    """Where noise grows on the way to a final output: its ratio to the size of the values, operator by operator.

    `imposed` is the noise that the last grids before each final output make alone; NaN without grids.
    """

    def __init__(self) -> None:
        self.imposed: list[Noise] = []
        self._relative: dict[str, float] = {}
        self._least: dict[str, float] = {}

    def see(self, node: Node, value: Any, spreads: Sequence[Spread]) -> None:
        """Take a node's value and the differences of each of its outputs; on a grid its steps are no growth."""
        relative, least = 0.0, 0.0
        for at, (plain, spread) in enumerate(zip(flat_values(value), spreads, strict=True)):
            if spread.relative > 0:
                scale = meta.scale if at < len(node.outputs) and (meta := node.outputs[at]) is not None else None
                step = spread.over_values(unavoidable("", 0.0, scale)) if scale is not None else 0.0
                relative, least = max(relative, spread.relative), max(least, step, 2 * (half_ulp(plain) or 0.0))
        self._relative[node.name], self._least[node.name] = relative, least

    def told(self) -> list[Any]:
        return [[[float(noise), noise.how] for noise in self.imposed], self._relative, self._least]

    @classmethod
    def of_told(cls, told: list[Any]) -> Growth:
        growth = cls()
        growth.imposed = [Noise(NAN if noise is None else noise, how) for noise, how in told[0]]  # JSON has no NaN
        growth._relative, growth._least = told[1:]
        return growth

    def stage(self, graph: Graph, output: str) -> tuple[Node, float] | None:
        """The operator on the noisiest way to an output where noise grows most, and by what factor."""
        makers = {node.name: node for node in graph.nodes}
        stages: list[tuple[float, Node]] = []
        while output in makers:
            node, noise = makers[output], self._relative.get(output, 0.0)
            before = [name for name in node.reads() if name in self._relative]
            largest = max((self._relative[name] for name in before), default=0.0)
            least = max(largest, self._least.get(output, 0.0))
            if least > 0:
                stages.append((noise / least, node))
            output = max(before, key=lambda name: self._relative[name], default="")
        factor, node = max(stages, key=lambda stage: stage[0], default=(0.0, None))
        return (node, factor) if node is not None else None


def _two_spreads() -> tuple[Spread, Spread]:
    return Spread(), Spread()


class Samples:
    """Differences of perturbed values to the plain ones in one execution: by node and output, and of its outputs.

    Takes those of the nodes in `names`, all if it is None. `growth` receives all of them. `unmoved` are delegates whose
    arguments are plain in all lanes. `further` has those of further lanes, too, for values that an earlier load asked.
    `signs`, from `Lanes.signs`, may explain an error; no noise follows from them. `steps` are `Value.steps` by node.
    """

    def __init__(self, names: Collection[str] | None = None, growth: Growth | None = None) -> None:
        self.names, self.growth = names, growth
        self.values: dict[tuple[str, int], tuple[Spread, Spread]] = defaultdict(_two_spreads)
        self.signs: dict[str, Spread] = {}
        self.steps: dict[str, list[float | None]] = {}
        self.outputs: list[tuple[Spread, Spread]] = []
        self.unmoved: set[str] = set()
        self.lanes = 0
        self.further: Samples | None = None

    def run(self, lanes: Lanes, run: Callable[[], Any]) -> Any:
        lanes.seen = partial(self.see, lanes)
        try:
            result = run()
        finally:
            lanes.seen, lanes.signs = _unseen, {}
        self.outputs = self.outputs or [(Spread(), Spread()) for _ in lanes.plain_outputs]
        for at, outputs in enumerate(lanes.perturbed_outputs):
            for spreads, perturbed, value in zip(self.outputs, outputs, lanes.plain_outputs, strict=False):
                spreads[at >= lanes.number].add(perturbed, value)
        lanes.perturbed_outputs, lanes.plain_outputs = [], []
        if self.growth is not None and lanes.lanes > lanes.number:
            self.growth.imposed = [last.noise for _, last in self.outputs]
        self.lanes += lanes.number
        self.unmoved |= lanes.unmoved
        return result

    @property
    def alone(self) -> dict[str, list[tuple[Spread, Spread]]]:
        """Of the delegates that are `unmoved`, where these lanes are enough."""
        shown: dict[str, list[tuple[Spread, Spread]]] = defaultdict(list)
        for (name, _), both in sorted(self.values.items(), key=lambda item: item[0]):
            if name in self.unmoved:
                shown[name].append(both)
        few = self.lanes < PASSES
        return {name: all_ for name, all_ in shown.items() if not (few and any(a.samples < ENOUGH for a, _ in all_))}

    def wants(self, node: Node) -> bool:
        return self.names is None or node.name in self.names or (self.growth is not None and not self.lanes)

    def see(self, lanes: Lanes, node: Node, value: Any, perturbed: Any) -> None:
        if not self.wants(node):
            return
        values, told = flat_values(value), self.growth if not self.lanes else None
        both = self._of_source(node)
        if both is None:
            wanted = self.names is None or node.name in self.names
            both = [self.values[node.name, at] if wanted else (Spread(), Spread()) for at in range(len(values))]
            lanes.show(both, perturbed, values)
        if (signs := lanes.signs.get(node.name)) is not None:
            self.signs[node.name] = Spread()
            self.signs[node.name].add_lanes(signs, value, range(len(signs.stacked)))
        if told is not None:
            told.see(node, value, [rounding for rounding, _ in both])

    def snapshot(self) -> dict[tuple[str, int], tuple[Spread, Spread]]:
        return copy.deepcopy(self.values)

    def _of_source(self, node: Node) -> list[tuple[Spread, Spread]] | None:
        item = item_of(node)
        if item is None or item not in self.values or not (self.names is None or item[0] in self.names):
            return None
        if self.names is None or node.name in self.names:
            self.values[node.name, 0] = self.values[item]
        return [self.values[item]]

    def explained(self, key: tuple[str, int], error: float) -> Noise | None:
        """The noise of a value where it `explains` an error (RMSE)."""
        spreads, signs = self.values.get(key, ()), self.signs.get(key[0], Spread())
        by_signs = error * chance(signs.samples) < THRESHOLD * signs.rms
        if by_signs or any(spread.explains(error) for spread in spreads):
            return Noise(max(spread.rms for spread in (*spreads, signs)), MEASURED)
        return None

    def told(self) -> dict[str, Any]:
        return {
            "lanes": self.lanes,
            "unmoved": list(self.unmoved),
            "values": [[*key, *_told(both)] for key, both in self.values.items()],
            "signs": {name: spread.told() for name, spread in self.signs.items()},
            "steps": self.steps,
            "outputs": [*map(_told, self.outputs)],
            "growth": self.growth.told() if self.growth is not None else None,
            "further": self.further.told() if self.further is not None else None,
        }

    @classmethod
    def of_told(cls, told: dict[str, Any]) -> Samples:
        growth = told["growth"]
        samples = cls(growth=Growth.of_told(growth) if growth is not None else None)
        samples.lanes, samples.unmoved = told["lanes"], set(told["unmoved"])
        samples.outputs = [_of_told(both) for both in told["outputs"]]
        samples.signs = {name: Spread.of_told(spread) for name, spread in told["signs"].items()}
        samples.steps = told["steps"]
        samples.further = cls.of_told(told["further"]) if told["further"] is not None else None
        samples.values.update({(name, output): _of_told(both) for name, output, *both in told["values"]})
        return samples

    def joined(self, other: Samples) -> Samples:
        both = self.kept([*self.values, *other.values], outputs=True)
        both.values.update({**other.values, **self.values})
        both.outputs, both.growth = self.outputs or other.outputs, self.growth or other.growth
        return both

    def kept(self, keys: Collection[tuple[str, int]], *, outputs: bool) -> Samples:
        source = self
        if (
            self.further is not None
            and self.further.values.keys() >= set(keys)
            and (self.further.outputs or not outputs)
        ):
            source = self.further
        other = Samples({name for name, _ in keys}, source.growth if outputs else None)
        other.values.update({key: _copied(source.values[key]) for key in keys if key in source.values})
        other.outputs, other.lanes = [*map(_copied, source.outputs)] if outputs else [], source.lanes
        return other


def _copied(both: tuple[Spread, Spread]) -> tuple[Spread, Spread]:
    return both[0].copied(), both[1].copied()


def _told(both: tuple[Spread, Spread]) -> list[Any]:
    return [spread.told() for spread in both]


def _of_told(both: list[Any]) -> tuple[Spread, Spread]:
    return Spread.of_told(both[0]), Spread.of_told(both[1])


def _unseen(node: Node, value: Any, perturbed: Any) -> None:
    pass


def total_noise(
    fresh: Callable[[], Evaluator],
    inputs: Sequence[Sequence[Any]],
    wanted: Iterable[tuple[int, str]],
    growth: Mapping[int, Growth] | None = None,
    errors: Mapping[tuple[int, str, int], float] | None = None,
    samples: Mapping[int, Samples] | None = None,
    *,
    ties: bool = False,
    run_first: Callable[[Lanes, int], Any] | None = None,
) -> tuple[dict[tuple[int, str, int], Noise], list[list[Noise]]]:
    """Measure the noise of values that are computed from the program's inputs.

    `fresh` makes an evaluator in the initial state, `inputs` are those of every execution, `wanted` the execution and
    node of each value. `growth` receives all values of an execution. With `errors` (RMSE) a value takes part in further
    evaluations only until its noise `explains` its error; the noise of final outputs is then of no use. `samples` are
    those of the first lanes. With `ties`, one lane of `Ties` gives the noise: its RMS. `run_first` runs an execution in
    the lanes that are evaluated first.

    Returns the noise in the value's units by execution, node and output, and that of each execution's final outputs.
    """
    names = set(wanted)
    start = fresh()  # all lanes share the weights that it dequantizes
    of_runs = [(samples or {}).get(run) or Samples((), (growth or {}).get(run)) for run in range(len(inputs))]
    taken = min((of_run.lanes for of_run in of_runs if of_run.lanes), default=0)
    settled = _explained(of_runs, errors or {})
    parts: list[tuple[list[int], list[int] | None]] = [([0], [])]
    if not ties:
        parts = [(seeds, None) for seeds in batches(start.graph, {name for _, name in names}, taken)]
    if any(not grown.imposed for grown in (growth or {}).values()) and _imposes_in_all_lanes(start.graph):
        parts += [([], seeds) for seeds in batches(start.graph)]
    for at, (seeds, imposed) in enumerate(parts):
        names -= {key[:2] for key in settled} - {key[:2] for key in set(errors or ()) - set(settled)}
        if errors is not None and not names:
            break
        lanes, by_run = Lanes(start, seeds, ties=ties, imposed=imposed), defaultdict[int, set[str]](set)
        series, how = Series(lanes), run_first if not at else None
        for run, name in names if seeds else ():  # what grids alone impose is asked of the outputs
            by_run[run].add(name)
        for run, of_run in enumerate(of_runs):
            of_run.names = by_run[run]
        for run, given in enumerate(inputs):
            series.look_ahead(run, inputs[run:], of_runs[run:])
            lanes.known = series.known(run, given)
            of_runs[run].run(lanes, partial(how, lanes, run) if how is not None else partial(lanes.run, given))
        settled = _explained(of_runs, errors or {}) | settled

    def of_spreads(spreads: tuple[Spread, Spread]) -> Noise:
        rounding, imposed = (
            Noise(item.rms if item.samples else NAN, MEASURED) if ties else item.noise for item in spreads
        )
        return larger(rounding, imposed)

    noises = {(run, *key): of_spreads(both) for run, item in enumerate(of_runs) for key, both in item.values.items()}
    outputs = [[*map(of_spreads, of_run.outputs)] for of_run in of_runs]
    return noises | settled, outputs


def _explained(
    of_runs: Sequence[Samples], errors: Mapping[tuple[int, str, int], float]
) -> dict[tuple[int, str, int], Noise]:
    known = {key: of_runs[key[0]].explained(key[1:], error) for key, error in errors.items()}
    return {key: noise for key, noise in known.items() if noise is not None}


def chained(graph: Graph) -> list[Rounding]:
    small = (largest_value(graph) or 0) <= _SMALL
    computed = Computed()
    return [Rounding(seed, None, computed) for seed in range(PASSES if small else _CHAINED)]


def batches(graph: Graph, names: Collection[str] = (), taken: int = 0) -> list[list[int]]:
    """Seeds of the lanes that are evaluated together: all of them, unless they take much memory or operators are large.

    There are as many as the smallest value needs to have `ENOUGH` elements over all lanes, without those `taken`. One
    lane of large operators goes first, since it often is enough; not if a delegate that reads only inputs needs more to
    judge what it introduced.
    """
    results = {*names, *graph.results()}
    counts = (elements(meta) for node in graph.nodes if node.name in results for meta in node.outputs)
    seeds = list(range(taken, min(PASSES, math.ceil(ENOUGH / max(1, min(filter(None, counts), default=1))))))
    if _has_branches(graph) or not 0 < (largest_value(graph) or 0) <= _SMALL:
        return [[seed] for seed in seeds]
    given = {item.name for item in graph.inputs}
    delegates = [node for node in graph.nodes if node.target == "delegate" and given.issuperset(node.reads())]
    few = any((elements(meta) or 0) < ENOUGH for node in delegates for meta in node.outputs)
    first = len(seeds) if taken or few or has_small_operators(graph) else 1
    return [part for part in (seeds[:first], seeds[first:]) if part]


def first_lanes(evaluator: Evaluator) -> Lanes:
    graph = evaluator.graph
    return Lanes(evaluator, batches(graph, [node.name for node in graph.nodes if node.instruction >= 0])[0])


def quantizes(graph: Graph) -> bool:
    return any(is_quantize(node) for part in (graph, *graph.subgraphs.values()) for node in part.nodes)


def _imposes_in_all_lanes(graph: Graph) -> bool:
    """True if a backend chooses every grid at run time: then no grid needs separate lanes."""
    parts = [(part, unpacked_weights(part)) for part in (graph, *graph.subgraphs.values())]
    nodes = ((part, node) for part, weights in parts for node in part.nodes if node.name not in weights)
    grids = [part.is_delegated(node) and is_chosen(node) for part, node in nodes if conversion(node.target) in _GRIDS]
    return bool(grids) and all(grids)


def _has_branches(graph: Graph) -> bool:
    return any(node.target in CONTROL for node in graph.nodes)
