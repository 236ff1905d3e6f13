"""A reference with user functions in place of some operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from etviz.comparison.gap import Gap, Run
from etviz.errors import UsageError
from etviz.evaluation.own_operators import OwnFunctions
from etviz.explain.stages.against import without_reference
from etviz.explain.stages.stages import NO_PARTNER
from etviz.graph.ir import Graph
from etviz.graph.labels import owners_of
from etviz.graph.uses import operators

_LISTED: Final = 8


def own_functions(graph: Graph, functions: Mapping[str, Callable[..., Any]]) -> OwnFunctions:
    if not isinstance(functions, Mapping) or not functions:
        kind = type(functions).__name__
        raise UsageError(f"reference must be the name of a stage or functions by operator, found {kind}")
    known = sorted({target for targets in _targets(graph).values() for target in targets if "." in target})
    for name, function in functions.items():
        if not callable(function):
            raise UsageError(f"reference[{name!r}] must be a function, found {type(function).__name__}")
        if name not in known and name not in {target.rpartition(".")[0] for target in known}:
            listed = ", ".join(known[:_LISTED])
            raise UsageError(f"no operator of the program is called {name!r}; it has {listed} and others")
    return OwnFunctions(functions)


def without_partner(graph: Graph, runs: Sequence[Run], problems: Mapping[str, str]) -> tuple[Run, ...]:
    if not problems:
        return tuple(runs)
    changed, targets = [], _targets(graph)
    for run in runs:
        gaps = [_failed(gap, targets, problems) for gap in run.comparison.gaps]
        changed.append(run._replace(comparison=replace(run.comparison, gaps=gaps)))
    return tuple(changed)


def problem_notes(problems: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{text[0].upper()}{text[1:]}; the original operator was used instead." for text in problems.values())


def _failed(gap: Gap, targets: Mapping[int, Sequence[str]], problems: Mapping[str, str]) -> Gap:
    text = next((problems[target] for target in targets.get(gap.instruction, ()) if target in problems), "")
    if not text:
        return gap
    return replace(without_reference(gap, f"{NO_PARTNER}: {text}"), introduced=None)


def _targets(graph: Graph) -> dict[int, list[str]]:
    targets: dict[int, list[str]] = {}
    owners = owners_of(graph)
    for node in graph.walk():
        if node.instruction >= 0:
            owner = owners.get(node.instruction, graph)
            inside = operators(owner.inside(node).nodes) if node.target == "delegate" else [node]
            targets[node.instruction] = [operator.target for operator in inside]
    return targets
