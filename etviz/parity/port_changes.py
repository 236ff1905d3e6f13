"""Changes of a port, each a hypothesis on its fault.

A hypothesis is *proved* by applying it: the first value that differs then agrees. Numbers of a change (a
factor, a cap) are fitted on the values before the difference.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn import functional

from etviz.parity.parameters import Match, interleaving
from etviz.parity.port_stages import OUTPUT, Pair, Port, PortStage, own_matches
from etviz.parity.rotary import frequencies_of
from etviz.parity.runs import Edits, Point

_ACTIVATIONS: Final[Mapping[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu with tanh": functools.partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "squared relu": lambda x: functional.relu(x).square(),
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
_CALLED: Final[tuple[str, ...]] = ("silu", "gelu", "relu")
_STEPS: Final = 24


@dataclass(frozen=True, slots=True)
class PortChange:
    """A change that may put a port right.

    `name` is like ``rope pairing``; `where` are modules, with ``*`` for a layer's number; `change` goes on after
    "with"; `hidden` values get another order and can't be compared.
    """

    name: str
    where: str
    change: str
    edits: Edits
    hidden: frozenset[Point] = frozenset()


@dataclass(frozen=True, slots=True)
class Suspect:
    """The first value that differs; `wide` if a change applies to every layer."""

    port: Port
    stage: PortStage
    stages: Sequence[PortStage]
    wide: bool = True

    @property
    def path(self) -> str:
        return self.stage.pair.point.module

    @property
    def before(self) -> list[PortStage]:
        return list(reversed(self.stages[: self.stages.index(self.stage)]))

    @property
    def around(self) -> str:
        point = self.stage.pair.point
        if point.side == "output":
            return point.module
        return point.module.rpartition(".")[0]

    def leaves(self) -> list[str]:
        inside = self.around + "." if self.around else ""
        paths = []
        for stage in self.stages:
            if stage is self.stage:
                break
            point = stage.pair.point
            matches = own_matches(self.port, point.module)
            if point.side == "output" and point.module.startswith(inside) and point.module not in paths and matches:
                paths.append(point.module)
        return paths

    def reordered(self) -> frozenset[Point]:
        inside = self.around + "."
        places = {
            (starred(stage.pair.point.module), stage.pair.point.side)
            for stage in self.before
            if stage.pair.point.module.startswith(inside)
        }
        within = tuple(path + "." for path in self.alike(self.around))
        return frozenset(
            pair.point
            for pair in self.port.pairs
            if pair.point.module.startswith(within) and (starred(pair.point.module), pair.point.side) in places
        )

    def outputs(self, paths: Collection[str]) -> frozenset[Point]:
        points = (pair.point for pair in self.port.pairs)
        return frozenset(point for point in points if point.side == "output" and point.module in paths)

    def alike(self, path: str) -> list[str]:
        if not self.wide:
            return [path]
        pattern = re.compile(re.sub(r"\\\.\d+(?=\\\.|$)", r"\\.\\d+", re.escape(path)))
        return [name for name, _ in self.port.model.named_modules() if pattern.fullmatch(name)]


def starred(path: str) -> str:
    """Numbers of layers become ``*``."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path) or "the model"


def proposals(suspect: Suspect) -> Iterator[PortChange]:
    point = suspect.stage.pair.point
    yield from _beginning(suspect)
    families = (_bias, _parameters, _offsets, _epsilon, _factors, _caps, _attributes, _transplanted)
    if point.side != "output":
        families = (_factors, _caps, _frequencies, _pairing, _swapped, _head_order, _activation, _missing_module)
        families += (_attention, _branches, _attributes, _attention_scale)
    for family in families:
        yield from family(suspect)


def _beginning(suspect: Suspect) -> Iterator[PortChange]:
    port = suspect.port
    if not port.arguments.args or not port.reference_arguments.args:
        return
    mine, theirs = port.arguments.args[0], port.reference_arguments.args[0]
    if not all(isinstance(tensor, torch.Tensor) and not tensor.is_floating_point() for tensor in (mine, theirs)):
        return
    more = theirs.shape[-1] - mine.shape[-1]
    if more > 0 and torch.equal(theirs[..., more:].long(), mine.long()):
        first = theirs[..., :more]
        said = ", ".join(map(str, first.flatten().tolist()[:4]))
        yield PortChange("missing BOS", "the inputs", f"token {said} in front of the inputs", Edits(prefix=first))


def _bias(suspect: Suspect) -> Iterator[PortChange]:
    port, outputs, places = suspect.port, {}, []
    for name, match in port.matches.items():
        path, _, last = name.rpartition(".")
        biases = [source.rpartition(".")[0] + ".bias" for source in match.sources]
        if last != "weight" or not biases or any(bias not in port.missing for bias in biases):
            continue
        bias = torch.cat([port.reference_tensors[each] for each in biases])
        bias = bias if match.rows is None else bias[match.rows]
        outputs[path] = [functools.partial(_added, bias * match.factor)]
        places.append(path)
    if suspect.path in outputs:
        where = _places(places)
        yield PortChange("missing bias", where, f"the reference's bias in {where}", Edits(outputs=outputs))


def _added(bias: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return value + bias.to(value.dtype)


def _places(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else ", ".join(dict.fromkeys(map(starred, paths)))


def _parameters(suspect: Suspect) -> Iterator[PortChange]:
    port = suspect.port
    matches = [match for match in own_matches(port, suspect.path) if not match.plain]
    for match in matches:
        alike = [
            other
            for path in suspect.alike(suspect.path)
            for other in own_matches(port, path)
            if other.relation == match.relation and other.name.rpartition(".")[2] == match.name.rpartition(".")[2]
        ]
        tensors = {}
        for other in alike:
            value = other.expected(port.reference_tensors)
            if value.shape == port.tensors[other.name].shape:
                tensors[other.name] = value.to(port.tensors[other.name].dtype)
        if match.name not in tensors:
            continue
        name, where = f"{match.relation} weights", _places([other.name for other in alike])
        if _tied(port, match):
            name, where, said = "tied embeddings", match.name, f"the reference's tied embedding as {match.name}"
        elif match.relation == "differs":
            name, said = "other weights", f"the numbers of the reference's {_places(match.sources)} in {where}"
        elif match.relation in ("offset", "scaled"):
            said = f"{where} not {match.detail}"
        else:
            said = f"{where} as in the reference ({match.relation}{': ' if match.detail else ''}{match.detail})"
        yield PortChange(name, where, said, Edits(tensors))


def _tied(port: Port, match: Match) -> bool:
    reference = dict(port.reference.named_parameters(remove_duplicate=False))
    value = reference.get(match.sources[0]) if match.sources else None
    return match.relation == "differs" and sum(other is value for other in reference.values()) > 1


def _same_kind(suspect: Suspect) -> list[str]:
    port = suspect.port
    if not suspect.wide:
        return [suspect.path]
    kind = type(port.model.get_submodule(suspect.path))
    return [path for path, module in port.model.named_modules() if type(module) is kind and own_matches(port, path)]


def _offsets(suspect: Suspect) -> Iterator[PortChange]:
    port = suspect.port
    kind, where = type(port.model.get_submodule(suspect.path)).__name__, starred(suspect.path)
    for paths, place, said in (
        (_same_kind(suspect), kind, f"every {kind}"),
        (suspect.alike(suspect.path), where, where),
    ):
        weights = [match.name for path in paths for match in own_matches(port, path)]
        weights = [name for name in weights if port.tensors[name].ndim == 1 and name.endswith("weight")]
        if not any(name.rpartition(".")[0] == suspect.path for name in weights):
            continue
        for offset, formula in ((1.0, "1 + weight"), (-1.0, "weight − 1")):
            tensors = {name: port.tensors[name] + offset for name in weights}
            yield PortChange("norm weight + 1", place, f"{formula} in {said}", Edits(tensors))


def _epsilon(suspect: Suspect) -> Iterator[PortChange]:
    port, changes, said = suspect.port, {}, set[str]()
    for path in _same_kind(suspect):
        for name, value in _numbers(port.model.get_submodule(path)).items():
            others = _numbers(port.reference.get_submodule(_other(port, path)))
            wanted = [other for key, other in others.items() if "eps" in key.lower()]
            if "eps" in name.lower() and len(set(wanted)) == 1 and wanted[0] != value:
                changes[path, name] = wanted[0]
                said.add(f"epsilon {wanted[0]:g} instead of {value:g}")
    if changes:
        kind = type(port.model.get_submodule(suspect.path)).__name__
        yield PortChange("epsilon", kind, f"{' and '.join(sorted(said))} in every {kind}", Edits(attributes=changes))


def _numbers(module: torch.nn.Module) -> dict[str, float]:
    return {name: value for name, value in vars(module).items() if type(value) is float}


def _other(port: Port, path: str) -> str:
    matches = own_matches(port, path)
    return matches[0].sources[0].rpartition(".")[0] if matches else port.modules.get(path, "")


def _factors(suspect: Suspect) -> Iterator[PortChange]:
    values = suspect.port.value(suspect.stage.pair)
    if values is None:
        return
    value, expected = values
    factor = _factor(value, expected)
    if factor is None or not _explains(suspect.stage, value * factor - expected):
        return
    path, width, behind = suspect.path, value.shape[-1], suspect.stage.pair.point.side == "input"
    if behind:
        path = next((stage.pair.point.module for stage in suspect.before if stage.pair.point.side == "output"), "")
    root = f" (√{width})" if abs(factor - math.sqrt(width)) < 1e-3 * factor else ""
    name = "embedding scale" if isinstance(suspect.port.model.get_submodule(path), torch.nn.Embedding) else "scale"
    where = starred(path)
    places = suspect.alike(path) or [path]
    edits = Edits(outputs={each: [functools.partial(torch.mul, other=factor)] for each in places})
    hidden = suspect.outputs(places) if behind else frozenset[Point]()  # it is right before it is multiplied
    yield PortChange(name, where, f"the output of {where} × {factor:.6g}{root}", edits, hidden)


def _factor(value: torch.Tensor, expected: torch.Tensor) -> float | None:
    square = float(value.square().sum())
    return float((value * expected).sum()) / square if square and math.isfinite(square) else None


def _explains(stage: PortStage, gap: torch.Tensor) -> bool:
    rmse = float(gap.norm()) / math.sqrt(max(gap.numel(), 1))
    return rmse <= max(3 * stage.noise, 1e-3 * stage.rmse)


def _caps(suspect: Suspect) -> Iterator[PortChange]:
    values = suspect.port.value(suspect.stage.pair)
    if values is None:
        return
    value, expected = values
    at = int((value - expected).abs().argmax())
    x, y = float(value.flatten()[at]), float(expected.flatten()[at])
    if not 0 < abs(y) < abs(x) or x * y < 0:
        return
    low, high = abs(y), max(abs(y), abs(x)) * 1e4
    for _ in range(100):
        cap = math.sqrt(low * high)
        low, high = (cap, high) if cap * math.tanh(abs(x) / cap) < abs(y) else (low, cap)
    cap = math.sqrt(low * high)
    if not _explains(suspect.stage, cap * torch.tanh(value / cap) - expected):
        return
    cap = round(cap, 3) if abs(cap - round(cap, 3)) < 1e-4 * cap else cap
    path = suspect.path
    where = "the logits" if suspect.stage.pair.point == OUTPUT else starred(path)
    edits = Edits(outputs={path: [lambda output: cap * torch.tanh(output / cap)]})
    yield PortChange("soft-cap", where, f"{where} capped at {cap:g}", edits)


def _rows_of(suspect: Suspect, path: str) -> list[tuple[str, int, int]]:
    port = suspect.port
    parts = []
    for match in own_matches(port, path):
        value = port.tensors[match.name]
        if value.ndim == 0:
            continue
        sizes = [len(port.reference_tensors[source]) for source in match.sources]
        sizes = sizes if sum(sizes) == len(value) else [len(value)]
        start = 0
        for size in sizes:
            parts.append((match.name, start, start + size))
            start += size
    return parts


def _head_sizes(suspect: Suspect, rows: Sequence[int]) -> list[int]:
    """Rotary tables and norms of the heads tell the size, else all that divide."""
    port = suspect.port
    known = [
        2 * len(table.frequencies)
        for model in (port.model, port.reference)
        for table in frequencies_of(dict(model.named_buffers()))
    ]
    inside = suspect.around + "."
    known += [len(value) for name, value in port.tensors.items() if name.startswith(inside) and value.ndim == 1]
    common = math.gcd(*rows)
    every = [size for size in range(common, 3, -1) if common % size == 0 and size % 2 == 0]
    return [size for size in dict.fromkeys([*known, *every]) if size > 3 and size % 2 == 0 and common % size == 0]


def _reordered(
    suspect: Suspect, parts: Sequence[tuple[str, int, int]], order: Callable[[int], torch.Tensor]
) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for name, start, stop in parts:
        path, _, last = name.rpartition(".")
        for other in suspect.alike(path):
            key = f"{other}.{last}"
            if key not in suspect.port.tensors or len(suspect.port.tensors[key]) < stop:
                continue
            value = tensors.get(key, suspect.port.tensors[key]).clone()
            value[start:stop] = value[start:stop][order(stop - start)]
            tensors[key] = value
    return tensors


def _pairing(suspect: Suspect) -> Iterator[PortChange]:
    leaves = [path for path in suspect.leaves() if _matrix_of(suspect, path)]
    parts = [part for path in leaves for part in _rows_of(suspect, path)]
    groups = [part for part in parts if suspect.port.tensors[part[0]].ndim > 1]
    for one in range(len(groups)):
        for two in range(one + 1, len(groups)):
            chosen = [groups[one], groups[two]]
            owners = {(name.rpartition(".")[0], start, stop) for name, start, stop in chosen}
            both = [part for part in parts if (part[0].rpartition(".")[0], part[1], part[2]) in owners]
            for size in _head_sizes(suspect, [stop - start for _, start, stop in chosen])[:6]:
                norms = [
                    (name, 0, size)
                    for name, value in suspect.port.tensors.items()
                    if name.startswith(suspect.around + ".") and tuple(value.shape) == (size,)
                ]
                for halves in (True, False):
                    yield _pairing_of(suspect, [*both, *norms], size, halves)


def _pairing_of(suspect: Suspect, parts: Sequence[tuple[str, int, int]], size: int, halves: bool) -> PortChange:
    def order(count: int) -> torch.Tensor:
        rows = interleaving(count, size)
        return rows if halves else rows.argsort()

    where = starred(suspect.around)
    names = " and ".join(dict.fromkeys(name.rpartition(".")[0].rpartition(".")[2] for name, _, _ in parts[:2]))
    kinds = ("half-split", "interleaved") if halves else ("interleaved", "half-split")
    said = f"{kinds[0]} RoPE in {where} (it is {kinds[1]}; heads of {size}, rows of {names})"
    return PortChange("rope pairing", where, said, Edits(_reordered(suspect, parts, order)), suspect.reordered())


def _matrix_of(suspect: Suspect, path: str) -> bool:
    return any(suspect.port.tensors[match.name].ndim == 2 for match in own_matches(suspect.port, path))


def _frequencies(suspect: Suspect) -> Iterator[PortChange]:
    port = suspect.port
    buffers = dict(port.model.named_buffers())
    mine = frequencies_of(buffers)
    for other in frequencies_of(dict(port.reference.named_buffers())):
        owner = port.reference.get_submodule(other.names[0].rpartition(".")[0])
        amplitude = getattr(owner, "attention_scaling", other.amplitude)
        wanted = type(other)(other.names, other.frequencies, float(amplitude), other.width)
        differing = [table for table in mine if not table.equals(wanted)]
        if not differing:
            continue
        tensors = {}
        for table in differing:
            tensors |= table.like(wanted, buffers)
        said = f"the reference's RoPE ({wanted.described()}) instead of {differing[0].described()}"
        yield PortChange("rope frequencies", _places(differing[0].names), said, Edits(tensors))


def _swapped(suspect: Suspect) -> Iterator[PortChange]:
    leaves = [path for path in suspect.leaves() if _matrix_of(suspect, path)]
    tensors, hidden = suspect.port.tensors, suspect.reordered()
    for at, one in enumerate(leaves):
        for two in leaves[at + 1 :]:
            pair = [f"{one}.weight", f"{two}.weight"]
            if any(name not in tensors for name in pair) or tensors[pair[0]].shape != tensors[pair[1]].shape:
                continue
            changed = {}
            for first, second in zip(suspect.alike(one), suspect.alike(two), strict=False):
                for last in ("weight", "bias"):
                    a, b = f"{first}.{last}", f"{second}.{last}"
                    if a in tensors and b in tensors:
                        changed |= {a: tensors[b], b: tensors[a]}
            where = f"{starred(one)} and {starred(two)}"
            yield PortChange("swapped weights", where, f"the weights of {where} exchanged", Edits(changed), hidden)


def _head_order(suspect: Suspect) -> Iterator[PortChange]:
    """Query heads are grouped in another order: 0 0 1 1 against 0 1 0 1."""
    matches = own_matches(suspect.port, suspect.path)
    after = next((match.name for match in matches if suspect.port.tensors[match.name].ndim == 2), None)
    groups = [part for path in suspect.leaves() for part in _rows_of(suspect, path)]
    groups = [part for part in groups if suspect.port.tensors[part[0]].ndim > 1]
    if after is None or len(groups) < 2:
        return
    width = suspect.port.tensors[after].shape[1]
    counts = [stop - start for _, start, stop in groups]
    queries = next((group for group in groups if group[2] - group[1] == width), None)
    if queries is None or min(counts) == width:
        return
    sizes = _head_sizes(suspect, counts)[:6]
    for size in sizes:
        heads, keys = width // size, min(counts) // size
        if heads <= keys or heads % keys:
            continue
        for first, said in (((keys, heads // keys), "0 0 1 1"), ((heads // keys, keys), "0 1 0 1")):
            blocks = torch.arange(heads).view(first).T.flatten()
            order = (blocks[:, None] * size + torch.arange(size)).flatten()
            tensors = _reordered(suspect, [queries], lambda _, order=order: order)
            for path in suspect.alike(suspect.path):
                key = f"{path}.{after.rpartition('.')[2]}"
                if key in suspect.port.tensors:
                    tensors[key] = suspect.port.tensors[key][:, order]
            where = starred(suspect.around)
            change = f"query heads grouped {said} … in {where} ({heads} heads over {keys})"
            hidden = suspect.reordered() | {
                pair.point
                for pair in suspect.port.pairs
                if pair.point.side == "input" and pair.point.module in suspect.alike(suspect.path)
            }
            yield PortChange("grouped-query order", where, change, Edits(tensors), hidden)


def _activation(suspect: Suspect) -> Iterator[PortChange]:
    where = starred(suspect.around)
    for name, function in _ACTIVATIONS.items():

        def wrapper(_: Any, x: torch.Tensor, *args: Any, function: Any = function, **kwargs: Any) -> torch.Tensor:
            return function(x)

        functions: dict[str, Callable[..., Any]] = {str(called): wrapper for called in _CALLED}
        yield PortChange("activation", where, f"{name} as the activation in {where}", Edits(functions=functions))


def _missing_module(suspect: Suspect) -> Iterator[PortChange]:
    port = suspect.port
    lacking = dict.fromkeys(name.rpartition(".")[0] for name in port.missing if name.endswith("weight"))
    partners = {pair.others[0].module: pair.point.module for pair in port.pairs if pair.point.side == "output"}
    outputs = {}
    for path in lacking:
        points = [point for point in port.expected.values if point.module == path and point.side == "input"]
        if not points:
            continue
        given = port.expected.values[points[0]]
        for point, value in port.expected.values.items():
            fed = point.side == "output" and point.module in partners and value.shape == given.shape
            if fed and torch.equal(value, given):
                outputs[partners[point.module]] = [port.reference.get_submodule(path)]
                break
    if outputs:
        where = _places(list(outputs))
        said = f"the reference's {_places(list(lacking))} behind {where}"
        yield PortChange("missing module", where, said, Edits(outputs=outputs))


def _attention(suspect: Suspect) -> Iterator[PortChange]:
    numbers = _settings(suspect.port.reference)
    where = starred(suspect.around)
    caps = {value for name, value in numbers.items() if "cap" in name and value > 0}
    windows = {int(value) for name, value in numbers.items() if "window" in name and value >= 1}
    alone = {"causal": True, "alone": True}
    for name, change, options in (
        *(("attention soft-cap", f"attention scores capped at {cap:g} in {where}", {"cap": cap}) for cap in caps),
        *(("window", f"a window of {window} positions in {where}", {"window": window}) for window in windows),
        ("mask", f"a causal mask in {where}", {"causal": True}),
        *(
            ("window", f"a causal window of {window} positions as the mask in {where}", {"window": window} | alone)
            for window in windows
        ),
        ("mask", f"a causal mask as the only one in {where}", alone),
    ):
        function = functools.partial(_attended, **options)
        yield PortChange(name, where, change, Edits(functions={"scaled_dot_product_attention": function}))


def _settings(model: torch.nn.Module) -> dict[str, float]:
    config = getattr(model, "config", None)
    named = getattr(config, "__dict__", {})
    settings = {name.lower(): float(value) for name, value in named.items() if type(value) in (int, float)}
    for module in model.modules():
        settings |= {name.lower(): float(value) for name, value in vars(module).items() if type(value) in (int, float)}
    return settings


def _attended(
    _: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    cap: float | None = None,
    window: int | None = None,
    causal: bool = False,
    alone: bool = False,
    factor: float = 1.0,
) -> torch.Tensor:
    if enable_gqa:
        k, v = (tensor.repeat_interleave(q.shape[-3] // tensor.shape[-3], -3) for tensor in (k, v))
    scores = q @ k.transpose(-2, -1) * (scale if scale is not None else q.shape[-1] ** -0.5) * factor
    scores = cap * torch.tanh(scores / cap) if cap is not None else scores
    rows, columns = scores.shape[-2:]
    gap = torch.arange(rows)[:, None] + (columns - rows if attn_mask is None else 0) - torch.arange(columns)
    if is_causal or causal:
        scores = scores.masked_fill(gap < 0, -math.inf)
    if window is not None:
        scores = scores.masked_fill(gap >= window, -math.inf)
    if attn_mask is not None and not alone:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(-1).to(v.dtype) @ v


def _branches(suspect: Suspect) -> Iterator[PortChange]:
    values = suspect.port.value(suspect.stage.pair)
    if values is None:
        return
    value, expected = values
    gap = expected - value
    for stage in suspect.before:
        branch = suspect.port.value(stage.pair) if stage.pair.point.side == "output" else None
        if branch is None or branch[0].shape != gap.shape:
            continue
        part = _factor(branch[0], gap)
        if part is None or not _explains(suspect.stage, part * branch[0] - gap):
            continue
        path = stage.pair.point.module
        where, factor = starred(path), 1 + part
        places = suspect.alike(path)
        edits = Edits(outputs={each: [functools.partial(torch.mul, other=factor)] for each in places})
        hidden = suspect.outputs(places)  # it is right before it is multiplied
        yield PortChange("branch scale", where, f"the output of {where} × {factor:.6g}", edits, hidden)
        return


def _attributes(suspect: Suspect) -> Iterator[PortChange]:
    port, seen = suspect.port, set[tuple[str, str]]()
    inner = [path for path, _ in port.model.named_modules() if path == suspect.around or path == suspect.path]
    inner += [path for path, _ in port.model.named_modules() if path.startswith(suspect.around + ".")]
    for path in dict.fromkeys(inner):
        for name, value in vars(port.model.get_submodule(path)).items():
            if type(value) is not bool or name.startswith("_") or name == "training":
                continue
            where = starred(path)
            if (where, name) in seen:
                continue
            seen.add((where, name))
            alike = [other for other in suspect.alike(path) if getattr(port.model.get_submodule(other), name) == value]
            edits = Edits(attributes={(other, name): not value for other in alike})
            yield PortChange("attribute", where, f"{name} = {not value} in {where}", edits)


def _attention_scale(suspect: Suspect) -> Iterator[PortChange]:
    pair, where = suspect.stage.pair, starred(suspect.around)

    def edits(factor: float) -> Edits:
        function = functools.partial(_attended, factor=factor)
        return Edits(functions={"scaled_dot_product_attention": function})

    def gap(log: float) -> float:
        return _gap_at(suspect.port, pair, edits(2.0**log))

    plain = gap(0.0)
    if not math.isfinite(plain) or gap(1.0) == plain:
        return  # the model does not call the function
    low, high = -4.0, 4.0
    coarse = min((gap(log), log) for log in torch.linspace(low, high, 9).tolist())[1]
    low, high = coarse - 1, coarse + 1
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(_STEPS):
        one, two = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, two) if gap(one) < gap(two) else (one, high)
    factor = _rounded(2.0 ** ((low + high) / 2))
    yield PortChange("attention scale", where, f"attention scores × {factor:.6g} in {where}", edits(factor))


def _rounded(factor: float) -> float:
    whole = round(factor**2) if factor > 1 else round(factor**-2)
    exact = math.sqrt(whole) if factor > 1 else 1 / math.sqrt(max(whole, 1))
    return exact if abs(exact / factor - 1) < 1e-3 else factor


def _gap_at(port: Port, pair: Pair, edits: Edits) -> float:
    values = port.value(pair, port.run(edits, [pair.point]))
    return float((values[0] - values[1]).norm()) if values is not None else math.inf


def _transplanted(suspect: Suspect) -> Iterator[PortChange]:
    port, values = suspect.port, {}
    for path in suspect.alike(suspect.path):
        pair = next((each for each in port.pairs if each.point.module == path and each.point.side == "output"), None)
        if pair is not None and len(pair.others) == 1:
            values[path] = pair
    if suspect.path not in values:
        return
    outputs = {
        path: [functools.partial(_given, port, pair)]
        for path, pair in values.items()
        if pair.others[0] in port.expected.values
    }
    where = starred(suspect.path)
    said = f"the reference's output of {starred(values[suspect.path].others[0].module)} in place of that of {where}"
    yield PortChange("module", where, said, Edits(outputs=outputs))


def _given(port: Port, pair: Pair, value: torch.Tensor) -> torch.Tensor:
    expected = pair.expected(port.expected, value)
    return value if expected is None else expected.to(value.dtype)
