"""Which parameters of two models hold the same numbers: equal, transposed, permuted, scaled, offset, fused or split.

Every matrix is taken as rows, every matrix of the reference also as columns. The projection of a row of unit length on
a fixed random vector is its *key*: equal and scaled rows have equal keys. A sorted table of keys finds the rows of any
parameter, in any order and from any parameters; each find is compared element by element.

Constant parameters (norm weights of 1, biases of 0) and those whose numbers occur nowhere are matched by place: in
modules whose other parameters match, in the order of the calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

_TOLERANCE: Final = {torch.float32: 1e-6, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Relative error of a stored number: four roundings, as for scales that were multiplied in."""
_COARSE: Final = 1e-4
"""Tolerance from which keys do not tell rows apart: two of 10,000 random rows then have equal keys."""
_ANGLES: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class Match:
    """A parameter of the model and the numbers of the reference that it holds.

    Attributes
    ----------
    sources
        Names of the reference's parameters, in the order of their first rows.
    relation
        ``equal``, ``transposed``, ``permuted``, ``interleaved``, ``part``, ``fused``, ``differs`` (same place, other
        numbers) or ``unmatched``; with ``scaled``, ``offset`` or ``rounded`` in front.
    by
        ``value`` or ``place``.
    rows, columns
        Places in the concatenated `sources`; None if they stand in order.
    factor, offset
        ``parameter = factor · source + offset``.
    detail
        A phrase for the relation.
    twins
        Other parameters of the reference with the same numbers, so the choice is ambiguous.
    """

    name: str
    sources: tuple[str, ...]
    relation: str
    by: str = "value"
    rows: torch.Tensor | None = None
    columns: torch.Tensor | None = None
    factor: float = 1.0
    offset: float = 0.0
    detail: str = ""
    rounded: bool = False
    twins: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        return self.relation in ("equal", "rounded")

    def put_into(self, value: torch.Tensor, reference: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        stacked = self.expected(reference).clone()
        flat = stacked.T if self.relation.endswith("transposed") else stacked
        held = (value.double() / self.factor - self.offset).to(flat.dtype)
        if self.columns is not None:
            flat[:, self.columns] = held
        else:
            flat[self.rows if self.rows is not None else slice(None)] = held
        sizes = [len(reference[source]) for source in self.sources]
        return dict(zip(self.sources, stacked.split(sizes), strict=True))

    def expected(self, reference: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([reference[source] for source in self.sources])


def match_parameters(
    model: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
    order: Sequence[str] = (),
    reference_order: Sequence[str] = (),
) -> list[Match]:
    """One match for each of the model's floating-point parameters and stored buffers.

    `order` and `reference_order` are paths of modules in the order of their calls.
    """
    table = _Table(reference)
    matched = {name: table.find(name, value) for name, value in model.items()}
    matches = {name: match for name, match in matched.items() if match is not None}
    _biases(model, reference, matches)
    _by_place(model, reference, matches, _sorted(model, order), _sorted(reference, reference_order))
    twins = _twins(reference)
    for name, match in matches.items():
        others = {twin for source in match.sources for twin in twins.get(source, ())} - set(match.sources)
        if others and match.by == "value":
            matches[name] = replace(match, twins=tuple(sorted(others)))
    return [matches.get(name) or Match(name, (), "unmatched") for name in model]


def _twins(reference: Mapping[str, torch.Tensor]) -> dict[str, list[str]]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, value in reference.items():
        if not is_constant(value):
            groups.setdefault((tuple(value.shape), float(value.double().sum())), []).append(name)
    return {
        name: twins
        for group in groups.values()
        for name in group
        if (twins := [other for other in group if _is_twin(reference[name], reference[other])])
    }


def _is_twin(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.data_ptr() != other.data_ptr() and torch.equal(one, other)


def is_constant(value: torch.Tensor) -> bool:
    return value.numel() == 0 or bool((value == value.flatten()[0]).all())


def _sorted(names: Iterable[str], order: Sequence[str]) -> list[str]:
    rank = {path: place for place, path in enumerate(order)}
    return sorted(names, key=lambda name: rank.get(name.rpartition(".")[0], len(rank)))


def _keys(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    wide = rows.double()
    generator = torch.Generator().manual_seed(wide.shape[1])
    along = torch.randn(wide.shape[1], generator=generator, dtype=torch.float64)
    norms = wide.norm(dim=1)
    return (wide @ along).div(norms.clamp_min(1e-300)).abs(), norms


def _matrix(value: torch.Tensor) -> torch.Tensor:
    return value.reshape(1, -1) if value.ndim < 2 else value.reshape(value.shape[0], -1)


class _SortedRows:
    def __init__(self, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> None:
        keys = [_keys(tensor)[0] for tensor in tensors]
        self.names = names
        self.tensors = tensors
        self.owner = torch.cat([torch.full((len(of_tensor),), place) for place, of_tensor in enumerate(keys)])
        self.row = torch.cat([torch.arange(len(of_tensor)) for of_tensor in keys])
        self.keys, order = torch.cat(keys).sort()
        self.owner, self.row = self.owner[order], self.row[order]

    def candidates(self, keys: torch.Tensor, tolerance: float) -> list[int]:
        """Owners of most rows come first, and among equals the first."""
        low = torch.searchsorted(self.keys, keys - tolerance)
        high = torch.searchsorted(self.keys, keys + tolerance)
        votes = Counter[int]()
        for start, stop in zip(low.tolist(), high.tolist(), strict=True):
            votes.update(set(self.owner[start : min(stop, start + 64)].tolist()))
        return sorted(votes, key=lambda owner: (-votes[owner], owner))


class _Table:
    def __init__(self, reference: Mapping[str, torch.Tensor]) -> None:
        self._used = Counter[str]()
        rows: dict[int, dict[str, torch.Tensor]] = {}
        columns: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in reference.items():
            if is_constant(value):
                continue
            rows.setdefault(_matrix(value).shape[1], {})[name] = _matrix(value)
            if value.ndim == 2:
                columns.setdefault(value.shape[0], {})[name] = value.T
        self._rows = {size: _SortedRows(list(part), list(part.values())) for size, part in rows.items()}
        self._columns = {size: _SortedRows(list(part), list(part.values())) for size, part in columns.items()}
        self._vectors = {name: value for name, value in reference.items() if value.ndim == 1 and not is_constant(value)}

    def find(self, name: str, value: torch.Tensor) -> Match | None:
        if is_constant(value):
            return None
        if value.ndim < 2:
            return self._vector(name, value)
        matrix = _matrix(value)
        match = self._assembled(name, matrix, self._rows.get(matrix.shape[1]))
        if match is None and value.ndim == 2:
            across = self._assembled(name, value.T, self._columns.get(value.shape[0]))
            if across is not None and len(across.sources) == 1 and across.rows is not None:
                match = replace(across, relation="permuted", rows=None, columns=across.rows, detail="columns")
            turned = None if match else self._assembled(name, matrix, self._columns.get(matrix.shape[1]))
            if turned is not None:
                match = replace(turned, relation="transposed")
        if match is not None:
            self._used.update(match.sources)
        return match

    def _assembled(self, name: str, matrix: torch.Tensor, side: _SortedRows | None) -> Match | None:
        if side is None:
            return None
        tolerance = max(_TOLERANCE.get(tensor.dtype, 1e-6) for tensor in (matrix, side.tensors[0]))
        keys, norms = _keys(matrix)
        owners = side.candidates(keys, tolerance * 4)
        owners.sort(key=lambda owner: self._used[side.names[owner]])  # among equal tensors, one that is still free
        whole = [owner for owner in owners if side.tensors[owner].shape[0] >= matrix.shape[0]]
        for chosen in [*([owner] for owner in whole), owners]:
            match = _from(name, matrix, keys, norms, side, chosen, tolerance)
            if match is not None:
                return match
        return None

    def _vector(self, name: str, value: torch.Tensor) -> Match | None:
        wide, best = value.double(), None
        for source, other in sorted(self._vectors.items(), key=lambda pair: self._used[pair[0]]):
            if other.shape != value.shape:
                continue
            tolerance = max(_TOLERANCE.get(tensor.dtype, 1e-6) for tensor in (value, other))
            match = _related(name, source, wide, other.double(), tolerance)
            if match is not None and (best is None or _RANK[match.relation] < _RANK[best.relation]):
                best = match
                if best.relation == "equal":
                    break
        if best is not None:
            self._used.update(best.sources)
        return best


_RANK: Final = {"equal": 0, "rounded": 1, "offset": 2, "scaled": 3, "permuted": 4, "interleaved": 4}


def _related(name: str, source: str, value: torch.Tensor, other: torch.Tensor, tolerance: float) -> Match | None:
    if torch.equal(value, other):
        return Match(name, (source,), "equal")
    norm = float(other.norm())
    if float((value - other).norm()) <= tolerance * norm:
        return Match(name, (source,), "rounded", detail="equal but for rounding", rounded=True)
    shift = float((value - other).mean())
    if float((value - other - shift).norm()) <= tolerance * (norm + float(value.norm())) and value.numel() > 2:
        return Match(name, (source,), "offset", offset=shift, detail=f"larger by {shift:.6g}")
    factor = float(value @ other) / norm**2
    if factor and float((value - factor * other).norm()) <= tolerance * float(value.norm()) and value.numel() > 2:
        return Match(name, (source,), "scaled", factor=factor, detail=f"× {factor:.6g}")
    sorted_value, place = value.sort()
    sorted_other, origin = other.sort()
    if torch.equal(sorted_value, sorted_other) and len(value.unique()) > len(value) // 2:
        rows = torch.empty_like(place)
        rows[place] = origin
        relation, detail = order_of(rows)
        return Match(name, (source,), relation, rows=rows, detail=detail)
    return None


def _from(
    name: str,
    matrix: torch.Tensor,
    keys: torch.Tensor,
    norms: torch.Tensor,
    side: _SortedRows,
    owners: Sequence[int],
    tolerance: float,
) -> Match | None:
    places = _by_angle(matrix, side, owners) if tolerance > _COARSE else _by_key(keys, side, owners, tolerance)
    if places is None:
        return None
    owner, row = places
    used = [int(each) for each in dict.fromkeys(owner.tolist())]
    starts = {each: sum(len(side.tensors[item]) for item in used[:at]) for at, each in enumerate(used)}
    stacked = torch.cat([side.tensors[each] for each in used])
    rows = row + torch.tensor([starts[each] for each in owner.tolist()])
    expected = stacked[rows].double()
    factor = float((matrix.double() * expected).sum() / expected.square().sum())
    if float((matrix.double() - factor * expected).norm()) > tolerance * float(norms.norm()):
        return None
    relation, detail = order_of(rows, len(stacked))
    if len(used) > 1:
        relation, detail = "fused", f"of {len(used)} parameters" + (f", {detail}" if relation != "equal" else "")
    factor = factor if abs(factor - 1) > tolerance else 1.0
    rounded = not torch.equal(matrix.double(), factor * expected)
    if factor != 1:
        relation = "scaled" if relation == "equal" else f"scaled {relation}"
        detail = f"× {factor:.6g}" + (f", {detail}" if detail else "")
    elif relation == "equal" and rounded:
        relation, detail = "rounded", "equal but for rounding"
    ordered = len(rows) == len(stacked) and torch.equal(rows, torch.arange(len(rows)))
    return Match(
        name,
        tuple(str(side.names[each]) for each in used),
        relation,
        rows=None if ordered else rows,
        factor=factor,
        detail=detail,
        rounded=rounded,
    )


def _by_key(
    keys: torch.Tensor, side: _SortedRows, owners: Sequence[int], tolerance: float
) -> tuple[torch.Tensor, torch.Tensor] | None:
    known = torch.isin(side.owner, torch.tensor(owners))
    table, owner, row = side.keys[known], side.owner[known], side.row[known]
    if not len(table):
        return None
    places, gaps = _nearest(table, keys)
    if bool((gaps > tolerance * 4).any()):
        return None
    order = _straightened(table, owner, row, places, keys, tolerance * 4)
    return owner[order], row[order]


def _by_angle(
    matrix: torch.Tensor, side: _SortedRows, owners: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """As `_by_key`, by the smallest angle: keys of 16-bit numbers are too coarse."""
    parts = [side.tensors[each].double() for each in owners]
    if not parts or len(matrix) * sum(map(len, parts)) > _ANGLES:
        same = [each for each in owners if side.tensors[each].shape == matrix.shape]
        return (torch.full((len(matrix),), same[0]), torch.arange(len(matrix))) if same else None
    unit = torch.nn.functional.normalize(torch.cat(parts), dim=1)
    best = (torch.nn.functional.normalize(matrix.double(), dim=1) @ unit.T).argmax(1)
    owner = torch.cat([torch.full((len(part),), each) for each, part in zip(owners, parts, strict=True)])
    row = torch.cat([torch.arange(len(part)) for part in parts])
    return owner[best], row[best]


def _nearest(table: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    right = torch.searchsorted(table, keys).clamp(max=len(table) - 1)
    left = (right - 1).clamp(min=0)
    nearer = (table[left] - keys).abs() <= (table[right] - keys).abs()
    places = torch.where(nearer, left, right)
    return places, (table[places] - keys).abs()


def _straightened(
    table: torch.Tensor, owner: torch.Tensor, row: torch.Tensor, places: torch.Tensor, keys: torch.Tensor, gap: float
) -> torch.Tensor:
    chosen = places.clone()
    low = torch.searchsorted(table, keys - gap)
    high = torch.searchsorted(table, keys + gap)
    for at in torch.nonzero(high - low > 1).flatten().tolist():
        options = range(int(low[at]), min(int(high[at]), int(low[at]) + 64))
        if at and chosen[at - 1] >= 0:
            before = int(chosen[at - 1])
            wanted = (int(owner[before]), int(row[before]) + 1)
        else:
            wanted = (int(owner[places[at]]), at)
        exact = [option for option in options if (int(owner[option]), int(row[option])) == wanted]
        chosen[at] = exact[0] if exact else chosen[at]
    return chosen


def order_of(rows: torch.Tensor, whole: int | None = None) -> tuple[str, str]:
    """The relation and a phrase for it.

    Examples
    --------
    >>> import torch
    >>> order_of(torch.tensor([0, 2, 1, 3, 4, 6, 5, 7]))
    ('interleaved', 'halves of 4 interleaved')
    """
    count = len(rows)
    whole = count if whole is None else whole
    steps = rows[1:] - rows[:-1]
    if bool((steps == 1).all()):
        part = count != whole
        return ("part", f"rows {int(rows[0])} to {int(rows[-1])} of {whole}") if part else ("equal", "")
    if count == whole and len(rows.unique()) == count:
        for size in range(2, count + 1, 2):
            if count % size:
                continue
            halves = interleaving(count, size)
            if torch.equal(rows, halves):
                return "interleaved", f"halves of {size} interleaved"
            if torch.equal(rows, halves.argsort()):
                return "interleaved", f"pairs of {size} separated into halves"
        for size in (128, 96, 80, 64, 48, 32, 16, 8, 4, 2):
            if count % size == 0 and torch.equal(rows.view(-1, size), rows[::size, None] + torch.arange(size)):
                return "permuted", f"blocks of {size} in another order"
    return "permuted", "rows in another order"


def interleaving(count: int, size: int) -> torch.Tensor:
    """Pairs of the halves of each block: 0, size/2, 1, size/2 + 1 and so on."""
    return torch.arange(count).view(-1, 2, size // 2).transpose(1, 2).flatten()


def _biases(
    model: Mapping[str, torch.Tensor], reference: Mapping[str, torch.Tensor], matches: dict[str, Match]
) -> None:
    for name, value in model.items():
        owner, _, last = name.rpartition(".")
        if value.ndim != 1 or last == "weight":
            continue
        weight = matches.get(f"{owner}.weight")
        if weight is None or weight.by != "value":
            continue
        sources = tuple(f"{source.rpartition('.')[0]}.{last}" for source in weight.sources)
        if any(source not in reference for source in sources):
            continue
        stacked = torch.cat([reference[source] for source in sources])
        rows = weight.rows if weight.rows is not None else torch.arange(len(stacked))
        tolerance = max(_TOLERANCE.get(tensor.dtype, 1e-6) for tensor in (value, stacked))
        fits = len(rows) == len(value) and int(rows.max()) < len(stacked)
        if not fits:
            continue
        gap = float((value.double() - weight.factor * stacked[rows].double()).norm())
        if gap <= tolerance * float(stacked.double().norm()):
            relation = weight.relation if weight.relation != "rounded" or gap else "equal"
            matches[name] = replace(weight, name=name, sources=sources, relation=relation, columns=None)


def _by_place(
    model: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
    matches: dict[str, Match],
    names: Sequence[str],
    reference_names: Sequence[str],
) -> None:
    taken = {source for match in matches.values() for source in match.sources}
    free = [name for name in reference_names if name not in taken]
    waiting = [name for name in names if name not in matches]
    pairs = corresponding(list(model), list(reference), matches)
    for path, other in sorted(pairs.items(), key=lambda pair: -pair[0].count(".") if pair[0] else 1):
        mine = [name for name in waiting if _within(name, path)]
        theirs = [name for name in free if _within(name, other)]
        for kind in sorted({(tuple(model[name].shape), name.rpartition(".")[2]) for name in mine}):
            here = [name for name in mine if (tuple(model[name].shape), name.rpartition(".")[2]) == kind]
            there = [name for name in theirs if (tuple(reference[name].shape), name.rpartition(".")[2]) == kind]
            if len(here) != len(there):
                continue
            for name, source in zip(here, there, strict=True):
                same = torch.equal(model[name].double(), reference[source].double())
                offset = float((model[name].double() - reference[source].double()).mean())
                shifted = not same and is_constant(model[name]) and is_constant(reference[source])
                relation = "equal" if same else "offset" if shifted else "differs"
                detail = f"larger by {offset:.6g}" if shifted else "" if same else "same place, other numbers"
                matches[name] = Match(
                    name, (source,), relation, "place", offset=offset if shifted else 0.0, detail=detail
                )
                waiting.remove(name)
                free.remove(source)


def _within(name: str, path: str) -> bool:
    return not path or name.startswith(path + ".")


def corresponding(model: Sequence[str], reference: Sequence[str], matches: Mapping[str, Match]) -> dict[str, str]:
    """Modules of the model and the smallest modules of the reference that hold all their matched parameters.

    Each holds the other's parameters and no others; the root is always a pair.
    """
    users: dict[str, set[str]] = {}
    for match in matches.values():
        for source in match.sources:
            users.setdefault(source, set()).add(match.name)
    paths = {prefix for name in model for prefix in _prefixes(name)}
    partners: dict[str, str] = {}
    for path in paths:
        sources = {
            source for name in model if _within(name, path) and name in matches for source in matches[name].sources
        }
        if not sources:
            continue
        other = _common(sources)
        back = {user for name in reference if _within(name, other) for user in users.get(name, ())}
        if all(_within(user, path) for user in back):
            partners[path] = other
    partners[""] = ""
    return partners


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")[:-1]
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _common(names: Iterable[str]) -> str:
    parts = [name.split(".")[:-1] for name in names]
    shared = []
    for each in zip(*parts, strict=False):
        if len(set(each)) > 1:
            break
        shared.append(each[0])
    return ".".join(shared)
