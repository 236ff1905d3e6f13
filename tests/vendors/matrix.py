"""Correct programs by vendor's recipe: what is compared inside, in what time, and whether anything is blamed.

``python -m tests.vendors.matrix FOLDER RECIPE [MODEL ...]`` makes the programs, and prints a line of JSON for each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

import etviz
from benchmarks.mobilenet import mobilenet
from etviz.errors import EtvizError
from tests.vendors import models

NATIVE = ("xnnpack", "xnnpack-int8", "openvino")
"""Recipes whose backend the runtime has."""


def _model(name: str) -> tuple[Any, models.Inputs]:
    if name == "mobilenet":
        model = mobilenet()
        return model, (torch.randn(1, 3, 64, 64),)
    return models.MODELS[name]()


def delegates(inspection: etviz.Inspection) -> Iterable[Any]:
    """The first row of each delegate call."""
    rows = inspection.gaps[inspection.gaps["kind"] == "delegate"]
    return rows.drop_duplicates("instruction").index


def own_values(inside: etviz.Inspection) -> Any:
    """Coverage of operators with a value of their own: conversions and constants have none."""
    table = inside.coverage
    return table[~table["op"].str.contains("dequantize") & ~table["reason"].str.contains("from constants|copies its")]


def one(folder: Path, kind: str, name: str) -> dict[str, Any]:
    """Run a model by a recipe, and look into each of its delegates."""
    model, inputs = _model(name)
    recipe = etviz.recipe(kind)
    if recipe.quantizer is not None:
        recipe = etviz.recipe(kind, calibration=models.calibration(inputs))
    runner = None if kind in NATIVE else "emulated"
    start = time.perf_counter()
    inspection = etviz.debug(model, inputs, recipe, runner=runner, workdir=folder)
    made, found = time.perf_counter(), []
    operators = compared = 0
    left: dict[str, int] = {}
    calls = list(delegates(inspection))
    for row in calls:
        inside = inspection.zoom(row)
        table = own_values(inside)
        there = table["status"].isin(["compared", "grouped"])
        operators, compared = operators + len(table), compared + int(there.sum())
        for op, reason in zip(table.loc[~there, "op"], table.loc[~there, "reason"], strict=True):
            left[f"{op}: {reason}"] = left.get(f"{op}: {reason}", 0) + 1
        if inside.faithful is not True:
            found.append(f"{row} is not faithful: {inside.deviation}")
        found += _blamed(inside)
    found += _blamed(inspection)
    severity = float(inspection.gaps["introduced_severity"].max())
    return {
        "recipe": kind, "model": name, "delegates": len(calls), "operators": operators, "compared": compared,
        "made_s": round(made - start, 1), "zoomed_s": round(time.perf_counter() - made, 1),
        "severity": round(severity, 3), "alarms": found, "left": left,
    }  # fmt: skip


def _blamed(inspection: etviz.Inspection) -> list[str]:
    first = inspection.first_divergence
    return [] if first is None else [f"{first['name']}: {first['introduced_severity']:.3g}"]


def main(folder: Path, kind: str, *names: str) -> None:
    """Print a line for each model; an error is one, too."""
    etviz.options.look_inside = "never"
    for name in names or (*models.MODELS, "mobilenet"):
        try:
            line = one(folder / f"{kind}-{name}", kind, name)
        except EtvizError as error:
            line = {"recipe": kind, "model": name, "error": str(error)[:500]}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
