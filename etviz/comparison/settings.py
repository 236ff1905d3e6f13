"""Which setting of an operator the runtime may have computed with: one that it did not read, another one, or a formula.

A backend that does not know an argument takes the operator's default for it, or what it has itself. So where an
instruction is most likely at fault, its operators are computed once more on the runtime's own inputs, each time with
one setting changed, or by the formula that kernels are known to use. If that gives what the runtime gave, the fault has
a name. It stays a hypothesis: two changes together, and a kernel that is wrong in another way, are not found so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from etviz.evaluation.operators import Operator, by_position, resolve
from etviz.evaluation.orders import LAYER_NORM, by_moments
from etviz.evaluation.values import flat_values
from etviz.graph.draws import draws
from etviz.graph.labels import short_operator
from etviz.graph.quantize_ops import is_conversion
from etviz.tensors.fingerprints import FORMULA, SETTING, Fingerprint, Pair, explaining

if TYPE_CHECKING:
    from etviz.comparison.gap import Comparison, Gap
    from etviz.evaluation.values import Rounding
    from etviz.graph.ir import Node

logger = logging.getLogger(__name__)

_MOST: Final = 12
"""Settings that are tried for one instruction."""
_SECONDS: Final = 2.0
"""After them no further setting of the instruction is tried: it may be a whole model."""
_INSTRUCTIONS: Final = 4
"""Instructions of an execution for which that is done, in program order."""
_SURE: Final = 0.9
"""Share of the squared error that a setting must explain."""
_IDLE: Final = frozenset(
    (
        *("keepdim", "keep_dim", "half_to_float", "cudnn_enabled", "benchmark", "deterministic", "allow_tf32"),
        *("sparse", "scale_grad_by_freq", "transposed", "train", "training", "pin_memory", "non_blocking", "copy"),
        "enable_gqa",
    )
)
"""Switches that change what kind of value it is, or nothing."""
_RESIZING: Final = frozenset(f"aten.upsample_{kind}.vec" for kind in ("bilinear2d", "bicubic2d", "nearest2d"))
_CHOICES: Final[Mapping[str, tuple[Any, ...]]] = {"approximate": ("none", "tanh")}
"""What else an argument that is a word can be."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An argument of an operator, wherever it is the same: what the program says, and what is tried in its place."""

    target: str
    name: str
    said: Any
    tried: Any
    places: frozenset[int]
    """The ids of the nodes."""

    def __str__(self) -> str:
        return f"As of {short_operator(self.target)} with {self.name}={self.tried!r} (the program says {self.said!r})"

    def compute(self, call: Callable[..., Any], node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the operator gives with it."""
        place = _names(node.target).index(self.name)
        if place < len(args):
            return call(node.target, [*args[:place], self.tried, *args[place + 1 :]], kwargs)
        return call(node.target, args, {**kwargs, self.name: self.tried})


@dataclass(frozen=True, slots=True)
class Moments:
    """Layer norms by sums and sums of squares, as ExecuTorch's portable kernels compute them."""

    places: frozenset[int]
    """The ids of the nodes."""

    def __str__(self) -> str:
        return "As of layer_norm whose variance is the mean square less the squared mean, which loses digits"

    def compute(self, call: Callable[..., Any], node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the operator gives so."""
        return by_moments(by_position(node.target, args, kwargs)[0])


@dataclass(frozen=True, slots=True)
class Resized:
    """An image resized by the ratio of its sizes, where the program gives factors that do not make whole ones."""

    target: str
    factors: tuple[float, ...]
    sizes: tuple[int, ...]
    """The last axes of the result."""
    places: frozenset[int]
    """The ids of the nodes."""

    def __str__(self) -> str:
        factors = ", ".join(f"{factor:g}" for factor in self.factors)
        return (
            f"As of {short_operator(self.target)} by the ratio of the sizes (the program gives the factors {factors})"
        )

    def compute(self, call: Callable[..., Any], node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the operator gives so."""
        given = by_position(node.target, args, kwargs)[0]
        return call(node.target, [given[0], list(self.sizes), *given[2:-1], None], {})


Hypothesis: TypeAlias = Setting | Moments | Resized


class _Otherwise:
    """Computes one operator with another setting, and all others as they are: a rounding that rounds nothing."""

    def __init__(self, setting: Hypothesis) -> None:
        self._setting = setting

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
        """What the operator gives."""
        if not self.perturbs(node):
            return call(node.target, args, kwargs)
        return self._setting.compute(call, node, args, kwargs)

    def perturbs(self, node: Node) -> bool:
        """True for the operator."""
        return id(node) in self._setting.places


def _operator(target: str) -> Operator | None:
    try:
        found = resolve(target) if "." in target else None
    except Exception:  # noqa: BLE001 - an operator that is not registered here
        return None
    return found if isinstance(found, Operator) else None


def _names(target: str) -> tuple[str, ...]:
    operator = _operator(target)
    return operator.names if operator is not None else ()


def settings(nodes: Sequence[Node]) -> list[Hypothesis]:
    """What some operators may have had instead: formulas, words, numbers that are no defaults, switches."""
    places: dict[tuple[int, str, str, Any, Any], set[int]] = {}
    for node in nodes:
        operator = _operator(node.target)
        if operator is None or is_conversion(node) or draws(node):
            continue
        for place, argument in enumerate(operator.schema.arguments):
            default = argument.default_value if argument.has_default_value() else None
            said = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, default)
            for order, tried in _others(argument.name, said, default):
                places.setdefault((order, node.target, argument.name, said, tried), set()).add(id(node))
    ordered = sorted(places.items(), key=lambda item: item[0][0])
    return [*_formulas(nodes), *(Setting(*key[1:], frozenset(ids)) for key, ids in ordered)]


def _formulas(nodes: Sequence[Node]) -> Iterator[Hypothesis]:
    """Those of layer norms, and of images whose size is multiplied."""
    norms = frozenset(id(node) for node in nodes if node.target == LAYER_NORM)
    if norms:
        yield Moments(norms)
    resized: dict[tuple[str, tuple[float, ...], tuple[int, ...]], set[int]] = {}
    for node in nodes:
        meta = node.outputs[0] if node.outputs else None
        if node.target not in _RESIZING or meta is None:
            continue
        factors = by_position(node.target, node.args, node.kwargs)[0][-1]
        sizes = tuple(size for size in meta.shape[-len(factors or ()) :] if isinstance(size, int))
        if factors and len(sizes) == len(factors):
            resized.setdefault((node.target, tuple(map(float, factors)), sizes), set()).add(id(node))
    for key, ids in resized.items():
        yield Resized(*key, frozenset(ids))


def _others(name: str, said: Any, default: Any) -> Iterator[tuple[int, Any]]:
    """What an argument may have been instead, the likeliest kinds first."""
    if isinstance(said, str):
        yield from ((0, other) for other in _CHOICES.get(name, ()) if other != said)
    elif isinstance(said, bool):
        yield from [(2, not said)] if name not in _IDLE else []
    elif isinstance(said, (int, float)) and isinstance(default, (int, float)) and said != default:
        yield 1, default


def find_settings(
    result: Comparison,
    gaps: Sequence[Gap],
    nodes: Sequence[Node],
    again: Callable[[Rounding], Any] | None,
    value: Any,
) -> None:
    """Note with the gaps of an instruction which setting of its `nodes` gives what the runtime gave.

    `again` and `value` are as for `measure_introduced_noise`.
    """
    bad = [gap for gap in gaps if gap.is_bad()]
    if not bad or again is None or result.settings_tried >= _INSTRUCTIONS:
        return
    result.settings_tried += 1
    plain = flat_values(value)
    end = time.monotonic() + _SECONDS
    for setting in settings(nodes)[:_MOST]:
        if time.monotonic() > end:
            return
        try:
            found = flat_values(again(_Otherwise(setting)))  # type: ignore[arg-type] - no product is perturbed
        except Exception:
            logger.debug("%s can't be computed", setting, exc_info=True)
            continue
        for gap in bad:
            known = gap.output < min(len(plain), len(found))
            fits = _fit(gap, plain[gap.output], found[gap.output], setting) if known else None
            if fits is not None and (gap.setting is None or fits.score > gap.setting.score):
                gap.setting = fits


def _fit(gap: Gap, plain: Any, found: Any, setting: Hypothesis) -> Fingerprint | None:
    """How much of a gap's introduced error a setting explains; None if it is not worth showing."""
    kind = getattr(found, "shape", None), getattr(found, "dtype", None)
    if kind != (gap.runtime.shape, gap.runtime.dtype) or getattr(plain, "shape", None) != gap.runtime.shape:
        return None
    score = Pair(plain, gap.runtime, gap.scale).confirmed_by(plain, gap.runtime, found)
    name = FORMULA if isinstance(setting, Moments) else SETTING
    return explaining(name, score, str(setting)) if score >= _SURE else None
