"""Programs for Apple's Core AI run in its runtime, operator by operator; `make test-coreai` has the packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import etviz
from etviz.artifacts.program.program import read_program
from etviz.artifacts.record.checksum import checksum_of
from etviz.artifacts.record.record_file import read_record, write_record
from etviz.errors import ExecutionError
from etviz.pipeline.emulation import emulate
from tests.vendors import models
from tests.vendors.matrix import delegates, own_values
from tests.vendors.plants import executed

FACTORS = (0.25, -1.0)
"""Factors of one row of a weight: each planted fault."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, etviz.Inspection]]:
    """The run of a model, once."""

    @cache
    def once(name: str) -> tuple[Path, etviz.Inspection]:
        folder = tmp_path_factory.mktemp(name)
        model, inputs = models.MODELS[name]()
        return folder, etviz.debug(model, inputs, "coreai", runner="emulated", workdir=folder)

    return once


@pytest.mark.parametrize("name", list(models.MODELS))
def test_every_operator_of_a_correct_program_is_compared_and_none_blamed(name: str, run: Any) -> None:
    _, inspection = run(name)
    assert inspection.first_divergence is None
    calls = inspection.gaps[inspection.gaps["kind"] == "delegate"]
    assert calls["reason"].str.contains("emulated: computed by the Core AI runtime on this machine").all()
    for row in delegates(inspection):
        inside = inspection.zoom(row)
        assert inside.faithful is True
        assert inside.first_divergence is None
        assert own_values(inside)["status"].isin(["compared", "grouped"]).all()


def test_planted_faults_are_named(run: Any, tmp_path: Path) -> None:
    """One row of a weight in the `.pte` is scaled; the record stays true."""
    found: dict[str, bool] = {}
    for name in ("cnn", "mlp", "pooled", "two_outputs", "decoder"):
        folder, _ = run(name)
        for key, weight in models.MODELS[name]()[0].named_parameters():
            content = bytearray((folder / "model.pte").read_bytes())
            stored = weight.detach()
            if stored.dim() < 2 or content.count(stored.numpy().tobytes()) != 1:
                continue  # it is merged with another, or transposed
            place = content.find(stored.numpy().tobytes())
            for factor in FACTORS:
                changed = stored.clone()
                changed[1] *= factor
                content[place : place + stored.nbytes] = changed.numpy().tobytes()
                to = tmp_path / str(len(found))
                found[f"{name} {key} {factor}"] = _is_named(folder, to, bytes(content), name, key)
    missed = [key for key, named in found.items() if not named]
    assert len(found) >= 10
    assert len(missed) <= 0.05 * len(found), missed


def _is_named(folder: Path, to: Path, content: bytes, name: str, weight: str) -> bool:
    to.mkdir()
    (to / "model.pte").write_bytes(content)
    known = replace(read_record(folder / "model.etviz"), pte_checksum=checksum_of(content))
    write_record(known, to / "model.etviz")
    inputs = models.MODELS[name]()[1]
    inspection = executed(to / "model.pte", to / "model.etviz", folder / "etrecord.bin", inputs)
    worst: Any = max((inspection.zoom(row).worst(1).iloc[0] for row in delegates(inspection)), key=_introduced)
    return weight.rpartition(".")[0] in str(worst["module"])


def _introduced(row: Any) -> float:
    return float(row["introduced_severity"])


def test_a_model_that_the_program_lacks_is_named(run: Any, tmp_path: Path) -> None:
    folder, _ = run("mlp")
    content = (folder / "model.pte").read_bytes()
    payload = bytes(read_program(folder / "model.pte").payload("forward", 0) or b"")
    broken = payload.replace(b'"inline"', b'"cached"')
    assert broken != payload
    (tmp_path / "model.pte").write_bytes(content.replace(payload, broken))
    known = replace(read_record(folder / "model.etviz"), pte_checksum=checksum_of(tmp_path / "model.pte"))
    write_record(known, tmp_path / "model.etviz")
    with pytest.raises(ExecutionError, match="the delegate's model is cached; only one"):
        emulate(tmp_path / "model.pte", tmp_path / "model.etviz", [[torch.zeros(3, 12)]], workdir=tmp_path)
