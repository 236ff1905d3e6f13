"""Decides which operators are at fault, for verdict, diagnosis, gate and views.

A row is at fault if its operator adds more error than the precision of its value explains (`Gap.level`), and another
operator reads the value. A row at fault in a faithful zoom takes its delegate's place, even if the delegate as a whole
is below the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from etviz.analysis.rows import Call, Located, Rows
from etviz.comparison.gap import NOT_COMPARED, Gap, shared_with
from etviz.comparison.logged_twice import LoggedTwice
from etviz.errors import FileChangedError
from etviz.graph.ir import OBSERVED, Graph, Ref
from etviz.graph.labels import describe_row
from etviz.graph.uses import gives_number

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.tables import Tables


@dataclass(frozen=True, slots=True, eq=False)
class Culprit:
    """A row at fault; `about` is its gap row, in which an inner row stands at the instruction of its delegate call.

    `sharing` has the rows that add up to its share of the output's error: all of the call for an inner row.
    """

    row: int
    place: Located
    about: pd.Series
    outer: int
    name: str
    sharing: frozenset[int]

    @property
    def gap(self) -> Gap:
        return self.place.gap

    @property
    def run(self) -> int:
        inside = self.place.inside
        return inside[0] if inside is not None else self.gap.run

    @property
    def instruction(self) -> int:
        return int(self.about["instruction"])

    @property
    def operator(self) -> tuple[int, str]:
        return self.instruction, self.gap.node.name

    @property
    def is_inner(self) -> bool:
        return self.place.inside is not None

    @property
    def level(self) -> str:
        return self.gap.level

    @property
    def severity(self) -> float:
        severity = self.gap.introduced["severity"] if self.gap.introduced is not None else math.inf
        return math.inf if self.gap.introduced_non_finite or math.isnan(severity) else severity

    @property
    def named(self) -> str:
        source = self.about["source"]
        return f"{self.name} ({source})" if source else self.name

    @property
    def shared(self) -> str:
        return shared_with(str(self.about["reason"]))


class OtherValue(NamedTuple):
    """What an instruction wrote was another value when it was read; `row` is the instruction's, -1 without one."""

    row: int
    place: str
    writer: str

    def __str__(self) -> str:
        return f"{self.place} is not what {self.writer} wrote"


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Who is at fault.

    `run` is the execution with the worst outputs, or the culprit's if nothing diverges up to the worst one. `skipped`
    names an instruction that was not compared and precedes the first wrong value; `overwritten` is known if no
    operator is at fault. If the executions are calls `in_turn`, the culprit is in the first one with a fault, and an
    operator's faults in all of them belong together.
    """

    run: int
    culprit: Culprit | None
    culprits: tuple[Culprit, ...]
    skipped: str
    overwritten: OtherValue | None = None
    in_turn: bool = False

    def operators(self) -> list[list[Culprit]]:
        """By operator; the worst of `run` first, if there."""
        groups: dict[tuple[int, str], list[Culprit]] = {}
        for culprit in self.culprits:
            groups.setdefault(culprit.operator, []).append(culprit)
        return [sorted(group, key=lambda item: (item.run != self.run, -item.severity)) for group in groups.values()]

    def others(self, culprit: Culprit) -> list[Culprit]:
        """Not those that first fail in later calls."""
        return [
            group[0]
            for group in self.operators()
            if group[0].instruction != culprit.instruction
            and any(item.run == self.run or (self.in_turn and item.run < self.run) for item in group)
        ]

    def of_operator(self, culprit: Culprit) -> list[Culprit]:
        """In unzoomed calls, its delegate's rows."""
        return [
            other
            for other in self.culprits
            if other.operator == culprit.operator
            or (other.instruction == culprit.instruction and (other.is_inner is not culprit.is_inner))
        ]

    def beside(self, culprit: Culprit) -> list[Culprit]:
        return [other for other in self.of_operator(culprit) if self.in_turn or other.run == culprit.run]


def decide(rows: Rows, faithful: Mapping[Call, bool]) -> Decision:
    """`faithful` says of each zoomed delegate call whether its zoom is faithful to the run."""
    culprits = tuple(_culprits(rows, {call: rows.inside[call] for call, true in faithful.items() if true}))
    tables = rows.tables
    worst = tables.worst_run
    in_turn, culprit = tables.compared.in_turn, next((item for item in culprits if item.run == worst), None)
    if culprits and (in_turn or culprit is None):
        culprit = culprits[0]
        worst = max(worst, culprit.run) if in_turn else culprit.run
    overwritten = _overwritten(tables, worst) if culprit is None else None
    return Decision(worst, culprit, culprits, _skipped(tables, worst, culprit), overwritten, in_turn)


def run_label(tables: Tables, run: int) -> str:
    runs = tables.compared.runs
    return f"run {run}" if len(runs) > 1 else ""


def _culprits(rows: Rows, insides: Mapping[Call, Tables]) -> Iterator[Culprit]:
    tables = rows.tables
    firsts = {call: first for first, call, _ in rows.parts() if call is not None}
    seen: set[Call] = set()
    calls: dict[Call, set[int]] = {}
    for row, gap in enumerate(tables.gaps):
        calls.setdefault((gap.run, gap.instruction), set()).add(row)
    for row in tables.program_order:
        gap = tables.gaps[row]
        call = gap.run, gap.instruction
        inner = insides.get(call)
        within = [at for at in inner.program_order if _is_at_fault(inner, at)] if inner is not None else []
        if not within and not _is_at_fault(tables, row):
            continue
        about, label = tables.rows.loc[row], run_label(tables, gap.run)
        name = describe_row(about)
        if within and inner is not None and call not in seen:
            seen.add(call)
            placed = rows.placed(call, inner)
            for at in within:
                address = name.split(" ", 1)[0]
                full = ", ".join(filter(None, (f"{describe_row(placed.iloc[at])} inside {address}", label)))
                number = firsts[call] + at
                place, told = Located(call, inner, at, number), placed.iloc[at].rename(number)
                yield Culprit(number, place, told, row, full, frozenset(calls[call]))
        elif not within:
            full = ", ".join(filter(None, (name, label)))
            yield Culprit(row, Located(None, tables, row, row), about.drop("stack"), row, full, frozenset((row,)))


def _is_at_fault(tables: Tables, row: int) -> bool:
    return tables.gaps[row].level in ("warn", "bad") and row not in tables.unused


def _skipped(tables: Tables, run: int, culprit: Culprit | None) -> str:
    run = run if culprit is None else culprit.run
    if not len(tables) or run >= len(tables.compared.runs):
        return ""
    wrong = culprit.instruction if culprit is not None else tables.first_wrong(run)
    block = tables.compared.runs[run].event_block
    coverage = tables.coverage
    missing = coverage[(coverage["event_block"] == block) & (coverage["status"] == NOT_COMPARED)]
    if missing.empty:
        return ""
    graph = tables.graph
    if wrong is not None:
        before = _ancestors(graph, {node.name for node in graph.nodes if node.instruction == int(wrong)})
    else:
        before = _before_wrong_outputs(tables, block, missing["instruction"])
    told = culprit.shared if culprit is not None else ""
    valueless = (node for node in graph.nodes if gives_number(node) or node.kernel.startswith("executorch_prim::"))
    before -= {node.instruction for node in valueless}
    for _, row in missing.sort_values("instruction").iterrows():
        number = int(row["instruction"])
        if number in before and f"instruction {number} " not in told:
            return f"{describe_row(row)} was not compared ({row['reason']})"
    return ""


def _overwritten(tables: Tables, run: int) -> OtherValue | None:
    """Of executions whose outputs are wrong; the files are read for it."""
    replay, outputs = tables.compared.replay, tables.outputs
    if replay is None or run >= len(tables.compared.runs):
        return None
    block = tables.compared.runs[run].event_block
    if not (outputs["matches"][outputs["event_block"] == block].astype(float) == 0.0).any():
        return None
    try:
        found = LoggedTwice(tables.graph).overwritten(replay.executions[run].log)
    except FileChangedError:  # what was read before is still said
        return None
    if found is None:
        return None
    coverage = tables.coverage[tables.coverage["event_block"] == block].set_index("instruction", drop=False)
    writer, reader = (
        describe_row(coverage.loc[at]) if at in coverage.index else f"instruction {at}"
        for at in (found.instruction, found.reader)
    )
    given = f"output {found.place}" if found.reader < 0 else f"input {found.place} of {reader}"
    rows = [at for at, gap in enumerate(tables.gaps) if (gap.run, gap.instruction) == (run, found.instruction)]
    return OtherValue(rows[0] if rows else -1, given, writer)


def _before_wrong_outputs(tables: Tables, block: int, missing: Iterable[int]) -> set[int]:
    """Those of `missing` whose place in the graph is not known are among them."""
    graph, outputs = tables.graph, tables.outputs
    wrong = outputs["output"][(outputs["event_block"] == block) & (outputs["matches"].astype(float) == 0.0)]
    if wrong.empty:
        return set()
    if not graph.outputs:
        return set(missing)
    names = {out.name for out in (graph.outputs[at] for at in wrong) if isinstance(out, Ref)}
    ends = {node.instruction for node in graph.nodes if node.name in names}
    placed = {node.instruction for node in graph.nodes if node.target != OBSERVED}
    return (set(missing) - placed) | _ancestors(graph, names) | ends


def _ancestors(graph: Graph, names: Collection[str]) -> set[int]:
    nodes = {node.name: node for node in graph.nodes}
    pending = [nodes[name] for name in names if name in nodes]
    ancestors: set[str] = set()
    while pending:
        for name in pending.pop().reads():
            if name in nodes and name not in ancestors:
                ancestors.add(name)
                pending.append(nodes[name])
    return {nodes[name].instruction for name in ancestors if nodes[name].instruction >= 0}
