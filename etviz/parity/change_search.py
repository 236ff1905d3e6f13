"""Applies hypotheses on a port's faults until the models agree or none helps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from etviz.errors import UsageError
from etviz.parity.port_changes import PortChange, Suspect, proposals
from etviz.parity.port_result import Proof
from etviz.parity.port_stages import Port, PortStage, first_difference
from etviz.parity.runs import Point

_ROUNDS: Final = 8
_TRIES: Final = 400


def search(port: Port, update: Callable[[], object]) -> tuple[list[Proof], list[Proof], frozenset[Point]]:
    """All applied hypotheses; the kept ones, each on top of the earlier ones; and the points of another cut.

    A change may not make a value differ that agreed. Where each one that fits does, the models cut the same
    computation at another place there: one scales its embedding inside the module, the other behind it.
    """
    proofs: list[Proof] = []
    kept: list[Proof] = []
    cuts = frozenset[Point]()
    for _ in range(_ROUNDS):
        stages = port.stages()
        first = first_difference(stages)
        if first is None:
            break
        suspect = Suspect(port, first, stages)
        agreed = {stage.pair.point for stage in stages if stage.agrees}
        best: Proof | None = None
        spoiling = False
        wide_first = itertools.chain(proposals(suspect), proposals(replace(suspect, wide=False)))
        for count, hypothesis in enumerate(wide_first):
            if count >= _TRIES:
                break
            proof = _applied(port, first, hypothesis)
            update()
            if proof is None:
                continue
            if proof.proved and proof.first is not None and proof.first.pair.point in agreed:
                proof, spoiling = replace(proof, proved=False), True
            proofs.append(proof)
            if proof.proved and (best is None or _rank(port, proof) > _rank(port, best)):
                best = proof
            if best is not None and best.first is None:
                break
        if best is not None:
            kept.append(best)
            port = port.changed(best.hypothesis.edits, best.hypothesis.hidden)
        elif spoiling:
            cuts |= {first.pair.point}
            port = replace(port, pairs=[pair for pair in port.pairs if pair.point != first.pair.point])
        else:
            break
    return proofs, kept, cuts


def _rank(port: Port, proof: Proof) -> float:
    return math.inf if proof.first is None else _place(port, proof.first)


def _place(port: Port, stage: PortStage) -> int:
    return [pair.point for pair in port.pairs].index(stage.pair.point)


def _applied(port: Port, first: PortStage, hypothesis: PortChange) -> Proof | None:
    try:
        stages = [stage for stage in port.stages(hypothesis.edits) if stage.pair.point not in hypothesis.hidden]
    except UsageError:
        return None
    points = [pair.point for pair in port.pairs]
    decisive = next(
        (point for point in points[_place(port, first) :] if point not in hypothesis.hidden), first.pair.point
    )
    if not any(stage.pair.point == decisive for stage in stages):
        return None
    remaining = first_difference(stages)
    moved = remaining is None or _place(port, remaining) > points.index(decisive)
    return Proof(hypothesis, remaining, stages[-1].rel_l2, moved)
