"""Holds what etviz says of a program against what is known of it: a correct one has no culprit, a plant has one.

A process that has lowered a program has executorch's operators, so it sees less go wrong than one that only loads
files. `JudgeProcess` is such a one: all that it imports is etviz.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

import etviz
from etviz.inspection import Inside
from tests.zoo.made import Made

BAD = "bad"
"""Level of the verdict that a program differs by more than its precision explains."""


@dataclass(frozen=True)
class Said:
    """What etviz says of one program, loaded in one way; numbers are NaN and texts empty where it says nothing.

    Attributes
    ----------
    level, verdict
        Of `Analysis.analysis.digest`; the level is ``error`` where an exception ended it, and the verdict its text.
    first, first_severity
        The first divergence.
    worst, worst_severity
        The row with the largest introduced severity.
    noise
        What etviz measured there as the noise, in the tensor's units, if it does.
    compared, instructions, values
        Instructions that were compared, by themselves or in a group, all of them, and rows.
    seconds
        CPU time to load it.
    """

    level: str
    verdict: str
    first: str = ""
    first_severity: float = math.nan
    worst: str = ""
    worst_severity: float = math.nan
    noise: float = math.nan
    compared: int = 0
    instructions: int = 0
    values: int = 0
    seconds: float = math.nan

    @property
    def calm(self) -> bool:
        """Whether it names no culprit and does not call the program broken, as it must be for a correct one."""
        return self.level not in (BAD, "error") and not self.first


@dataclass(frozen=True)
class Named:
    """How etviz does on a fault, loaded in one way.

    Attributes
    ----------
    rank
        Place of the faulty operator by introduced severity, counted in instructions; None where it has no introduced
        gap.
    severity
        Its introduced severity.
    first
        Whether first divergence names it.
    share, total
        What attribution gives it, and the sum of all shares; NaN where attribution says that it can't.
    inside
        Of a fault inside of a delegate: ``named`` by zoom; ``unfaithful`` where zoom says that it is not what ran,
        ``refused`` where there is no zoom, else ``missed``.
    problem
        What attribution and zoom said instead of an answer.
    """

    said: Said
    rank: int | None
    severity: float
    first: bool
    share: float = math.nan
    total: float = math.nan
    inside: str = ""
    problem: str = ""

    @property
    def outcome(self) -> str:
        """What happened.

        ``found``: it is first by introduced severity, and the first divergence. ``not known``: etviz has no introduced
        gap of it, and names nothing else. ``another``: first divergence is another operator. ``missed``: it has an
        introduced gap and nothing is named, or it is named and stands behind others.
        """
        if self.first:
            return "found" if self.rank == 1 else "missed"
        if self.said.first:
            return "another"
        return "not known" if self.rank is None and self.said.level != "error" else "missed"


def judge(made: Made, way: str) -> Said:
    """What is said of a correct program."""
    return _opened(made, way)[0]


def judge_fault(made: Made, way: str, *, deep: bool = True) -> Named:
    """How a faulty operator is found; `deep` asks attribution and zoom too.

    Where several are faulty it is the best of them that is ranked, and the first that has to be first divergence.
    """
    said, inspection = _opened(made, way)
    if inspection is None:
        return Named(said, None, math.nan, first=False)
    culprits = [culprit["instruction"] for culprit in made.facts["culprits"]]
    gaps = inspection.gaps
    own = gaps[_speaks(inspection, culprits)]
    earliest = gaps[_speaks(inspection, culprits[:1])]
    severity = _severity(own)
    others = gaps[~gaps["instruction"].isin(own["instruction"])].groupby("instruction")["introduced_severity"].max()
    first = inspection.first_divergence
    named = Named(
        said,
        None if math.isnan(severity) else 1 + int((others > severity).sum()),
        severity,
        first=first is not None and first["instruction"] in set(earliest["instruction"]),
    )
    return _deepened(named, inspection, own, made) if deep else named


def _speaks(inspection: etviz.Inspection, instructions: list[int]) -> pd.Series:
    """Which gap rows hold the error of instructions: their own, and those of a group that they are in."""
    wanted = {*instructions, *(_grouped_with(inspection, instruction) for instruction in instructions)}
    gaps = inspection.gaps
    return pd.Series([bool(spoken_for(row) & wanted) for _, row in gaps.iterrows()], index=gaps.index, dtype=bool)


def spoken_for(row: Any) -> set[int]:
    """Instructions whose error a gap row holds: its own, and those that it is said to hold together with it."""
    together = re.search(r"introduced (?:by|together with) instructions? ([\d, andto]+)", str(row["reason"]))
    runs = re.findall(r"(\d+)(?: to (\d+))?", together[1]) if together else ()
    others = {at for first, last in runs for at in range(int(first), int(last or first) + 1)}
    return {int(row["instruction"]), *others}


def _grouped_with(inspection: etviz.Inspection, instruction: int) -> int | None:
    """The instruction whose row an instruction that has none of its own is compared in."""
    coverage = inspection.coverage.set_index("instruction")
    status, reason = coverage.loc[instruction, ["status", "reason"]]
    found = re.search(r"grouped with instruction (\d+)", str(reason))
    return int(found[1]) if status == "grouped" and found else None


def _severity(rows: pd.DataFrame) -> float:
    """The largest introduced severity; infinite where NaN or Inf is of a row's own making."""
    if ((rows["non_finite"] == "created") & rows["introduced_severity"].isna()).any():
        return math.inf
    return float(rows["introduced_severity"].max()) if len(rows) else math.nan


def _opened(made: Made, way: str) -> tuple[Said, etviz.Inspection | None]:
    started = time.process_time()
    try:
        inspection = made.load(way)
        seconds = time.process_time() - started
        return _said(inspection, seconds), inspection
    except Exception as error:  # noqa: BLE001 - whatever ends it is a finding, and the others are still to be judged
        return Said("error", f"{type(error).__name__}: {error}"), None


def _said(inspection: etviz.Inspection, seconds: float) -> Said:
    gaps, coverage, digest = inspection.gaps, inspection.coverage, inspection.analysis.digest
    first, worst = inspection.first_divergence, inspection.worst(1)
    row = worst.iloc[0] if len(worst) else None
    compared = int((coverage["status"] != "not compared").sum())
    return Said(
        digest.level,
        digest.verdict,
        first=describe(first) if first is not None else "",
        first_severity=float(first["introduced_severity"]) if first is not None else math.nan,
        worst=describe(row) if row is not None else "",
        worst_severity=float(row["introduced_severity"]) if row is not None else math.nan,
        noise=float(row["introduced_noise"]) if row is not None and "introduced_noise" in row else math.nan,
        compared=compared,
        instructions=len(coverage),
        values=len(gaps),
        seconds=seconds,
    )


def describe(row: pd.Series) -> str:
    """A gap row for people."""
    op = row["op"].rpartition("::")[2].rpartition(".")[0] if row["kind"] == "kernel" else row["kind"]
    return f"#{row['instruction']} {op} ({textwrap.shorten(row['reference_ops'], 32, placeholder=' …')})"


def _deepened(named: Named, inspection: etviz.Inspection, own: pd.DataFrame, made: Made) -> Named:
    changes: dict[str, Any] = {}
    problems = []
    try:
        shares = inspection.attribution()
        changes["share"] = float(shares.loc[shares["instruction"].isin(own["instruction"]), "share"].sum())
        changes["total"] = float(shares.attrs["sum"])
    except Exception as error:  # noqa: BLE001 - as above
        problems.append(f"attribution: {type(error).__name__}: {error}")
    culprit = made.facts["culprits"][0]
    if culprit["op"] == "delegate" and len(own):
        try:
            changes["inside"] = look_inside(inspection.zoom(own.iloc[0]), made, culprit)
        except Exception as error:  # noqa: BLE001 - as above
            changes["inside"] = "refused"
            problems.append(f"zoom: {type(error).__name__}: {error}")
    return replace(named, **changes, problem="; ".join(problems))


def look_inside(zoomed: Inside, made: Made, culprit: dict[str, Any]) -> str:
    """Whether zoom names a changed node, or the first behind it that has a row: worst row, and first divergence."""
    worst, first = zoomed.worst(1), zoomed.first_divergence
    rows = [set(_names(ops)) for ops in zoomed.gaps["reference_ops"]]
    for generation in _downstream(made, culprit):
        names = {name for node in generation for name in node["origins"]}
        if any(names & row for row in rows):
            if first is not None and all(names & set(_names(row["reference_ops"])) for row in (worst.iloc[0], first)):
                return "named"
            break
    return "missed" if zoomed.faithful else "unfaithful"


def _downstream(made: Made, culprit: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """The changed nodes of a delegate, those that read them, and so on."""
    call = next(c for c in made.facts["calls"] if c["instruction"] == culprit["instruction"])
    nodes = {node["name"]: node for node in call["inside"]}
    generation, seen = list(culprit["inside"]), set(culprit["inside"])
    while generation:
        yield [nodes[name] for name in generation]
        readers = [user for name in generation for user in nodes[name]["users"] if user in nodes]
        generation = [name for name in dict.fromkeys(readers) if name not in seen]
        seen |= set(generation)


def _names(ops: str) -> list[str]:
    return re.findall(r"\w+", ops)


class JudgeProcess:
    """Judges in a process of its own, which stays."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.zoo.judge"]
        environment = os.environ | {"TQDM_DISABLE": "1", "ETVIZ_ISOLATION": "never"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
            env=environment,
        )

    def judge(self, made: Made, way: str) -> Said:
        """See `judge`."""
        return Said(**self._ask(made, way, "correct"))

    def judge_fault(self, made: Made, way: str, *, deep: bool = True) -> Named:
        """See `judge_fault`."""
        fields = self._ask(made, way, "deep" if deep else "fault")
        return Named(**{**fields, "said": Said(**fields["said"])})

    def close(self) -> None:
        """End the process."""
        with self._process:
            pass

    def _ask(self, made: Made, way: str, what: str) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([made.name, str(made.folder), way, what]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"judging {made.name} ended the process, with status {self._process.wait()}")
        return json.loads(answer)


def main() -> None:
    """Answer the questions of a `JudgeProcess`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        name, folder, way, what = json.loads(line)
        made = Made(name, Path(folder))
        said = judge(made, way) if what == "correct" else judge_fault(made, way, deep=what == "deep")
        print(json.dumps(asdict(said)), file=answers, flush=True)


if __name__ == "__main__":
    main()
