"""Files of different trainings of one model: calls, names and shapes agree, weights do not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from etviz.errors import ArtifactError
from etviz.graph.uses import only_moves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etviz.comparison.constants import ComparingConstants
    from etviz.comparison.gap import Gap, Run
    from etviz.loading.paired import Paired

_ADVICE: Final = "give the files of one training: files that were written together"
_FAR: Final = 0.5
"""Relative L2 error from which weights, and values computed from them, are of another training."""
_MOST: Final = 0.5
"""Maximum share of close elements in a weight of another training."""
_MOST_LIKELY: Final = (
    "Every value that weights go into is far off, and no other: the run most likely had other weights than {}. Give "
    "the files of one training."
)


def require_one_training(paired: Paired, runs: Sequence[Run], constants: ComparingConstants | None) -> Iterator[str]:
    """`ArtifactError` for unrelated weights; yields what is only likely."""
    named = paired.artifacts.named
    source = named["etrecord"] if "etrecord" in named else named.get("record", "")
    if constants is not None and constants.unrelated():
        problem = f"its weights differ from those in {named['pte']}: not one is the same, or similar"
        raise ArtifactError(source, problem, _ADVICE)
    telling: _Telling | None = None
    for run in runs:
        gaps = [gap for gap in run.comparison.gaps if gap.introduced is not None and gap.runtime.is_floating_point()]
        if not any(map(_is_far, gaps)):
            continue
        telling = telling or _Telling(paired)
        logged = [gap for gap in gaps if gap.source[0] in telling.moved]
        if logged and all(map(_is_other, logged)):
            problem = f"the run had other weights than {source}: it logged {len(logged)}, and not one is the same"
            raise ArtifactError(named.get("etdump", source), problem, _ADVICE)
        far: dict[bool, list[bool]] = {True: [], False: []}
        for gap in gaps:
            far[telling.is_read_by(gap.source[0])].append(_is_far(gap))
        if len(far[True]) > 1 and all(far[True]) and not any(far[False]):
            yield _MOST_LIKELY.format(source)
            return


class _Telling:
    """The weights with enough values to identify a training; `moved` also names nodes that move their elements."""

    def __init__(self, paired: Paired) -> None:
        from etviz.comparison.constants import tells

        self._graph, weights = paired.reference()
        parts = (self._graph, *self._graph.subgraphs.values())
        constants = [placeholder for part in parts for placeholder in part.inputs if placeholder.kind == "constant"]
        targets = {item.target for item in constants if item.target in weights and tells(weights[item.target])}
        self._nodes = {node.name: node for node in self._graph.walk()}
        self._inside = {part.name for part in parts if any(item.target in targets for item in part.inputs)}
        self.moved = {placeholder.name for placeholder in self._graph.inputs if placeholder.target in targets}
        for node in self._graph.nodes:
            if node.reads() and self.moved.issuperset(node.reads()) and only_moves(node):
                self.moved.add(node.name)

    def is_read_by(self, name: str) -> bool:
        node = self._nodes.get(name)
        if node is None:
            return False
        return not self.moved.isdisjoint(node.reads()) or self._graph.inside(node).name in self._inside


def _is_other(gap: Gap) -> bool:
    """Most elements have other values, not only another order. One wrong channel is a fault."""
    sums = gap.introduced_sums
    moved = sums is not None and math.isclose(sums.rr, sums.qq, rel_tol=1e-9)
    return _is_far(gap) and not moved and gap.introduced is not None and gap.introduced["allclose"] < _MOST


def _is_far(gap: Gap) -> bool:
    return gap.introduced is not None and gap.introduced["rel_l2"] > _FAR
