"""OpenVINO's models of delegates run again, operator by operator; `make test-openvino` has the packages."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etviz
from etviz.artifacts.program.openvino_model import OpenvinoModel
from etviz.artifacts.program.program import read_program
from etviz.artifacts.record.record_file import read_record
from etviz.errors import ArtifactError, UsageError
from tests.vendors import models
from tests.vendors.matrix import delegates, own_values
from tests.vendors.plants import executed, planted, plants

EACH = 8
"""Number of faults that are planted in each of these programs."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, etviz.Inspection]]:
    """The run of a model, once."""

    @cache
    def once(name: str) -> tuple[Path, etviz.Inspection]:
        folder = tmp_path_factory.mktemp(name)
        model, inputs = models.MODELS[name]()
        return folder, etviz.debug(model, inputs, "openvino", workdir=folder)

    return once


@pytest.mark.parametrize("name", list(models.MODELS))
def test_of_a_correct_program_only_the_precision_is_told(name: str, run: Any) -> None:
    """No operator is blamed; if OpenVINO computes in bfloat16 here, that is the delegate's whole error."""
    _, inspection = run(name)
    for row in delegates(inspection):
        inside = inspection.zoom(row)
        assert inside.faithful is True
        assert inside.first_divergence is None
        assert own_values(inside)["status"].isin(["compared", "grouped"]).all()
    if inspection.first_divergence is not None:
        text = inspection.diagnosis()["finding"]["text"]
        assert "the backend computed in bfloat16 (the program says float32); in float32, it computes the re" in text


def test_planted_faults_are_named(run: Any, tmp_path: Path) -> None:
    found: dict[str, bool] = {}
    inspection: Any
    for name in ("cnn", "pooled", "residual", "decoder"):
        folder, inspection = run(name)
        for instruction in inspection.gaps.loc[list(delegates(inspection)), "instruction"].astype(int):
            blob = bytes(read_program(folder / "model.pte").payload("forward", instruction) or b"")
            every = list(plants(blob))
            for plant in every[:: max(len(every) // EACH, 1)]:
                pte, record = planted(folder, tmp_path / str(len(found)), instruction, plant)
                faulty = executed(pte, record, folder / "etrecord.bin", models.MODELS[name]()[1])
                table: Any = faulty.zoom(next(iter(delegates(faulty)))).gaps
                worst = table.loc[table["introduced_severity"].idxmax()]
                graph = read_record(record).graphs["forward"]
                inner = next(graph.inside(node) for node in graph.nodes if node.instruction == instruction)
                named = inner.nodes[int(worst["instruction"])].name
                found[f"{name} {plant.kind} {plant.output} {named}"] = named in _operators(blob, plant.output)
    missed = [key for key, is_named in found.items() if not is_named]
    assert len(found) >= 20
    assert len(missed) <= 0.05 * len(found), missed


def _operators(blob: bytes, layer: str) -> set[str]:
    """The operators of a layer."""
    return {
        name
        for item in OpenvinoModel(blob).layers()
        if any(port.layer == layer for port in item.outputs)
        for name in (item.name, *item.merged)
    }


def test_damaged_models_end_in_errors_that_say_so(run: Any) -> None:
    folder, _ = run("cnn")
    blob = bytes(read_program(folder / "model.pte").payload("forward", 0) or b"")
    random, refused = np.random.default_rng(0), 0
    for at in range(400):
        content = bytearray(blob if at % 2 else blob[: random.integers(len(blob))])
        for place in random.integers(0, max(len(content), 1), 8 if content else 0):
            content[place] = random.integers(0, 256)
        try:
            model = OpenvinoModel(bytes(content))
            model.returning([port for layer in model.layers() for port in layer.outputs])
        except (ArtifactError, UsageError):
            refused += 1
    assert refused > 100
