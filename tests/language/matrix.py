"""Sound language models, each loaded in six ways: every instruction is compared, or has a reason, and none is blamed.

The invariants of each hold.

``python -m tests.language.matrix FOLDER [NAME ...]`` makes the programs and prints the table.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

import etviz
from etviz.errors import EtvizError
from tests.language.programs import RECIPES, Recipe, calls_of, make, model_of

STEPS = 16
WAYS = ("exact", "derived", "handles")


@dataclass(frozen=True)
class Said:
    """What etviz says of one sound program, loaded in one way.

    Attributes
    ----------
    instructions, compared, values
        Rows of `coverage`, those compared by themselves or in a group, and rows of `gaps`.
    reasons
        By reason, the operators of the instructions that are not compared, and their number.
    blamed
        The first divergence, or an error.
    seconds
        Processor time of the load.
    """

    way: str
    given: bool
    instructions: int = 0
    compared: int = 0
    values: int = 0
    reasons: tuple[tuple[str, str, int], ...] = ()
    blamed: str = ""
    verdict: str = ""
    worst: str = ""
    seconds: float = 0.0


def load(folder: Path, way: str, **options: Any) -> etviz.Inspection:
    """Load a run from the record, from `.pte` and ETRecord, or from the ETRecord alone."""
    files: dict[str, Any] = {"etrecord": folder / "etrecord.bin", "debug_buffer": folder / "debug_buffer.bin"}
    if way == "exact":
        files |= {"pte": folder / "model.pte", "record": folder / "model.etviz"}
    elif way == "derived":
        alone = folder / "alone" / "model.pte"
        alone.parent.mkdir(exist_ok=True)
        if not alone.exists():
            alone.write_bytes((folder / "model.pte").read_bytes())
        files |= {"pte": alone}
    return etviz.load(folder / "etdump.etdp", **files, **options)


def judge(folder: Path, way: str, calls: list[Any] | None) -> Said:
    """Load one program in one way."""
    started = time.process_time()
    try:
        found = load(folder, way, inputs=calls)
    except EtvizError as error:
        return Said(way, calls is not None, blamed=f"{type(error).__name__}: {str(error)[:300]}")
    seconds = time.process_time() - started
    coverage, first = found.coverage, found.first_divergence
    rest = coverage[coverage["status"] == "not compared"]
    reasons = rest.groupby(["reason", "op"]).size()
    worst = found.gaps.sort_values("introduced_severity", ascending=False).head(1)
    return Said(
        way,
        calls is not None,
        len(coverage),
        int((coverage["status"] != "not compared").sum()),
        len(found.gaps),
        tuple((str(reason), str(op), int(count)) for (reason, op), count in reasons.items()),
        f"#{first['instruction']} {first['op']}: severity {first['introduced_severity']:.1f}"
        if first is not None
        else "",
        found.summary().splitlines()[0],
        " ".join(f"#{row['instruction']} {row['op']} {row['introduced_severity']:.2f}" for _, row in worst.iterrows()),
        seconds,
    )


def invariants_of(recipe: Recipe, made: Path | None = None) -> etviz.Invariants:
    """What the own runs of a program say of each other; `made` is the folder of one that is lowered already."""

    def driver(ids: Sequence[int], position: int) -> tuple[Any, ...]:
        return torch.tensor([list(ids)]), {"input_pos": torch.tensor([position])}

    prompts = [[3, 10, 17, 24, 31, 38, 45, 52, 59, 66], [9, 2]]
    if made is not None:
        return etviz.invariants(made, prompts, driver=driver)
    partitioner = [XnnpackPartitioner()] if recipe.delegated else None
    return etviz.invariants(model_of(recipe), prompts, driver=driver, partitioner=partitioner)


def main(folder: Path, names: list[str]) -> None:
    """Make the programs, load them, print what is said."""
    etviz.options.look_inside = etviz.options.isolation = "never"
    for name in names or RECIPES:
        own = folder / name
        try:
            if not (own / "etdump.etdp").exists():
                make(RECIPES[name], own, STEPS)
        except Exception as error:  # noqa: BLE001 - a program that can't be made is told
            _say(f"{name}: not made ({type(error).__name__}: {str(error)[:300]})")
            continue
        for way in WAYS:
            for calls in (calls_of(STEPS), None):
                said = judge(own, way, calls)
                _say(
                    f"{name:22} {way:8} {'inputs' if said.given else '-':6} {said.compared}/{said.instructions} "
                    f"{said.values} rows {said.seconds:.1f}s {'BLAMED ' + said.blamed if said.blamed else 'calm'} | "
                    f"worst {said.worst} | {said.verdict}"
                )
                for reason, op, count in said.reasons:
                    _say(f"    {count} × {op}: {reason}")
        found = invariants_of(RECIPES[name])
        _say(f"{name:22} {'invariants hold' if found.holds else 'BLAMED ' + found.summary()}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
