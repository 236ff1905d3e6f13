"""Results of `etviz.parity`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from etviz.parity.port_changes import PortChange
from etviz.parity.port_stages import OUTPUT, Port, PortStage, first_difference
from etviz.parity.runs import Point
from etviz.tensors.metrics import figure

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Proof:
    """A hypothesis that was applied.

    `first` is the first value that differs with it and with those proved before, None if all agree. `residual` is ``‖Δ‖
    / ‖reference‖`` of the last compared value then. `proved` is True if the value that differed first agrees.
    """

    hypothesis: PortChange
    first: PortStage | None
    residual: float
    proved: bool

    def __str__(self) -> str:
        if self.first is None:
            return f"with {self.hypothesis.change} the outputs agree to {self.residual:.1e}"
        return f"with {self.hypothesis.change} the models agree up to {place(self.first)}"


def place(stage: PortStage) -> str:
    point = stage.pair.point
    return "the outputs" if point == OUTPUT else f"the {point.side} of {point.module}"


_CUT: Final = "differs, and what follows agrees: the models cut the same computation at another place"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


class Parity:
    """Two eager models compared, parameter by parameter and module by module. Made by `etviz.parity`."""

    def __init__(self, port: Port, tried: list[Proof], kept: list[Proof], cuts: frozenset[Point] = frozenset()) -> None:
        self._port = port
        self._cuts = cuts
        self._tried = tried
        self._kept = kept
        self._stages = port.stages()

    @cached_property
    def parameters(self) -> pd.DataFrame:
        """A row for each parameter of the model, then one for each of the reference that the model lacks.

        Columns: ``parameter``, ``reference`` (names, joined by " + "), ``relation``, ``detail``, ``also`` (other
        parameters of the reference with the same numbers), ``by`` (``value`` or ``place``), ``shape``.
        """
        import pandas as pd

        rows = []
        for match in self._port.matches.values():
            shape, by = tuple(self._port.tensors[match.name].shape), match.by if match.sources else ""
            names, twins = " + ".join(match.sources), " + ".join(match.twins)
            rows.append((match.name, names, match.relation, match.detail, twins, by, shape))
        for name in self._port.missing:
            shape = tuple(self._port.reference_tensors[name].shape)
            rows.append(("", name, "missing", "no parameter of the model holds it", "", "", shape))
        return pd.DataFrame(rows, columns=["parameter", "reference", "relation", "detail", "also", "by", "shape"])

    @cached_property
    def stages(self) -> pd.DataFrame:
        """A row for each compared value, in the order of the model's run.

        Columns: ``module``, ``side`` (``input``, ``output``; ``result`` is what the model returns), ``call``,
        ``reference`` (the reference's modules), ``shape``, ``rmse`` and ``max_abs`` (in the value's units), ``rel_l2``,
        ``noise`` (RMS that rounding explains, measured), ``severity`` (RMSE over noise) and ``agrees``.
        """
        import pandas as pd

        numbers = ("shape", "rmse", "max_abs", "rel_l2", "noise", "severity", "agrees")
        rows = [
            {
                **stage.pair.point._asdict(),
                "reference": " + ".join(other.module for other in stage.pair.others),
                **{name: getattr(stage, name) for name in numbers},
            }
            for stage in self._stages
        ]
        return pd.DataFrame(rows)

    @property
    def first(self) -> pd.Series[Any] | None:
        """The row of `stages` that differs first and has an effect, or None."""
        first = self._first()
        return None if first is None else self.stages.loc[self._stages.index(first)]

    def _first(self) -> PortStage | None:
        return first_difference([stage for stage in self._stages if stage.pair.point not in self._cuts])

    @property
    def agrees(self) -> bool:
        """True if rounding explains every difference."""
        return self.first is None

    @property
    def proofs(self) -> list[Proof]:
        """The hypotheses that were proved, each on top of those before."""
        return [proof for proof in self._kept if proof.hypothesis.name != "module"]

    @property
    def hypothesis(self) -> Proof | None:
        """The first hypothesis that was proved, or None."""
        return self.proofs[0] if self.proofs else None

    @cached_property
    def tried(self) -> pd.DataFrame:
        """A row for each hypothesis that was applied.

        Columns: ``hypothesis``, ``where``, ``change``, ``first_difference`` (what still differs then), ``residual``
        (relative difference of the last compared value) and ``proved``.
        """
        import pandas as pd

        rows = []
        for proof in self._tried:
            change, first = proof.hypothesis, "" if proof.first is None else place(proof.first)
            rows.append((change.name, change.where, change.change, first, proof.residual, proof.proved))
        return pd.DataFrame(rows, columns=["hypothesis", "where", "change", "first_difference", "residual", "proved"])

    def summary(self) -> str:
        """The verdict, the first value that differs, and the change that puts it right."""
        names = f"{type(self._port.model).__name__} and {type(self._port.reference).__name__}"
        lines = [f"{names}: {self._matched()}"]
        first = self._first()
        compared = f"{len(self._stages)} values compared"
        if first is None:
            apart = [place(stage) for stage in self._stages if not stage.agrees]
            worst = figure(max((stage.severity for stage in self._stages if stage.agrees), default=0.0), 2)
            which = f"all but {len(apart)}" if apart else "all"
            lines.append(f"The models agree: {compared}, {which} within rounding (at most {worst} times the noise).")
            if apart:
                lines.append(f"{_sentence(apart[0])} {_CUT}.")
            return "\n".join(lines)
        point = first.pair.point
        others = " + ".join(other.module or "the model" for other in first.pair.others)
        lines.append(
            f"First difference: {place(first)}, against {others}: "
            f"relative difference {first.rel_l2:.2g}, {figure(first.severity, 2)} times the noise ({compared})."
        )
        if point.side == "input":
            lines.append(f"The values before it agree: it arises in {point.module.rpartition('.')[0] or 'the model'}.")
        lines += [f"{_sentence(place(stage))} {_CUT}." for stage in self._stages if stage.pair.point in self._cuts]
        lines += [f"Proved: {proof}." for proof in self.proofs]
        left = self._kept[-1:]
        if not left or left[0].first is not None or left[0].hypothesis.name == "module":
            tried = ", ".join(dict.fromkeys(proof.hypothesis.name for proof in self._tried)) or "none fits"
            after = self.proofs[-1].first if self.proofs else None
            where = place(after or first)
            lines.append(f"No hypothesis explains {where}; tried: {tried}.")
            lines += [f"Located: {proof}." for proof in left if proof.hypothesis.name == "module"]
        return "\n".join(lines)

    def _matched(self) -> str:
        matches = list(self._port.matches.values())
        by_value = sum(match.by == "value" and bool(match.sources) for match in matches)
        by_place = sum(match.by == "place" for match in matches)
        said = f"{by_value} of {len(matches)} parameters match by value"
        said += f", {by_place} by place" if by_place else ""
        unmatched = [match.name for match in matches if not match.sources]
        said += f"; {len(unmatched)} match nowhere ({', '.join(unmatched[:3])})" if unmatched else ""
        ambiguous = [match for match in matches if match.twins]
        if ambiguous:
            first = ambiguous[0]
            equal = " and ".join(first.sources + first.twins)
            said += f"; {len(ambiguous)} are ambiguous ({first.name} holds the numbers of {equal})"
        missing = self._port.missing
        said += f"; the model lacks {len(missing)} of the reference ({', '.join(missing[:3])})" if missing else ""
        return said + "."

    def __repr__(self) -> str:
        return self.summary()
