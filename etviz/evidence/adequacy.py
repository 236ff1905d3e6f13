"""What some inputs never reached: ranges, signs, saturation and branches, operator by operator, in the reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import torch
from tqdm.auto import tqdm

from etviz.artifacts.record.etrecord import ETRecord
from etviz.artifacts.record.record_file import read_record
from etviz.artifacts.record.weights import Weights
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.values import flat_values
from etviz.graph.labels import short_operator, source_line
from etviz.graph.quantize_ops import QUANTIZE, conversion
from etviz.pipeline.lower import flatten

if TYPE_CHECKING:
    from etviz.evidence.subject import Subject
    from etviz.graph.ir import Graph, Node

_SIGNS: Final = ("negative", "zero", "positive")
_COVERED: Final = 0.5
"""Share of the calibration's range below which an operator is said to be reached too little."""
COLUMNS: Final = (
    *("operator", "op", "module", "source", "inputs", "min", "max", *_SIGNS, "nonfinite", "saturated"),
    *("calibration_min", "calibration_max", "covered", "beyond", "never"),
)


@dataclass(slots=True)
class _Reach:
    """What the values of one operator were like, over all inputs; shares are of its elements."""

    inputs: int = 0
    elements: int = 0
    low: float = math.inf
    high: float = -math.inf
    negative: int = 0
    zero: int = 0
    nonfinite: int = 0
    saturated: int = 0

    def add(self, value: torch.Tensor, bounds: tuple[float, float] | None) -> None:
        """Take note of a value; `bounds` are the ends of the grid that it was put on."""
        plain = value.detach().double().reshape(-1)
        finite = plain[torch.isfinite(plain)]
        self.elements += plain.numel()
        self.nonfinite += plain.numel() - finite.numel()
        self.negative += int((finite < 0).sum())
        self.zero += int((finite == 0).sum())
        if finite.numel():
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        if bounds is not None:
            self.saturated += int(((finite == bounds[0]) | (finite == bounds[1])).sum())


class _Watching(Evaluator):
    """Evaluates a graph, and takes note of every operator's values and of every branch."""

    def __init__(self, graph: Graph, constants: Mapping[str, torch.Tensor]) -> None:
        super().__init__(graph, constants)
        self.reached: dict[str, _Reach] = {}
        self.nodes: dict[str, Node] = {}
        self.branches: dict[str, set[bool]] = {}
        self._seen: set[str] = set()

    def observe(self, values: Sequence[Any]) -> None:
        """One input."""
        self._seen = set()
        self.state.clear()
        self.run(values)

    def operator(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = super().operator(graph, node, args, kwargs)
        key = f"{graph.name}/{node.name}"
        bounds = None
        if conversion(node.target) == QUANTIZE:
            numbers = [item for item in args if isinstance(item, int) and not isinstance(item, bool)]
            bounds = (numbers[-2], numbers[-1]) if len(numbers) > 1 else None
        for value in flat_values(result):
            if isinstance(value, torch.Tensor) and not value.is_complex() and value.numel():
                reach = self.reached.setdefault(key, _Reach())
                reach.inputs += key not in self._seen
                self._seen.add(key)
                self.nodes[key] = node
                reach.add(value, bounds)
        return result

    def taken(self, graph: Graph, node: Node, predicate: Any) -> Graph:
        branch = super().taken(graph, node, predicate)
        self.branches.setdefault(f"{graph.name}/{node.name}", set()).add(branch is graph.branches(node)[0])
        self.nodes[f"{graph.name}/{node.name}"] = node
        return branch


def adequacy(
    subject: Subject, inputs: Iterable[Sequence[Any]], calibration: Iterable[Sequence[Any]] | None = None
) -> pd.DataFrame:
    """What some inputs reach of a program's reference: of the float model where it is known.

    Parameters
    ----------
    subject
        The program.
    inputs, calibration
        Arguments of each call.
    """
    own = _watch(subject, inputs, "inputs")
    known = _watch(subject, calibration, "calibration") if calibration is not None else None
    rows = [_row(own, known, key) for key in own.reached]
    rows += [_branch(own.nodes[key], taken) for key, taken in own.branches.items() if len(taken) < 2]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _watch(subject: Subject, inputs: Iterable[Sequence[Any]], what: str) -> _Watching:
    if "record" in subject.files:
        record = read_record(subject.files["record"])
        etrecord = ETRecord(subject.files["etrecord"]) if "etrecord" in subject.files else None
        graph = record.references.get(subject.method, record.graphs[subject.method])
        watching = _Watching(graph, Weights(record, subject.files["record"], etrecord))
    else:
        etrecord = ETRecord(subject.files["etrecord"])
        weights = etrecord.edge_weights(subject.method)
        watching = _Watching(etrecord.edge_graph(subject.method), weights)
    for values in tqdm(inputs, desc=what, leave=False, delay=1):
        watching.observe(flatten(tuple(values)))
    return watching


def _row(own: _Watching, known: _Watching | None, key: str) -> dict[str, Any]:
    reach, node = own.reached[key], own.nodes[key]
    positive = reach.elements - reach.nonfinite - reach.negative - reach.zero
    is_grid = conversion(node.target) == QUANTIZE
    row = _about(node) | {"inputs": reach.inputs, "min": reach.low, "max": reach.high}
    shares = (reach.negative, reach.zero, positive, reach.nonfinite)
    row |= {name: count / reach.elements for name, count in zip((*_SIGNS, "nonfinite"), shares, strict=True)}
    row["saturated"] = reach.saturated / reach.elements if is_grid else math.nan
    never = [name for name, count in zip(_SIGNS, shares, strict=False) if not count and name != "zero"]
    if is_grid and not reach.saturated:
        never.append("saturated")
    before = known.reached.get(key) if known is not None else None
    if before is not None and before.high >= before.low:
        width = before.high - before.low
        common = max(0.0, min(reach.high, before.high) - max(reach.low, before.low))
        row |= {"calibration_min": before.low, "calibration_max": before.high}
        row["covered"] = common / width if width else float(reach.low <= before.low <= reach.high)
        row["beyond"] = max(before.low - reach.low, reach.high - before.high, 0.0) / width if width else math.nan
        if row["covered"] < _COVERED:
            never.append(f"{100 * (1 - row['covered']):.0f} % of the calibration's range")
    return row | {"never": ", ".join(never)}


def _branch(node: Node, taken: set[bool]) -> dict[str, Any]:
    missing = "false" if taken == {True} else "true"
    return _about(node) | {"never": f"the {missing} branch"}


def _about(node: Node) -> dict[str, Any]:
    return {
        "operator": node.origin or node.name,
        "op": short_operator(node.target),
        "module": node.module,
        "source": source_line(node.stack),
    }
