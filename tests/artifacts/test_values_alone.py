"""An ETDump and its debug buffer alone: every logged value has a row with its statistics."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import etviz
from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.errors import UsageError
from etviz.pipeline.execute import execute
from etviz.view.payload.tensor import build_tensor
from tests.artifacts.conftest import Run
from tests.programs import Executed


@pytest.fixture
def alone(runs: dict[str, Run], tmp_path: Path) -> tuple[etviz.Inspection, Path, Path]:
    run = runs["partly"]
    etdump, buffer = (Path(shutil.copy(path, tmp_path)) for path in (run.etdump, run.buffer))
    return etviz.load(etdump, debug_buffer=buffer), etdump, buffer


def test_every_logged_value_has_a_row(alone: tuple[etviz.Inspection, Path, Path]) -> None:
    inspection, etdump, path = alone
    buffer, gaps = DebugBuffer(path), inspection.gaps
    expected: dict[tuple[int, int, int], torch.Tensor] = {}
    for at, block in enumerate(read_etdump(etdump).blocks):
        places: dict[int, int] = {}
        for event in block.debug:
            for ref in event.tensors if event.chain >= 0 and not event.is_output else ():
                output = places[event.instruction_id] = places.get(event.instruction_id, -1) + 1
                expected[at, event.instruction_id, output] = buffer.tensor(ref)
    keys = list(zip(gaps["event_block"], gaps["instruction"], gaps["output"], strict=True))
    assert sorted(keys) == sorted(expected)
    for row, key in zip(gaps.index, keys, strict=True):
        values, about = expected[key].double().numpy(), gaps.loc[row]
        np.testing.assert_allclose(about["runtime_min"], values.min())
        np.testing.assert_allclose(about["runtime_max"], values.max())
        np.testing.assert_allclose(about["runtime_mean"], values.mean(), atol=1e-12)
        np.testing.assert_allclose(about["runtime_std"], values.std(), atol=1e-12)
        assert about["status"] == "not compared"
        assert "there is no reference" in about["reason"]
    assert set(inspection.coverage["status"]) == {"not compared"}
    assert "Compared: 0 of" in inspection.summary()


def test_two_executions_against_each_other(runs: dict[str, Run], tmp_path: Path) -> None:
    """Without a program and a reference: the metrics are those of the two logged values, the severity is unknown."""
    image = torch.randn(1, 3, 16, 16)
    first, other = (tmp_path / name for name in ("first", "other"))
    for folder, shift in ((first, 0.0), (other, 0.01)):
        execute(runs["partly"].pte, [[image + shift]], workdir=folder)
    a, b = (etviz.load(folder / "etdump.etdp", debug_buffer=folder / "debug_buffer.bin") for folder in (first, other))
    found = b.against(a)
    assert len(found.gaps) == len(a.gaps)
    assert set(found.gaps["status"]) == {"compared"}
    assert set(found.coverage["status"]) == {"compared"}
    assert found.gaps["severity"].isna().all()
    for row in found.gaps.index:
        mine, its = b.row(row).runtime.double(), a.row(row).runtime.double()
        assert found.gaps["rmse"][row] == pytest.approx(float((mine - its).square().mean().sqrt()))
        assert all(map(torch.equal, found.tensors(row), (a.row(row).runtime, b.row(row).runtime)))
        assert found.row(row).histogram().error is not None
    worst = found.worst(1).iloc[0]
    assert worst["rel_l2"] == found.gaps["rel_l2"].max() > 0
    comparison = etviz.compare(a, b, labels=["a", "b"])
    assert comparison.worst(1)["change"].iloc[0] == worst["rel_l2"]
    assert f"rel_l2 {worst['rel_l2']:.3g}" in comparison.summary()
    assert "a: the reference of the others." in comparison.summary()
    payload = comparison.widget().payload()[0]
    assert payload["summary"]["finding"]["text"].endswith(f"relative distance {worst['rel_l2']:.3g}")
    assert set(comparison.inspections["a"].gaps["status"]) == {"compared"}
    assert f"up to {worst['rel_l2']:.3g} (relative)" in payload["summary"]["verdict"]
    answer, _ = build_tensor(comparison.view.analysis, 0, beside=comparison.view.beside)
    assert (answer["label"], answer["reference"], answer["error"]) == ("a", None, None)
    assert [other["label"] for other in answer["beside"]] == ["b"]
    columns = {column["name"] for column in payload["columns"]}
    assert {"change", "rel_l2_2"} <= columns
    assert not {"rmse", "severity"} & columns
    assert payload["summary"]["facts"][0]["value"] == "The reference of the others."
    assert (
        "Every value is that of" in etviz.compare(a, a, labels=["a", "b"]).widget().payload()[0]["summary"]["verdict"]
    )


def test_executions_of_one_etdump_against_each_other(runs: dict[str, Run], tmp_path: Path) -> None:
    image = torch.randn(1, 3, 16, 16)
    execute(runs["partly"].pte, [[image], [image + 0.01]], workdir=tmp_path / "run")
    alone = etviz.load(tmp_path / "run/etdump.etdp", debug_buffer=tmp_path / "run/debug_buffer.bin")
    gaps = alone.against(0).gaps
    first, second = (gaps[gaps["event_block"] == block] for block in sorted(set(gaps["event_block"])))
    assert set(first["max_abs"]) == {0.0}
    assert second["max_abs"].max() > 0
    with pytest.raises(UsageError, match="no execution 2; there are 2, numbered from 0"):
        alone.against(2)


def test_what_can_t_be_compared_is_named(runs: dict[str, Run], alone: tuple[etviz.Inspection, Path, Path]) -> None:
    other = etviz.load(runs["kinds"].etdump, debug_buffer=runs["kinds"].buffer)
    with pytest.raises(UsageError, match="is a run of another program"):
        alone[0].against(other)
    with pytest.raises(UsageError, match=r"the inputs of row #\d+ .* are not known: .* give pte="):
        _ = alone[0].row(0).inputs


def test_final_outputs_are_listed(alone: tuple[etviz.Inspection, Path, Path], runs: dict[str, Run]) -> None:
    outputs = alone[0].outputs
    with pytest.raises(UsageError, match="no reference tensor; run_outputs has what"):
        alone[0].tensors(outputs.iloc[0])
    (returned,) = alone[0].run_outputs
    assert all(map(torch.equal, returned, runs["partly"].outputs[0]))
    returned[0].zero_()
    assert torch.equal(alone[0].run_outputs[0][0], runs["partly"].outputs[0][0])
    with pytest.raises(UsageError, match="preprocessing must be a function of an identifier and a tensor, found int"):
        etviz.load(alone[1], preprocessing=3)  # pyright: ignore[reportArgumentType]
    assert [tuple(shape) for shape in outputs["shape"]] == [tuple(value.shape) for value in runs["partly"].outputs[0]]
    assert set(outputs["status"]) == {"not compared"}


def test_nan_is_counted(tmp_path: Path) -> None:
    class Logarithm(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(x).cumsum(-1)

    etviz.debug(Logarithm(), (torch.tensor([[1.0, 2.0, -1.0], [0.0, 1.0, 2.0]]),), workdir=tmp_path / "made")
    files = [Path(shutil.copy(tmp_path / "made" / name, tmp_path)) for name in ("etdump.etdp", "debug_buffer.bin")]
    inspection = etviz.load(files[0], debug_buffer=files[1])
    assert list(inspection.gaps["runtime_nan"]) == [1, 1]
    assert list(inspection.gaps["runtime_inf"]) == [1, 3]
    assert list(inspection.gaps["reference_nan"]) == [0, 0]
    assert "in 2 values, first in #0 log" in inspection.summary()


def test_a_delegate_s_logged_inputs_need_no_reference(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """They are what the same row has with a reference."""
    program = executed("encoder")
    whole = program.load()
    pte = shutil.copy(program.path("pte"), tmp_path / "model.pte")
    found = etviz.load(program.path("etdump"), debug_buffer=program.path("debug_buffer"), pte=pte)
    rows = found.gaps.index[found.gaps["kind"] == "delegate"]
    assert len(rows)
    for row in rows:
        own = found.row(row)
        same = whole.gaps.index[whole.gaps["instruction"] == found.gaps["instruction"][row]][0]
        wanted = [value for value in whole.row(same).inputs if isinstance(value, torch.Tensor)]
        logged = [value for value in own.inputs if isinstance(value, torch.Tensor)]
        assert logged
        assert len(logged) <= len(wanted) or not wanted
        for value in logged:
            assert any(torch.equal(value, other) for other in wanted if other.shape == value.shape)
