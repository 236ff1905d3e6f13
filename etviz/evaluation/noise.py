"""How far off a correct implementation of the same precision may be: the graph is evaluated again, rounded otherwise.

Rounding a value once is what its precision imposes; what fifty operators made of it is another matter. So every
operator's result is perturbed by as much as another order of its sums and another rounding may change it, and the
perturbation runs through the rest of the graph. The RMS of the difference is the noise of each value. This is Monte
Carlo arithmetic (D. S. Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", 1997)
with the model of rounding below.

- An operator that rounds once gives ``v·(1 + u·ε/2)``, where the same operator in float64 gives something else.
- An operator that sums up K products has its operands perturbed by ``(1 + u·c·ε/2)`` with ``c = √K/4``: summing one
  after another loses ``0.2·√K·ε/2`` of the result (random walk of the partial sums), and may do so in any order. Where
  an operand is large (the weights of a decoder), what that makes of the sum of products ``a·b`` is added to it,
  ``u·c·ε/2·√(Σa²b²)``: the same variance, without a random number for every weight.
- An operator that takes several steps to each element, as a batch norm does, has its operands perturbed likewise.
- What a sum or a mean adds up often has one sign; then the partial sums are of the result's size, and each of K of them
  is rounded: its result is perturbed too (of products: from `_LONG` on). Where there are very many, or a variance may
  be the difference of two sums, what a correct kernel may make of it is in `orders`.
- A quantize rounds ``x + u·δ·scale`` with δ = 1e-3: backends requantize in an arithmetic of their own. Where a delegate
  chooses the grid when it runs, it may be another one (a grid for each row, say), so any value may round to its
  neighbour: ``x + u·scale/√12``. Whoever chooses a grid when it runs divides the range of values in float32.

In a small piece of a quantized program such a rounding to the neighbour may happen once in the run, and in no pass. So
there the noise is at least that of one: it is taken from a pass in which every value may round to its neighbour, as the
variance follows the number of those that do. That is the mean over all grids, many of which may hardly matter to the
result; so the noise is at least that of one on the last grid, too, of as many values as the result has. Where several
instructions can't be told apart it is that of every twelfth there, as follows for the values between them.

On a grid of step s an error of s/√12 is accepted as what rounding to it imposes. What follows the last grid must be
granted what such an error becomes there, or a softmax would be called wrong for what its input is forgiven. So the
noise of a value is at least that of a lane in which each grid is reached from the plain values, and every twelfth of
them rounds to its neighbour there.

u is uniform with an RMS of 1, ε the distance from 1 to the next number of the dtype. Views, copies, masks and
comparisons never round, nor are weights perturbed that are only dequantized: as operands of a sum they are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from etviz.errors import EtvizError, PairingError
from etviz.evaluation.buffers import LARGE, Buffers
from etviz.evaluation.evaluator import Evaluator, Scope, Value
from etviz.evaluation.interpreter import Environment, flat_values
from etviz.evaluation.operators import by_position
from etviz.evaluation.orders import MANY, NORMS, normalized, one_after_another
from etviz.evaluation.products import weight_of
from etviz.evaluation.unpacked import elements, largest_value
from etviz.graph.ir import Graph, Node, Ref
from etviz.graph.quantize_ops import chooses_grid, grid_arguments, is_quantize
from etviz.graph.uses import only_moves
from etviz.native import pair_sums
from etviz.tensors.metrics import EPS, NAN

if TYPE_CHECKING:
    import torch

STEP: Final = 1e-3
"""Part of a quantization step by which values are perturbed before they are rounded."""
OTHER_GRID: Final = 0.5
"""The same where a delegate chooses the grid when it runs: a quarter of the values rounds to its neighbour."""
_NEIGHBOURS: Final = math.sqrt(1 / 3)
"""What one value in twelve that rounds to its neighbour, the error of a grid's own rounding, makes of that."""
_AGAIN: Final = 2
"""Lanes in which grids are reached from plain values, where these have few elements: none of them may flip in one."""
FLIPS: Final = 10
"""Roundings to the neighbour, over all passes, that tell what they do."""
SAMPLES: Final = 2000
"""Elements over which an RMS is taken before one pass is enough."""
PASSES: Final = 5
"""Passes at most, for tensors of a few elements."""
_ALLOWANCES: Final = ((PASSES, 2.3), (2 * PASSES, 1.3))
"""By the most samples: √F/3, where F is the 99.9 % quantile of the F distribution with (1, 5) and (2, 10) degrees."""
_SMALL: Final = 1 << 19
"""Elements of the largest value with which several lanes go side by side."""
_KEPT: Final = 64 << 20
"""Bytes of values of a few elements that are kept from pass to pass."""
CHAINED: Final = 2
"""Roundings of operators whose values were not logged, which every evaluation computes."""
_SEEDS: Final = 0x9E3779B97F4A
"""Where seeds begin: models and inputs are often made from small ones, and would not be independent of the rounding."""
_SUM: Final = 0.25
_ALONG_AXIS: Final = frozenset(
    ("_softmax", "_log_softmax", "softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp")
)
_REDUCING: Final = frozenset(
    (
        *("sum", "mean", "var", "std", "var_mean", "prod", "logsumexp", "linalg_vector_norm", "norm"),
        *("native_layer_norm", "layer_norm", "native_group_norm", "group_norm", "rms_norm", "_fused_rms_norm"),
        *("avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
    )
)
"""Operators that sum up many elements, beside the products of matrices and convolutions."""
_SUMS: Final = frozenset(("sum", "mean", "var", "std", "linalg_vector_norm", "norm", "cumsum"))
"""Those of them whose result is the sum, or grows with it."""
_LONG: Final = 1 << 12
"""Products in a sum from which its result is perturbed too, in case all have one sign."""
_PRODUCTS: Final = frozenset(("mm", "bmm", "addmm", "linear", "matmul", "convolution"))
"""Operators that are linear in each operand, so that the squares of all give the sum of the squared products."""
_BY_POSITION: Final = _SUMS | _PRODUCTS | {target.split(".")[1] for target in NORMS}
"""Operators whose arguments are looked at."""
_FEWER: Final = 4
"""Times that their result is smaller than a large operand, from which on it is perturbed in its place."""
_IN_STEPS: Final = frozenset(
    (
        *("grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "addcmul", "addcdiv", "lerp"),
        *("batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"),
    )
)
"""Operators that round on the way to each element, where that may be larger than the element: places, differences."""
_GATHERING: Final = frozenset(("embedding", "index_select", "gather", "index"))
"""Operators that pick elements, out of tables that are much larger than what they give."""
_UNIFORM: Final = math.sqrt(3.0)


class Spreads:
    """``√(Σa²b²)`` of sums of products on inputs that hardly differ, computed once for several roundings."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, torch.Tensor]] = {}
        self._size = 0

    def of(self, node: Node) -> torch.Tensor | None:
        """That of a node, None where it is not known."""
        known = self._known.get(id(node))
        return known[1] if known is not None else None

    def keep(self, node: Node, spread: torch.Tensor) -> None:
        """Know that of a node, if there is room."""
        if id(node) not in self._known and self._size + spread.nbytes <= _KEPT:
            self._size += spread.nbytes
            self._known[id(node)] = node, spread  # the node is kept, so its id stays its own

    def clear(self) -> None:
        """Forget all: what follows has other inputs."""
        self._known, self._size = {}, 0


class Rounding:
    """Perturbs the results of operators.

    Parameters
    ----------
    seed
        Another one is another correct implementation.
    step
        Part of a quantization step by which values are perturbed before they are rounded.
    spreads
        Shared by roundings of the same values.
    plain
        What reaches each grid unperturbed, if that is what it rounds.

    Attributes
    ----------
    on_grids
        Values that it has rounded to grids that were known before the run.
    """

    def __init__(
        self, seed: int, step: float = STEP, spreads: Spreads | None = None, plain: BeforeGrids | None = None
    ) -> None:
        import torch

        self.on_grids = 0
        self._step = step
        self._spreads = spreads
        self._plain = plain
        self._seed = _SEEDS + seed
        self._generator = torch.Generator()
        self._calls = Counter[tuple[str, tuple[int, ...]]]()

    def call(
        self,
        call: Callable[..., Any],
        terms: int,
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any:
        """The perturbed result of an operator.

        Parameters
        ----------
        call
            Calls an operator by its target, arguments and keyword arguments.
        terms
            Products that each element of the result is a sum of.
        node, args, kwargs
            The operator, and what it is applied to.
        delegated
            Whether a backend runs it.
        """
        self._begin(node)
        if is_quantize(node):
            return call(node.target, *self._off_grid(node, args, kwargs, delegated))
        if chooses_grid(node):
            return self._other_grid(call(node.target, args, kwargs))
        name = node.target.partition(".")[2].partition(".")[0]
        if kwargs and name in _BY_POSITION:
            args, kwargs = by_position(node.target, args, kwargs)
        if node.target in NORMS and (found := normalized(node.target, args, kwargs, self._summed)) is not None:
            return [self._wobbled(value, 1.0) for value in found]
        value = None
        if _only_picks(node):
            return call(node.target, args, kwargs)
        if terms == 1 and name in _ALONG_AXIS | _REDUCING:
            value = call(node.target, args, kwargs)
            terms = _terms(name, args, kwargs, value)
        if terms > 1 or name in _IN_STEPS:
            amount = max(1.0, _SUM * math.sqrt(terms))
            if name in _SUMS:
                args = [self._wobbled(arg, amount) for arg in args]
                value = one_after_another(node.target, args, kwargs) if terms >= MANY else None
                return self._wobbled(call(node.target, args, kwargs) if value is None else value, amount)
            if name in _PRODUCTS and not kwargs and _is_short(node, args):
                operands, ending = self._product(args, terms)
                spread = self.spread(node)
                if spread is None:
                    spread = call(node.target, [_squared(arg) for arg in args], {}).sqrt_()
                    self.keep_spread(node, spread)
                return ending(call(node.target, operands, {}), spread)
            args = [self._wobbled(arg, amount) for arg in args]
            kwargs = {name: self._wobbled(arg, amount) for name, arg in kwargs.items()}
            value = call(node.target, args, kwargs)
            return self._wobbled(value, amount) if name in _PRODUCTS and terms >= _LONG else value
        value = call(node.target, args, kwargs) if value is None else value
        return self._rounded(value, _exactly(call, node.target, args, kwargs))

    def pass_over(self, node: Node) -> None:
        """Leave out a node that is rounded nowhere."""
        self._begin(node)

    def takes_short(self, node: Node, args: Sequence[Any]) -> bool:
        """True if a product's large operand is perturbed by way of its sums."""
        return _is_short(node, args)

    def product(
        self, node: Node, args: Sequence[Any], terms: int
    ) -> tuple[list[Any], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        """The perturbed operands of such a product, and what perturbs its value, given ``√(Σa²b²)``."""
        self._begin(node)
        return self._product(args, terms)

    def _product(
        self, args: Sequence[Any], terms: int
    ) -> tuple[list[Any], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        amount = max(1.0, _SUM * math.sqrt(terms))

        def ending(value: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
            value = self._spread(value, spread, amount)
            return self._wobbled(value, amount) if terms >= _LONG else value

        return [arg if _is_large(arg) else self._wobbled(arg, amount) for arg in args], ending

    def squared(self, args: Sequence[Any]) -> list[Any]:
        """The squares of its operands but for the large one."""
        return [arg if _is_large(arg) else _squared(arg) for arg in args]

    def spread(self, node: Node) -> torch.Tensor | None:
        """``√(Σa²b²)`` of a node if it is known."""
        return self._spreads.of(node) if self._spreads is not None else None

    def keep_spread(self, node: Node, spread: torch.Tensor) -> None:
        """Know it from now on."""
        if self._spreads is not None:
            self._spreads.keep(node, spread)

    def _begin(self, node: Node) -> None:
        """Let the random numbers be those of the operator, whatever graph it stands in, and in which order."""
        key = node.target, node.handles
        self._calls[key] += 1
        self._generator.manual_seed(self._seed ^ crc32(f"{key} {self._calls[key]}".encode()))

    def _off_grid(
        self, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any], delegated: bool
    ) -> tuple[list[Any], Mapping[str, Any]]:
        """The arguments of a quantize with its value moved by a part of a step."""
        import torch

        grid, value = grid_arguments(node.target, args, kwargs), args[0] if args else kwargs.get("input")
        value = value if self._plain is None else self._plain.values.get(id(node), value)
        scale = grid.scale if grid is not None else None
        chosen = delegated and isinstance(scale, torch.Tensor)
        share = OTHER_GRID if chosen else self._step
        if isinstance(scale, torch.Tensor):
            scale = float(scale) if scale.numel() == 1 else float(scale.abs().min())
        if not isinstance(scale, (int, float)) or not isinstance(value, torch.Tensor):
            return list(args), kwargs
        self.on_grids += 0 if chosen else value.numel()
        moved = value + self._uniform(value) * (share * scale / _UNIFORM)
        return ([moved, *args[1:]], kwargs) if args else ([], {**kwargs, "input": moved})

    def _other_grid(self, value: Any) -> Any:
        """Scales as they are after two roundings of float32, which they are computed in, whatever keeps them."""
        if isinstance(value, (list, tuple)):
            return [self._other_grid(item) for item in value]
        half = _half_ulp(value)
        return value if half is None else value * (1 + EPS["float32"] * self._uniform(value))

    def _summed(self, total: torch.Tensor, size: torch.Tensor, terms: int) -> torch.Tensor:
        """A sum as its partial sums, which are of some size, may leave it."""
        amount = max(1.0, _SUM * math.sqrt(terms)) * (_half_ulp(total) or 0.0)
        return total + self._uniform(total) * size * amount

    def _spread(self, value: Any, spread: torch.Tensor, amount: float) -> Any:
        """A sum of products, perturbed as far as an operand that is perturbed by `amount` would perturb it."""
        import torch

        change = self._uniform(spread).mul_(spread).mul_(amount * (_half_ulp(value) or 0.0))
        return torch.nan_to_num_(change, 0.0, 0.0, 0.0).add_(value).to(value.dtype)

    def _wobbled(self, value: Any, amount: float) -> Any:
        import torch

        if isinstance(value, (list, tuple)):
            return [self._wobbled(item, amount) for item in value]
        half = _half_ulp(value)
        if not isinstance(value, torch.Tensor) or half is None:
            return value
        change = self._uniform(value).mul_(value).mul_(amount * half)
        return torch.nan_to_num_(change, 0.0, 0.0, 0.0).add_(value)

    def _rounded(self, value: Any, exact: Any) -> Any:
        import torch

        if isinstance(value, (list, tuple)):
            others = exact if isinstance(exact, (list, tuple)) and len(exact) == len(value) else [None] * len(value)
            return [self._rounded(item, other) for item, other in zip(value, others, strict=True)]
        half = _half_ulp(value)
        if not isinstance(value, torch.Tensor) or half is None:
            return value
        change = value * self._uniform(value) * half
        rounds = torch.isfinite(change)
        if isinstance(exact, torch.Tensor) and exact.shape == value.shape:
            rounds &= exact != value.double()
        return value + torch.where(rounds, change, 0.0)

    def _uniform(self, like: torch.Tensor) -> torch.Tensor:
        import torch

        random = torch.rand(like.shape, generator=self._generator, dtype=torch.float32)
        return random.sub_(0.5).mul_(2.0 * _UNIFORM).to(like.dtype)


class BeforeGrids(Rounding):
    """Perturbs nothing, and keeps what rounds to a grid.

    Attributes
    ----------
    values
        By the id of the node that puts them on a grid.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self.values: dict[int, Any] = {}

    def call(
        self,
        call: Callable[..., Any],
        terms: int,
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any:
        """The result of an operator as it is; see `Rounding.call`."""
        if is_quantize(node) and not _lies_on_grid(node, args, kwargs):
            self.values[id(node)] = args[0] if args else kwargs.get("input")
        return call(node.target, args, kwargs)

    def takes_short(self, node: Node, args: Sequence[Any]) -> bool:
        """Never, as nothing is perturbed."""
        return False


def _only_picks(node: Node) -> bool:
    """True for operators that only move elements, or pick some: they round nothing."""
    return only_moves(node) or node.target.partition(".")[2].partition(".")[0] in _GATHERING


def _terms(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> int:
    """Elements that each element of a result is a sum of."""
    shape = next((item.shape for item in (*args, *kwargs.values()) if hasattr(item, "shape")), ())
    if name in _ALONG_AXIS:
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        return shape[axis] if shape and isinstance(axis, int) and -len(shape) <= axis < len(shape) else 1
    fewest = min((item.numel() for item in flat_values(value) if hasattr(item, "numel") and item.numel()), default=1)
    return max(1, math.prod(shape) // fewest)


def _is_large(value: Any) -> bool:
    return hasattr(value, "numel") and value.numel() >= LARGE and _half_ulp(value) is not None


def _is_short(node: Node, args: Sequence[Any]) -> bool:
    """True if one operand is large, and the result much smaller."""
    large, sizes = [arg.numel() for arg in args if _is_large(arg)], [elements(meta) for meta in node.outputs]
    return len(large) == len(sizes) == 1 and sizes[0] is not None and _FEWER * sizes[0] <= large[0]


def _lies_on_grid(node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a quantize has nothing to round: its value comes from the same grid."""
    import torch

    grid, value = grid_arguments(node.target, args, kwargs), args[0] if args else kwargs.get("input")
    if grid is None or not isinstance(value, torch.Tensor) or not isinstance(grid.scale, (int, float)):
        return False
    steps = value / grid.scale
    return not value.numel() or bool((steps - steps.round()).abs().max() < STEP)


def _squared(value: Any) -> Any:
    """The squares of a tensor's elements, in float32 where they could leave the range of a smaller type."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    wide = value.to(torch.promote_types(value.dtype, torch.float32))
    if not _is_large(value):
        return wide.square()
    return torch.square(wide, out=Buffers.shared().empty(wide.shape, wide.dtype))


def _half_ulp(value: Any) -> float | None:
    """Half the distance from 1 to the next number of a tensor's dtype; None for what does not round."""
    eps = EPS.get(str(getattr(value, "dtype", "")).removeprefix("torch."))
    return eps / 2 if eps is not None and value.numel() else None


def _exactly(call: Callable[..., Any], target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result in float64, None where the operator does not know that type."""
    import torch

    def wide(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [wide(item) for item in value]
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.double() if floating else value

    try:
        return call(target, wide(args), kwargs)
    except Exception:  # noqa: BLE001 - operators without a float64 kernel say so in many ways
        return None


def _squares(perturbed: torch.Tensor, value: torch.Tensor) -> float | None:
    """The squared differences of two tensors in one compiled pass; None where there is none for them."""
    import torch

    pair = perturbed, value
    if any(item.dtype != torch.float32 or not item.is_contiguous() for item in pair):
        return None
    sums = pair_sums(value.data_ptr(), perturbed.data_ptr(), value.numel(), 0.0, 0.0)
    return sums.dd if sums is not None else None


def allowance(samples: int) -> float:
    """How many times larger than their RMS the noise may be of which there are a few samples, those of 1 or 2 values.

    The ratio of one error to the RMS of five is above 3 in 3 of 100 correct values, not in 3 of 1000 as where the noise
    is known (Student's t); with these factors it is in 1 of 1000.
    """
    return next((factor for most, factor in _ALLOWANCES if samples <= most), 1.0)


class Noise:
    """Sums up squared differences to the unperturbed values, pass by pass."""

    def __init__(self) -> None:
        self._squares = 0.0
        self.samples = 0

    def add(self, perturbed: Any, value: Any) -> None:
        """Take the difference of two tensors, where both are finite."""
        import torch

        if not isinstance(perturbed, torch.Tensor) or not isinstance(value, torch.Tensor):
            return
        if perturbed.shape != value.shape or perturbed.is_complex() or not value.numel():
            return
        known = _squares(perturbed, value)
        if known is not None:
            self._squares += known
            self.samples += value.numel()
            return
        difference = perturbed.double() - value.double()
        squares = float(difference.square().sum())
        if not math.isfinite(squares):
            difference = difference[torch.isfinite(difference)]
            squares = float(difference.square().sum())
        self._squares += squares
        self.samples += difference.numel()

    @property
    def rms(self) -> float:
        """In the units of the values, with the `allowance` for few of them; NaN without any."""
        return allowance(self.samples) * math.sqrt(self._squares / self.samples) if self.samples else NAN


def local_noise(again: Callable[[Rounding], Any] | Sequence[Any], value: Any, *, several: bool = False) -> list[float]:
    """The noise of what was computed on given inputs, for each output.

    Parameters
    ----------
    again
        Computes it with another rounding, or what it gave with some.
    value
        What it gives unperturbed.
    several
        Whether it is of several instructions, whose grids are then no outputs that would be judged by themselves.
    """
    values = flat_values(value)
    if not callable(again):
        return _differences(again, values)
    roundings: list[Rounding] = []
    spreads = Spreads()

    def others() -> Iterator[Any]:
        for seed in range(PASSES):
            roundings.append(Rounding(seed, spreads=spreads))
            yield again(roundings[-1])

    found = _differences(others(), values)
    on_grids = roundings[0].on_grids
    if not 0 < on_grids * len(roundings) * STEP / 2 < FLIPS:
        return found
    every = _differences([again(Rounding(PASSES, OTHER_GRID, spreads))], values)
    share = math.sqrt(max(STEP / 2, 1 / on_grids) / (OTHER_GRID / 2))
    before = BeforeGrids()
    again(before)
    regridded = (again(Rounding(PASSES + 1 + seed, OTHER_GRID, spreads, before)) for seed in range(PASSES))
    last = [
        own * (_NEIGHBOURS if several else 1 / math.sqrt(value.numel() * OTHER_GRID / 2)) if own > 0 else 0.0
        for own, value in zip(_differences(regridded, values), values, strict=True)
    ]
    return [max(noise, share * flips, own) for noise, flips, own in zip(found, every, last, strict=True)]


def _differences(others: Iterable[Any], values: Sequence[Any]) -> list[float]:
    """The RMS of the difference to others, which are asked for until there are enough elements."""
    noises = [Noise() for _ in values]
    for other in others:
        for noise, perturbed, plain in zip(noises, flat_values(other), values, strict=False):
            noise.add(perturbed, plain)
        if all(noise.samples >= SAMPLES for noise in noises):
            break
    return [noise.rms for noise in noises]


class Several(tuple[Any, ...]):
    """The values of one node in several perturbed lanes."""

    __slots__ = ()


def _joined(values: Sequence[Any]) -> Any:
    return Several(values) if len(values) > 1 else values[0]


@dataclass(frozen=True, slots=True)
class _Lane:
    """The environment of one of several lanes."""

    env: Mapping[str, Any]
    at: int

    def __getitem__(self, name: str) -> Any:
        value = self.env[name]
        return value[self.at] if isinstance(value, Several) else value


class Lanes(Evaluator):
    """Evaluates a method several times side by side: as it is, and with other roundings of every operator.

    A graph with branches has one perturbed lane only, since each may take another one. Where values are rounded to
    grids, there are last lanes in which each grid is reached from the plain values.

    Attributes
    ----------
    perturbed_outputs
        Final outputs of each perturbed lane.
    """

    def __init__(self, evaluator: Evaluator, seeds: Sequence[int]) -> None:
        super().__init__(evaluator.graph, evaluator.constants, evaluator.limits)
        self._spreads = Spreads()
        self._others = [Rounding(seed, spreads=self._spreads) for seed in seeds]
        self._regridded = len(self._others)
        if not _has_branches(self.graph) and _has_grids(self.graph):
            first = self._regridded + PASSES
            again = range(first, first + (_AGAIN if len(seeds) > 1 else 1))
            self._others += [Rounding(seed, OTHER_GRID, self._spreads) for seed in again]
        self._perturbed_state: dict[str, Any] = {}
        self.perturbed_outputs: list[list[Any]] = []

    def walk(self, inputs: Sequence[Any], seen: Callable[[Node, Any, Sequence[Any]], None]) -> list[Any]:
        """Evaluate; `seen` is told each node's value and its perturbed ones. Returns the unperturbed outputs."""

        def tell(node: Node, value: Value) -> None:
            seen(node, value.reference, value.local if isinstance(value.local, Several) else (value.local,))

        return self.run(inputs, tell, lambda node: None)

    def second_lane(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """The environment in which the perturbed lanes start."""
        return self._with_state(self.graph, env)

    def end_second_lane(self, local: Mapping[str, Any]) -> None:
        """Keep what the perturbed lanes end with."""
        self.perturbed_outputs = self._ends(self.graph, local)

    def _with_state(self, graph: Graph, env: Mapping[str, Any]) -> dict[str, Any]:
        state = self._perturbed_state
        return {**env, **{item.name: state[item.target] for item in graph.inputs if item.target in state}}

    def _ends(self, graph: Graph, local: Mapping[str, Any]) -> list[list[Any]]:
        """The outputs of a graph in each perturbed lane; the state is brought up to date."""
        lanes = [_Lane(local, at) for at in range(len(self._others))]
        for target, name in graph.mutations.items():
            self._perturbed_state[target] = _joined([self.look_up(lane, Ref(name)) for lane in lanes])
        return [[self.look_up(lane, out) for out in graph.outputs] for lane in lanes]

    def step(self, graph: Graph, node: Node, scope: Scope) -> Value:
        """One node in all lanes; a delegate with branches inside is run by one lane after the other."""
        local = scope.local
        if local is None or node.target == "cond":
            return super().step(graph, node, scope)
        if node.target == "delegate" and all(item.target != "cond" for item in graph.inside(node).nodes):
            return self._inside(graph.inside(node), node, scope.env, local)
        self._spreads.clear()
        args, kwargs = self.arguments(scope.env, node)
        product = weight_of(node, args, kwargs) is not None
        reference = self.apply(graph, node, args, kwargs) if not product else None
        if self._unpacked.holds(graph, node):
            return Value(reference, reference, None)
        if _only_picks(node) and all(local[name] is scope.env[name] for name in self.reads(node)):
            for rounding in self._others:
                rounding.pass_over(node)
            return Value(reference, _joined([reference] * len(self._others)), None)
        before, perturbed = self.rounding, []
        again = len(self._others)
        if is_quantize(node) and not _lies_on_grid(node, args, kwargs):
            again = self._regridded
        try:
            if product:
                others = [(*self.arguments(_Lane(local, at), node), item) for at, item in enumerate(self._others)]
                reference, *perturbed = self.products(graph, node, [(args, kwargs, None), *others])
                return Value(reference, _joined(perturbed), None)
            for at, rounding in enumerate(self._others):
                self.rounding = rounding
                perturbed.append(self.apply_in(graph, node, scope.env if at >= again else _Lane(local, at)))
        except EtvizError:
            raise
        except Exception as error:
            raise PairingError(f"{node.name} ({node.target}) fails on perturbed values: {error}") from error
        finally:
            self.rounding = before
        return Value(reference, _joined(perturbed), None)

    def _inside(self, inner: Graph, node: Node, env: Environment, local: Mapping[str, Any]) -> Value:
        """A delegate, operator by operator in all lanes: its weights are dequantized once."""
        live, reference = self.limits.live, self.bind(inner, self.arguments(env, node)[0])
        lanes = [self.bind(inner, self.arguments(_Lane(local, at), node)[0]) for at in range(len(self._others))]
        perturbed = self._with_state(inner, {name: _joined([lane[name] for lane in lanes]) for name in reference})
        self._walk(inner, Scope(reference, perturbed))
        self.limits.live = live
        return Value(self.results(inner, reference), _joined(self._ends(inner, perturbed)), None)

    def apply_in(self, graph: Graph, node: Node, env: Environment) -> Any:
        """The value of a node in an environment."""
        return self.apply(graph, node, *self.arguments(env, node))


class Growth:
    """Where noise grows on the way to a final output: by its ratio to the size of the values, operator by operator.

    Attributes
    ----------
    imposed
        The noise of each final output that the last grids before it make alone; NaN where there are none.
    """

    def __init__(self) -> None:
        self.imposed: list[float] = []
        self._relative: dict[str, float] = {}
        self._least: dict[str, float] = {}

    def see(self, node: Node, value: Any, perturbed: Any) -> None:
        """Take a node's value and its perturbed one."""
        found, least = 0.0, 0.0
        for plain, other in zip(flat_values(value), flat_values(perturbed), strict=False):
            half, noise, size = _half_ulp(plain), Noise(), Noise()
            noise.add(other, plain)
            size.add(plain, plain * 0 if hasattr(plain, "dtype") else plain)
            if noise.samples and size.rms > 0:
                found, least = max(found, noise.rms / size.rms), max(least, 2 * (half or 0.0))
        self._relative[node.name], self._least[node.name] = found, least

    def stage(self, graph: Graph, output: str) -> tuple[Node, float] | None:
        """The operator on the noisiest way to an output that noise grows most in, and how many times it does."""
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
        factor, node = max(stages, key=lambda item: item[0], default=(0.0, None))
        return (node, factor) if node is not None else None


def total_noise(
    fresh: Callable[[], Evaluator],
    inputs: Sequence[Sequence[Any]],
    wanted: Iterable[tuple[int, str]],
    growth: Mapping[int, Growth] | None = None,
    passes: int = PASSES,
) -> tuple[dict[tuple[int, str, int], float], list[list[float]]]:
    """The noise of values that are computed from the program's inputs.

    Parameters
    ----------
    fresh
        Makes an evaluator in the initial state.
    inputs
        Flat inputs of every execution, in order.
    wanted
        Number of the execution, and name of the node, of each value.
    growth
        By number of the execution: told all values of the first pass.
    passes
        At most so many.

    Returns
    -------
    dict
        By execution, node and output: RMS in the value's units.
    list of list
        For each execution: the same of its final outputs.
    """
    again = _Few()
    found: dict[tuple[int, str, int], Noise] = {}
    regridded: dict[tuple[int, str, int], Noise] = {}
    outputs: list[list[Noise]] = []
    regridded_outputs: list[list[Noise]] = []
    keys, start = set(wanted), fresh()
    together = min(passes, _lanes(start.graph, {name for _, name in keys}))
    lanes = Lanes(start, range(together))
    for run, given in enumerate(inputs):

        def seen(node: Node, value: Any, perturbed: Sequence[Any], run: int = run) -> None:
            if growth and run in growth:
                growth[run].see(node, value, perturbed[0])
            for output, plain in enumerate(flat_values(value) if (run, node.name) in keys else ()):
                noise = found[run, node.name, output] = Noise()
                last = regridded[run, node.name, output] = Noise()
                for at, other in enumerate(perturbed):
                    (noise if at < together else last).add(flat_values(other)[output], plain)
                again.keep((run, node.name), output, noise, plain)

        values = lanes.walk(given, seen)
        outputs.append([Noise() for _ in values])
        regridded_outputs.append([Noise() for _ in values])
        for at, (noise, value) in enumerate(zip(outputs[run], values, strict=True)):
            for lane, other in enumerate(lanes.perturbed_outputs):
                (noise if lane < together else regridded_outputs[run][at]).add(other[at], value)
            again.keep((run, ""), at, noise, value)
    for seed in range(together, passes):
        if not again.values:
            break
        evaluator = fresh()
        evaluator.rounding = Rounding(seed)
        for run, given in enumerate(inputs):
            ended = evaluator.run(given, lambda node, value, run=run: again.add((run, node.name), value.reference))
            again.add((run, ""), ended)
    for run, item in (growth or {}).items():
        item.imposed = [_NEIGHBOURS * noise.rms for noise in regridded_outputs[run]]
    largest = {key: max(noise.rms, _NEIGHBOURS * regridded[key].rms) for key, noise in found.items()}
    return largest, [
        [max(noise.rms, _NEIGHBOURS * other.rms) for noise, other in zip(*items, strict=True)]
        for items in zip(outputs, regridded_outputs, strict=True)
    ]


def _lanes(graph: Graph, names: Collection[str]) -> int:
    """How many perturbed lanes are worth to go side by side: as many as will be needed, if they take little memory.

    They share weights that are dequantized, which takes longer than their own computing in a decoder's step.
    """
    largest = largest_value(graph)
    if _has_branches(graph) or not largest or largest > _SMALL:
        return 1
    sizes = (elements(meta) for node in graph.nodes if node.name in names for meta in node.outputs)
    return math.ceil(SAMPLES / max(1, min(filter(None, sizes), default=SAMPLES)))


def _has_branches(graph: Graph) -> bool:
    return any(node.target == "cond" for node in graph.nodes)


def _has_grids(graph: Graph) -> bool:
    """True if values are rounded to grids: known ones, in a small program also those that are chosen when it runs."""
    small = 0 < (largest_value(graph) or 0) <= _SMALL
    nodes = (node for part in (graph, *graph.subgraphs.values()) for node in part.nodes if is_quantize(node))
    grids = (grid_arguments(node.target, node.args, node.kwargs) for node in nodes)
    return any(small or (grid is not None and not isinstance(grid.scale, Ref)) for grid in grids)


class _Few:
    """Values of so few elements that one pass does not tell their noise: kept, to be compared with those of others.

    Attributes
    ----------
    values
        By execution and name of the node: output, noise so far, and unperturbed value.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], list[tuple[int, Noise, torch.Tensor]]] = {}
        self._size = 0

    def keep(self, key: tuple[int, str], output: int, noise: Noise, value: Any) -> None:
        """Keep a value if it is needed and there is room."""
        if noise.samples >= SAMPLES or not hasattr(value, "nbytes") or self._size + value.nbytes > _KEPT:
            return
        self._size += value.nbytes
        self.values.setdefault(key, []).append((output, noise, value.clone()))

    def add(self, key: tuple[int, str], perturbed: Any) -> None:
        """Take what another pass gave; what has enough of them is let go."""
        if key not in self.values:
            return
        others = flat_values(perturbed)
        for output, noise, value in self.values[key]:
            noise.add(others[output] if output < len(others) else None, value)
        self.values[key] = [item for item in self.values[key] if item[1].samples < SAMPLES]
        if not self.values[key]:
            del self.values[key]
