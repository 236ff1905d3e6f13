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
  ``u·c·ε/2·√(Σa²b²)``: the same variance, without a random number for every weight. Where far more comes with the
  other operand, from a grid, that is perturbed √2 times as much instead.
- An operator that takes several steps to each element, as a batch norm does, has its operands perturbed likewise.
- What a sum or a mean adds up often has one sign; then the partial sums are of the result's size, and each of K of them
  is rounded: its result is perturbed too (of products: from `_LONG` on). Where there are very many, or a variance may
  be the difference of two sums, what a correct kernel may make of it is in `orders`.
- A quantize rounds ``x + u·δ·scale`` with δ = 1e-3: backends requantize in an arithmetic of their own. Where a delegate
  chooses the grid when it runs, it may be another one (a grid for each row, say), so any value may round to its
  neighbour: ``x + u·scale/√12``, or more where x lies on the grid by chance. Whoever chooses a grid when it runs
  divides the range of values in float32, and may take another one where they have hardly any range (see
  `narrow_grids`).

In a small piece of a quantized program such a rounding to the neighbour may happen once in the run, and in no pass, or
in passes at places where it hardly matters. So there the noise is at least that of one, and of as many as there are on
average: it is taken from a pass in which every value may round to its neighbour, as the variance follows the number of
those that do. That is the mean over all grids, many of which may hardly matter to the
result; so the noise is at least that of one on the last grid, too, of as many values as the result has. Where several
instructions can't be told apart, however large they are, it is that of every twelfth there, as follows for the values
between them.

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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from etviz.errors import EtvizError, PairingError
from etviz.evaluation.buffers import LARGE, Buffers
from etviz.evaluation.evaluator import Evaluator, Scope
from etviz.evaluation.interpreter import Environment
from etviz.evaluation.narrow_grids import as_kernels_choose
from etviz.evaluation.operators import by_position
from etviz.evaluation.orders import LAYER_NORM, MANY, NORMS, in_two_passes, normalized, one_after_another
from etviz.evaluation.products import weight_of
from etviz.evaluation.rounds import Rounds
from etviz.evaluation.unpacked import elements, largest_value
from etviz.evaluation.values import Value, flat_values
from etviz.graph.ir import CONTROL, Graph, Node, Ref
from etviz.graph.quantize_ops import LINEAR, chooses_grid, converted, grid_arguments, is_quantize, product_weights
from etviz.graph.uses import item_of, only_moves
from etviz.native import pair_sums
from etviz.tensors.metrics import EPS, NAN

if TYPE_CHECKING:
    import torch

STEP: Final = 1e-3
"""Part of a quantization step by which values are perturbed before they are rounded."""
OTHER_GRID: Final = 0.5
"""The same where a delegate chooses the grid when it runs: a quarter of the values rounds to its neighbour."""
_FROM_GRID: Final = 4 / 3
"""Times that a value is moved further where it lies on the grid by chance, so that as many round to their neighbour."""
_NEIGHBOURS: Final = math.sqrt(1 / 3)
"""What one value in twelve that rounds to its neighbour, the error of a grid's own rounding, makes of that."""
_AGAIN: Final = 2
"""Lanes in which grids are reached from plain values, where these have few elements: none of them may flip in one."""
FLIPS: Final = 10
"""Roundings to the neighbour, over all passes, that tell what one does."""
_MANY_FLIPS: Final = 300
"""The same that tell what all do: often a few of them, where what follows divides by little, make most of the noise."""
SAMPLES: Final = 2000
"""Elements over which an RMS is taken before one pass is enough."""
PASSES: Final = 5
"""Passes at most, for tensors of a few elements."""
_FEW_PASSES: Final = 2
"""The same where each is dear."""
_DEAR: Final = 1 << 34
"""Multiplications of a pass from which it is: half a second."""
_HEAVY: Final = 1 << 26
"""Elements of quantized weights from which reading them again is."""
_ALLOWANCES: Final = ((PASSES, 2.3), (2 * PASSES, 1.3))
"""By the most samples: √F/3, where F is the 99.9 % quantile of the F distribution with (1, 5) and (2, 10) degrees."""
_TOLD: Final = 0.3
"""Share of their number that independent samples seem to have at least, by few passes."""
_FEW_ALLOWANCES: Final = ((2, 10.5), (3, 4.3), (4, 2.9), *_ALLOWANCES)
"""The same with (1, 2), (1, 3) and (1, 4) degrees too."""
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
_SUMS: Final = frozenset(("sum", "mean", "var", "std", "linalg_vector_norm", "norm", "cumsum", "avg_pool2d"))
"""Those of them whose result is the sum, or grows with it."""
_LONG: Final = 1 << 12
"""Products in a sum from which its result is perturbed too, in case all have one sign."""
_PRODUCTS: Final = frozenset(("mm", "bmm", "addmm", "linear", "matmul", "convolution"))
"""Operators that are linear in each operand, so that the squares of all give the sum of the squared products."""
_BY_POSITION: Final = _SUMS | _PRODUCTS | {target.split(".")[1] for target in (*NORMS, LAYER_NORM)}
"""Operators whose arguments are looked at."""
_DROWNED: Final = 100.0
"""Times that what comes with an operand is larger than what the order of its sums makes, which is nothing then."""
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
_MANY_RANDOM: Final = 1 << 16
"""Random numbers from which 16 bits are enough for each: to draw them takes a third of the time."""


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
            chosen = call(node.target, args, kwargs)
            return self._other_grid(as_kernels_choose(node.target, args, kwargs, chosen))
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
            amount = _amount(terms)
            if name in _SUMS:
                return self._wobbled(self._sum(call, node.target, args, kwargs, terms), amount)
            if name in _PRODUCTS and not kwargs and _is_short(node, args):
                operands, ending = self._product(args, terms)
                spread = self.spread(node)
                if spread is None:
                    spread = call(node.target, [_squared(arg) for arg in args], {}).sqrt_()
                    self.keep_spread(node, spread)
                return ending(call(node.target, operands, {}), spread)
            wobbled = [self._wobbled(arg, amount) for arg in args]
            named = {name: self._wobbled(arg, amount) for name, arg in kwargs.items()}
            value = call(node.target, wobbled, named)
            if node.target == LAYER_NORM and (added := in_two_passes(wobbled)) is not None:
                return _further(added, value, call(node.target, args, kwargs))
            return self._wobbled(value, amount) if name in _PRODUCTS and terms >= _LONG else value
        value = call(node.target, args, kwargs) if value is None else value
        return self._rounded(value, _exactly(call, node.target, args, kwargs))

    def pass_over(self, node: Node) -> None:
        """Leave out a node that is rounded nowhere."""
        self._begin(node)

    def perturbs(self, node: Node) -> bool:
        """True for every operator."""
        return True

    def takes_short(self, node: Node, args: Sequence[Any]) -> bool:
        """True if a product's large operand is perturbed by way of its sums."""
        return _is_short(node, args)

    def product(
        self, node: Node, args: Sequence[Any], terms: int, *, drowned: bool
    ) -> tuple[list[Any], Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]]:
        """The perturbed operands of such a product, and what perturbs its value, given ``√(Σa²b²)`` if not `drowned`.

        There its small operands are perturbed as much as all together: the same variance in each sum, though not
        independently in those of one row.
        """
        self._begin(node)
        return self._product(args, terms, math.sqrt(2.0) if drowned else 1.0)

    def drowned(self, args: Sequence[Any], plain: Sequence[Any], terms: int) -> bool:
        """True if each row of its operand is off by far more than the order of the sums makes of it."""
        x, before = args[0], plain[0]
        least = _DROWNED * _amount(terms) * (_half_ulp(x) or math.inf)
        return bool(((x - before).square().sum(-1) >= least * least * before.square().sum(-1)).all())

    def _product(
        self, args: Sequence[Any], terms: int, times: float = 1.0
    ) -> tuple[list[Any], Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]]:
        amount = _amount(terms)

        def ending(value: torch.Tensor, spread: torch.Tensor | None) -> torch.Tensor:
            value = self._spread(value, spread, amount) if spread is not None else value
            return self._wobbled(value, amount) if terms >= _LONG else value

        return [arg if _is_large(arg) else self._wobbled(arg, times * amount) for arg in args], ending

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
        steps = scale
        if isinstance(scale, torch.Tensor):
            scale = float(scale) if scale.numel() == 1 else float(scale.abs().min())
        if not isinstance(scale, (int, float)) or not isinstance(value, torch.Tensor) or not value.any():
            return list(args), kwargs  # zeros lie on every grid
        self.on_grids += 0 if chosen else value.numel()
        moved = self._uniform(value) * ((OTHER_GRID if chosen else self._step) * scale / _UNIFORM)
        if chosen and isinstance(steps, torch.Tensor):
            moved = torch.where(_lie_on_grid(value, steps), _FROM_GRID * moved, moved)
        moved = value + moved
        return ([moved, *args[1:]], kwargs) if args else ([], {**kwargs, "input": moved})

    def _other_grid(self, value: Any) -> Any:
        """Scales as they are after two roundings of float32, which they are computed in, whatever keeps them."""
        if isinstance(value, (list, tuple)):
            return [self._other_grid(item) for item in value]
        half = _half_ulp(value)
        return value if half is None else value * (1 + EPS["float32"] * self._uniform(value))

    def _sum(
        self, call: Callable[..., Any], target: str, args: Sequence[Any], kwargs: Mapping[str, Any], terms: int
    ) -> Any:
        """A sum of perturbed operands, or what adding one after the other makes of them if that is further off.

        It is where the operands are many, or alike: what is rounded then does not cancel out.
        """
        wobbled = [self._wobbled(arg, _amount(terms)) for arg in args]
        added = one_after_another(target, wobbled, kwargs)
        if added is not None and terms >= MANY:
            return added
        value = call(target, wobbled, kwargs)
        return value if added is None else _further(added, value, call(target, args, kwargs))

    def _summed(self, total: torch.Tensor, size: torch.Tensor, terms: int) -> torch.Tensor:
        """A sum as its partial sums, which are of some size, may leave it."""
        amount = _amount(terms) * (_half_ulp(total) or 0.0)
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
        change = torch.nan_to_num_(self._uniform(value).mul_(value).mul_(half), 0.0, 0.0, 0.0)
        if isinstance(exact, torch.Tensor) and exact.shape == value.shape:
            change.mul_(exact != value)
        return change.add_(value)

    def _uniform(self, like: torch.Tensor) -> torch.Tensor:
        import torch

        count = like.numel()
        if count < _MANY_RANDOM:
            random = torch.rand(like.shape, generator=self._generator, dtype=torch.float32)
            return random.sub_(0.5).mul_(2.0 * _UNIFORM).to(like.dtype)
        words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None, generator=self._generator)
        random = words.view(torch.int16)[:count].to(torch.float32).mul_(2.0**-15 * _UNIFORM)
        return random.view(like.shape).to(like.dtype)


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


def _further(one: Any, other: Any, plain: Any) -> Any:
    """Of two values, or lists of them, that whose first is further off."""
    firsts = (next(iter(flat_values(value))) for value in (one, other, plain))
    a, b, exact = firsts
    return one if (a - exact).square().sum() > (b - exact).square().sum() else other


def _amount(terms: int) -> float:
    """By how many roundings the operands of a sum are perturbed."""
    return max(1.0, _SUM * math.sqrt(terms))


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


def _lie_on_grid(value: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Which elements lie on a grid without any rounding, but for 0, which lies on every one."""
    import torch

    if scale.numel() != 1:
        rows = value.shape[:-1]
        if scale.numel() != math.prod(rows):  # those of groups have a shape of their own
            return torch.zeros((), dtype=torch.bool)
        scale = scale.reshape(*rows, 1)
    steps = (value / scale).abs()
    return ((steps - steps.round()).abs() < STEP) & (value != 0)


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
        return call(target, wide(args), {name: wide(value) for name, value in kwargs.items()})
    except Exception:  # noqa: BLE001 - operators without a float64 kernel say so in many ways
        return None


def _squares(perturbed: torch.Tensor, value: torch.Tensor) -> tuple[float, float] | None:
    """The squared differences of two tensors, and the squares of the second, in one compiled pass; None without one."""
    import torch

    pair = perturbed, value
    if any(item.dtype != torch.float32 or not item.is_contiguous() for item in pair):
        return None
    sums = pair_sums(value.data_ptr(), perturbed.data_ptr(), value.numel(), 0.0, 0.0)
    return (sums.dd, sums.rr) if sums is not None else None


def allowance(samples: int, factors: Sequence[tuple[int, float]] = _ALLOWANCES) -> float:
    """How many times larger than their RMS the noise may be of which there are a few samples, those of 1 or 2 values.

    The ratio of one error to the RMS of five is above 3 in 3 of 100 correct values, not in 3 of 1000 as where the noise
    is known (Student's t); with these factors it is in 1 of 1000.
    """
    return next((factor for most, factor in factors if samples <= most), 1.0)


class Noise:
    """Sums up squared differences to the unperturbed values, pass by pass.

    Parameters
    ----------
    even
        Whether all elements are taken to be as noisy; not where few passes tell it.

    Attributes
    ----------
    samples
        Number of differences.
    """

    def __init__(self, *, even: bool = True) -> None:
        self._squares = self._sizes = 0.0
        self._even = even
        self._passes = 0
        self._by_pass: list[float] = []
        self._each: tuple[torch.Tensor, torch.Tensor] | None = None
        self.samples = 0

    def add(self, perturbed: Any, value: Any) -> None:
        """Take the difference of two tensors, where both are finite."""
        import torch

        if not isinstance(perturbed, torch.Tensor) or not isinstance(value, torch.Tensor):
            return
        if perturbed.shape != value.shape or perturbed.is_complex() or not value.numel():
            return
        self._passes += 1
        even = self._even or value.numel() >= SAMPLES
        known = _squares(perturbed, value) if even else None
        if known is not None:
            self._squares, self._sizes = self._squares + known[0], self._sizes + known[1]
            self.samples += value.numel()
            self._by_pass.append(known[0] / value.numel())
            return
        wide = value.double()
        each = (perturbed.double() - wide).square()
        squares, count = float(each.sum()), each.numel()
        if not math.isfinite(squares):
            finite = torch.isfinite(each)
            each, wide, count = torch.where(finite, each, 0.0), torch.where(finite, wide, 0.0), int(finite.sum())
            squares = float(each.sum())
        self._squares, self._sizes = self._squares + squares, self._sizes + float(wide.square().sum())
        self.samples += count
        self._by_pass.append(squares / max(count, 1))
        if not even:
            self._each = (each if self._each is None else self._each[0] + each), wide.square()

    @property
    def rms(self) -> float:
        """In the units of the values, with the `allowance` for few of them; NaN without any."""
        if not self.samples:
            return NAN
        factor = allowance(self._apart) if self._even else allowance(self._independent, _FEW_ALLOWANCES)
        return factor * math.sqrt(self._squares / self.samples)

    @property
    def relative(self) -> float:
        """Over the size of the values; 0 where there are none."""
        return math.sqrt(self._squares / self._sizes) if self._sizes > 0 else 0.0

    @property
    def _apart(self) -> int:
        """As how many samples they count by how much passes differ: elements that err together count as one.

        So do those that a norm divides by one deviation. The mean of k independent squares has a variance of 2/k of its
        square. A few passes tell that k to a third (χ² with 4 degrees of freedom: in 99 of 100 cases no less).
        """
        passes = len(self._by_pass)
        mean = sum(self._by_pass) / max(passes, 1)
        spread = sum((own - mean) ** 2 for own in self._by_pass) / max(passes - 1, 1)
        if passes < PASSES or not 0 < spread < math.inf:
            return self.samples
        return min(self.samples, max(passes, round(passes * _TOLD * 2 * mean**2 / spread)))

    @property
    def _independent(self) -> int:
        """As how many samples they count: those of elements with little noise tell nothing of the others.

        In each pass, elements of variances v have (Σv)²/Σv² degrees of freedom (F. E. Satterthwaite, 1946), be v what
        was found or as the squares of the values, which few passes can't miss. For a norm's 64 means that is 20 to 60
        by many passes, and 1.4 where one token is much larger than the others.
        """
        if self._each is None:
            return self.samples
        return min(self.samples, round(self._passes * min(map(_participating, self._each))))


def _participating(squares: torch.Tensor) -> float:
    """As how many equal ones some squares count."""
    largest = float(squares.max())
    if not largest:
        return float(squares.numel())
    share = squares / largest
    return float(share.sum()) ** 2 / float(share.square().sum())


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
    flips = on_grids * len(roundings) * STEP / 2
    if 0 < flips < _MANY_FLIPS:
        every = _differences([again(Rounding(PASSES, OTHER_GRID, spreads))], values)
        share = math.sqrt(max(STEP / 2, 1 / on_grids) / (OTHER_GRID / 2))
        found = [max(noise, share * own) for noise, own in zip(found, every, strict=True)]
    if not on_grids or (flips >= FLIPS and not several):
        return found
    before = BeforeGrids()
    again(before)
    regridded = (again(Rounding(PASSES + 1 + seed, OTHER_GRID, spreads, before)) for seed in range(PASSES))
    last = [
        own * (_NEIGHBOURS if several else 1 / math.sqrt(value.numel() * OTHER_GRID / 2)) if own > 0 else 0.0
        for own, value in zip(_differences(regridded, values), values, strict=True)
    ]
    return list(map(max, found, last))


def _differences(others: Iterable[Any], values: Sequence[Any]) -> list[float]:
    """The RMS of the difference to others, which are asked for until there are enough elements."""
    noises = [Noise() for _ in values]
    for other in others:
        for noise, perturbed, plain in zip(noises, flat_values(other), values, strict=False):
            noise.add(perturbed, plain)
        if all(noise.samples >= SAMPLES for noise in noises):
            break
    return [noise.rms for noise in noises]


SeenPerturbed = Callable[[Node, Any, "Sequence[Any]"], None]
"""Told a node, its value, and the perturbed ones."""


class Several(tuple[Any, ...]):
    """The values of one node in several perturbed lanes."""

    __slots__ = ()


def _joined(values: Sequence[Any]) -> Any:
    return Several(values) if len(values) > 1 else values[0]


@dataclass(frozen=True, slots=True)
class _Lane:
    """The environment of one of several lanes; some values may be unperturbed in it."""

    env: Mapping[str, Any]
    at: int
    plain: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        if name in self.plain:
            return self.plain[name]
        value = self.env[name]
        return value[self.at] if isinstance(value, Several) else value


class Lanes(Evaluator):
    """Evaluates a method several times side by side: as it is, and with other roundings of every operator.

    A graph with branches has one perturbed lane only, since each may take another one. Where values are rounded to
    grids, there are last lanes in which each grid is reached from the plain values.

    Attributes
    ----------
    number
        Lanes that are perturbed from the beginning, which come first.
    perturbed_outputs
        Final outputs of each perturbed lane.
    seen
        Told the values of each node.
    """

    def __init__(self, evaluator: Evaluator, seeds: Sequence[int]) -> None:
        super().__init__(evaluator.graph, evaluator.constants, evaluator.limits, evaluator.prepared)
        self.runtime_state = dict(evaluator.runtime_state)
        self._spreads = Spreads()
        self._others = [Rounding(seed, spreads=self._spreads) for seed in seeds]
        self.number = len(self._others)
        if not _has_branches(self.graph) and _has_grids(self.graph):
            first = self.number + PASSES
            again = range(first, first + (_AGAIN if len(seeds) > 1 else 1))
            self._others += [Rounding(seed, OTHER_GRID, self._spreads) for seed in again]
        self._depth = 0
        self.seen: SeenPerturbed = lambda node, value, perturbed: None
        self.perturbed_outputs: list[list[Any]] = []

    def perturbed_lanes(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """The environment in which the perturbed lanes start."""
        return self._with_state(self.graph, env)

    def end_perturbed_lanes(self, perturbed: Mapping[str, Any]) -> None:
        """Keep what the perturbed lanes end with."""
        self.perturbed_outputs = self._ends(self.graph, perturbed)

    def perturbed_branch(self, graph: Graph, node: Node, scope: Scope, branch: Graph) -> dict[str, Any] | None:
        """What the perturbed lane starts the reference's branch with; it goes the other way by itself."""
        if scope.perturbed is None:
            return None
        own, env = self.enter(graph, node, scope.perturbed)
        if own is branch:
            return env
        self.rounding, live = self._others[0], self.limits.live
        try:
            self._walk(own, Scope(env))
        finally:
            self.rounding, self.limits.live = None, live
        scope.perturbed[node.name] = [self.look_up(env, out) for out in own.outputs]
        return None

    def rounds(self, graph: Graph, node: Node, scope: Scope) -> Value:
        """A loop in all lanes; those who are told the values of its operators are told all rounds together."""
        if scope.perturbed is None or self._depth:
            return super().rounds(graph, node, scope)
        seen, rounds = self.seen, Rounds(self.limits)
        self.seen = lambda node, value, perturbed: rounds.see(node, [Value(value, perturbed[0], None)])
        try:
            value = super().rounds(graph, node, scope)
        finally:
            self.seen = seen
        rounds.tell(lambda node, values: self._tell_rounds(node, values[0]))
        self.seen(node, value.reference, (scope.perturbed[node.name],))
        return value

    def _tell_rounds(self, node: Node, value: Value) -> None:
        if not value.missing and value.local is not None:
            self.seen(node, value.reference, (value.local,))

    def _with_state(self, graph: Graph, env: Mapping[str, Any]) -> dict[str, Any]:
        state = self.perturbed_state
        return {**env, **{item.name: state[item.target] for item in graph.inputs if item.target in state}}

    def _ends(self, graph: Graph, perturbed: Mapping[str, Any]) -> list[list[Any]]:
        """The outputs of a graph in each perturbed lane; the state is brought up to date."""
        lanes = [_Lane(perturbed, at) for at in range(len(self._others))]
        for target, name in graph.mutations.items():
            self.perturbed_state[target] = _joined([self.look_up(lane, Ref(name)) for lane in lanes])
        return [[self.look_up(lane, out) for out in graph.outputs] for lane in lanes]

    def reference(self, graph: Graph, node: Node, scope: Scope, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """One node in all lanes; a delegate with branches inside is run by one lane after the other."""
        if scope.perturbed is None:
            return super().reference(graph, node, scope, args, kwargs)
        if node.target == "delegate" and all(item.target not in CONTROL for item in graph.inside(node).nodes):
            value, perturbed = self._inside(graph.inside(node), node, scope.perturbed, args)
        else:
            value, perturbed = self._in_lanes(graph, node, scope, scope.perturbed, args, kwargs)
        scope.perturbed[node.name] = perturbed
        if not self._depth:
            self.seen(node, value, perturbed if isinstance(perturbed, Several) else (perturbed,))
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
        """The value of a node, and the perturbed ones."""
        self._spreads.clear()
        product = weight_of(node, args, kwargs) is not None
        reference = self.apply(graph, node, args, kwargs) if not product else None
        if self._unpacked.holds(graph, node):
            return reference, reference
        if _only_picks(node) and all(perturbed[name] is scope.env[name] for name in self.reads(node)):
            for rounding in self._others:
                rounding.pass_over(node)
            return reference, _joined([reference] * len(self._others))
        others = []
        to_grid = chooses_grid(node) or (is_quantize(node) and not _lies_on_grid(node, args, kwargs))
        try:
            if product:
                given = [(*self.arguments(_Lane(perturbed, at), node), item) for at, item in enumerate(self._others)]
                reference, *others = self.products(graph, node, [(args, kwargs, None), *given])
                return reference, _joined(others)
            for at, rounding in enumerate(self._others):
                self.rounding = rounding
                plain = converted(node) if to_grid and at >= self.number else ""
                lane = _Lane(perturbed, at, {plain: scope.env[plain]} if plain else {})
                others.append(self.apply_in(graph, node, lane))
        except EtvizError:
            raise
        except Exception as error:
            raise PairingError(f"{node.name} ({node.target}) fails on perturbed values: {error}") from error
        finally:
            self.rounding = None
        return reference, _joined(others)

    def _inside(
        self, inner: Graph, node: Node, perturbed: Mapping[str, Any], args: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        """A delegate, operator by operator in all lanes: its weights are dequantized once."""
        live, env = self.limits.live, self.bind(inner, args)
        lanes = [self.bind(inner, self.arguments(_Lane(perturbed, at), node)[0]) for at in range(len(self._others))]
        within = self._with_state(inner, {name: _joined([lane[name] for lane in lanes]) for name in env})
        self._depth += 1
        try:
            self._walk(inner, Scope(env, perturbed=within))
        finally:
            self._depth -= 1
        self.limits.live = live
        return self.results(inner, env), _joined(self._ends(inner, within))

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

    def see(self, node: Node, value: Any, noises: Sequence[Noise]) -> None:
        """Take a node's value and the noise of each of its outputs."""
        found, least = 0.0, 0.0
        for plain, noise in zip(flat_values(value), noises, strict=True):
            if noise.relative > 0:
                found, least = max(found, noise.relative), max(least, 2 * (_half_ulp(plain) or 0.0))
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
    start, names = fresh(), set(wanted)
    lanes = Lanes(start, range(min(passes, _lanes(start.graph, {name for _, name in names}))))
    few = _Few()
    noises = Noises(lanes, names, growth, few if lanes.number < passes else None)
    for run, given in enumerate(inputs):
        noises.begin(run)
        noises.end(lanes.run(given))
    for seed in range(lanes.number, passes):
        if not few.values:
            break
        evaluator = fresh()
        evaluator.rounding = Rounding(seed)
        for run, given in enumerate(inputs):
            ended = evaluator.run(given, lambda node, value, run=run: few.add((run, node.name), value.reference))
            few.add((run, ""), ended)
    return noises.result(len(inputs))


class Noises:
    """The noise of values, summed up while lanes go beside their reference.

    Parameters
    ----------
    lanes
        What evaluates them.
    wanted
        Number of the execution, and name of the node, of each value; None for all.
    growth
        By number of the execution: told all values; None for that of every execution.
    few
        Is to keep values of a few elements, if another pass may follow.
    even
        As for `Noise`.

    Attributes
    ----------
    growth
        By number of the execution.
    """

    def __init__(
        self,
        lanes: Lanes,
        wanted: Collection[tuple[int, str]] | None = None,
        growth: Mapping[int, Growth] | None = None,
        few: _Few | None = None,
        *,
        even: bool = True,
    ) -> None:
        lanes.seen = self._see
        self.growth = dict(growth or {})
        self._few, self._even = few, even
        self._lanes, self._wanted, self._all = lanes, wanted, growth is None and wanted is None
        self._run = 0
        self._found: dict[int, dict[tuple[str, int], tuple[Noise, Noise]]] = {}
        self._outputs: dict[int, list[tuple[Noise, Noise]]] = {}

    def begin(self, run: int) -> None:
        """The values of an execution follow; what is known of it is of other inputs."""
        self._run, self._found[run] = run, {}
        if self._all:
            self.growth[run] = Growth()

    def _see(self, node: Node, value: Any, perturbed: Sequence[Any]) -> None:
        run, growth = self._run, self.growth.get(self._run)
        wanted = self._wanted is None or (run, node.name) in self._wanted
        if not wanted and growth is None:
            return
        known = self._found[run].get(item_of(node) or ("", 0)) if self._few is None else None
        found = [known] if known is not None else []
        for output, plain in enumerate(flat_values(value) if known is None else ()):
            others = [flat_values(other)[output] for other in perturbed]
            found.append(self._summed((run, node.name) if wanted else None, output, plain, others))
        if growth is not None:
            growth.see(node, value, [noise for noise, _ in found])
        if wanted:
            self._found[run] |= {(node.name, output): item for output, item in enumerate(found)}

    def end(self, outputs: Sequence[Any], times: int = 1) -> None:
        """The execution has these final outputs; those that follow, so many in all, are the same."""
        run, perturbed = self._run, self._lanes.perturbed_outputs
        self._outputs[run] = [
            self._summed((run, ""), at, plain, [other[at] for other in perturbed]) for at, plain in enumerate(outputs)
        ]
        if run in self.growth:
            self.growth[run].imposed = [_NEIGHBOURS * last.rms for _, last in self._outputs[run]]
        for same in range(run + 1, run + times):
            self._found[same], self._outputs[same] = self._found[run], self._outputs[run]
            if self._all:
                self.growth[same] = self.growth[run]

    def _summed(
        self, key: tuple[int, str] | None, output: int, plain: Any, others: Sequence[Any]
    ) -> tuple[Noise, Noise]:
        """The noise of all lanes, and of those in which grids are reached from plain values."""
        noise, last = Noise(even=self._even), Noise(even=self._even)
        for at, other in enumerate(others):
            (noise if at < self._lanes.number else last).add(other, plain)
        if self._few is not None and key is not None:
            self._few.keep(key, output, noise, plain)
        return noise, last

    def result(self, count: int) -> tuple[dict[tuple[int, str, int], float], list[list[float]]]:
        """What `total_noise` gives for so many executions."""
        found = {(run, *key): _larger(*item) for run, items in self._found.items() for key, item in items.items()}
        return found, [[_larger(*item) for item in self._outputs.get(run, ())] for run in range(count)]


def _larger(noise: Noise, last: Noise) -> float:
    return max(noise.rms, _NEIGHBOURS * last.rms)


def beside(evaluator: Evaluator) -> tuple[Lanes, Noises] | None:
    """Lanes for the first evaluation of a program already, and the noise that they tell.

    None where it is not certain that noise is needed, or another evaluation is cheap. Where a delegate chooses grids
    when it runs, a backend does so in its own way, and hardly a value is what it is in the reference.
    """
    graph = evaluator.graph
    parts = (graph, *graph.subgraphs.values())
    chosen = any(chooses_grid(node) for part in parts for node in part.nodes)
    weights, work = _products(graph)
    if not chosen or weights < _HEAVY or _has_branches(graph):
        return None
    lanes = Lanes(evaluator, range(PASSES if work <= _DEAR else _FEW_PASSES))
    return lanes, Noises(lanes, even=lanes.number == PASSES)


def _products(graph: Graph) -> tuple[int, int]:
    """Elements of the quantized weights that a program multiplies by, and the multiplications."""
    weights = work = 0
    for part in (graph, *graph.subgraphs.values()):
        names, nodes = product_weights(part), {node.name: node for node in part.nodes}
        for node in part.nodes if names else ():
            sizes = [nodes[name].outputs[0] for name in node.reads() if name in names and nodes[name].outputs]
            if node.target == LINEAR and sizes and sizes[0] is not None and node.outputs:
                width = sizes[0].shape[-1]
                weights += elements(sizes[0]) or 0
                work += (elements(node.outputs[0]) or 0) * (width if isinstance(width, int) else 0)
    return weights, work


def _lanes(graph: Graph, names: Collection[str]) -> int:
    """How many perturbed lanes are worth to go side by side: as many as will be needed, if they take little memory.

    They share weights that are dequantized, which takes longer than their own computing in a decoder's step.
    """
    if _has_branches(graph) or not _is_small(graph):
        return 1
    sizes = (elements(meta) for node in graph.nodes if node.name in names for meta in node.outputs)
    return math.ceil(SAMPLES / max(1, min(filter(None, sizes), default=SAMPLES)))


def _is_small(graph: Graph) -> bool:
    """True if several lanes take little memory."""
    return 0 < (largest_value(graph) or 0) <= _SMALL


def _has_branches(graph: Graph) -> bool:
    return any(node.target in CONTROL for node in graph.nodes)


def _has_grids(graph: Graph) -> bool:
    """True if values are rounded to grids: known ones, in a small program also those that are chosen when it runs."""
    small = _is_small(graph) and _products(graph)[1] <= _DEAR
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
