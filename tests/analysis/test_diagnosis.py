"""The diagnosis: strict JSON that its schema describes to the last field, for every kind of run; and `etviz why`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etviz
from etviz.analysis.diagnosis import _ADVICE, schema  # pyright: ignore[reportPrivateUsage]
from etviz.cli import console, main
from etviz.tensors.fingerprints import FORMULA, NAMES, SETTING, WEIGHTS
from tests.programs import Executed
from tests.shifted import load_shifted

Make = Callable[[str], Executed]


def validator() -> Any:
    """What holds a diagnosis against the schema; its import takes long."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema())


def checked(inspection: etviz.Inspection, **options: Any) -> dict[str, Any]:
    """The diagnosis, after it went through strict JSON and held against the schema."""
    body = inspection.diagnosis(**options)
    assert json.loads(json.dumps(body, allow_nan=False)) == body
    validator().validate(body)
    return body


def described(part: Any, path: str = "") -> list[str]:
    """Properties of the schema without a description, and objects that allow others."""
    found = []
    if isinstance(part, dict):
        for name, item in part.get("properties", {}).items():
            found += [] if "description" in item else [f"{path}.{name}"]
        if "properties" in part and part.get("additionalProperties") is not False:
            found.append(f"{path} allows others")
        found += [item for name, value in part.items() for item in described(value, f"{path}.{name}")]
    elif isinstance(part, list):
        found += [item for value in part for item in described(value, path)]
    return found


def test_the_schema_is_one_and_describes_every_field() -> None:
    validator().check_schema(schema())
    assert described(schema()) == []
    assert set(_ADVICE) == {*NAMES, SETTING, FORMULA, WEIGHTS}


@pytest.mark.parametrize("name", ["residual_cnn", "many_outputs", "branches", "casts", "poisoned", "counter"])
def test_every_kind_of_run_fits_the_schema(executed: Make, name: str) -> None:
    program = executed(name)
    inspection = program.load()
    body = checked(inspection, look_inside=False)
    assert body["verdict"] == inspection.analysis.digest.verdict
    assert len(body["outputs"]) == len(inspection.outputs)
    first = inspection.first_divergence
    assert (body["culprit"] is None) == (first is None)
    if first is not None:
        assert body["culprit"]["row"] == first.name
        assert body["culprit"]["instruction"] == first["instruction"]
    counts = inspection.coverage["status"].value_counts()
    assert body["compared"]["compared"] == counts.get("compared", 0)
    assert sum(item["count"] for item in body["compared"]["reasons"]) == body["compared"]["not_compared"]


def test_nothing_is_guessed_without_a_piece(executed: Make) -> None:
    program = executed("residual_cnn")
    body = checked(program.load(debug_buffer=None))
    assert (body["finding"], body["culprit"], body["suspects"]) == (None, None, [])
    assert body["attribution"]["sum"] is None
    assert body["attribution"]["note"]
    assert body["next"][0]["text"].startswith("Nothing was compared")
    body = checked(program.load(introduced=False))
    assert body["culprit"] is None
    assert body["next"][0]["python"] == "inspection.compute_introduced()"


@pytest.fixture
def faulty(executed: Make, tmp_path: Path) -> etviz.Inspection:
    """A layer norm of which one value was changed."""
    program = executed("residual_cnn")
    gaps = program.inspection.gaps
    norm = gaps.loc[gaps["op"].str.contains("layer_norm") & (gaps["output"] == 0)].iloc[0]
    return load_shifted(program, tmp_path, int(norm["instruction"]), 100.0, at=-3)


def test_the_culprit_with_its_share_its_line_and_what_to_do(faulty: etviz.Inspection, tmp_path: Path) -> None:
    body = checked(faulty, top=1)
    culprit = body["culprit"]
    assert culprit["name"].endswith("norm · layer_norm")
    assert culprit["code"] == "x = self.norm(x + self.block(x))"
    assert culprit["inside"] is None
    row = faulty.gaps.loc[culprit["row"]]
    assert culprit["introduced_rmse"] == row["introduced_rmse"]
    assert culprit["max_abs"] == pytest.approx(100.0, rel=1e-3)
    shares = faulty.attribution()
    assert culprit["share"] == shares["share"][culprit["row"]]
    assert [item["row"] for item in body["attribution"]["shares"]] == list(shares["share"].dropna().index[:10])
    assert body["attribution"]["sum"] == shares.attrs["sum"]
    assert len(body["suspects"]) <= 1
    after = faulty.what_if(culprit["row"]).after
    assert [item["without"] for item in body["culprit"]["proof"]["outputs"]] == list(after["rmse"])
    for step in body["next"]:
        if step["python"].startswith("inspection.repro"):
            made = eval(step["python"].replace("bug/", str(tmp_path / "bug")), {"inspection": faulty})
            assert (made / "repro.py").is_file()
            break
    else:
        pytest.fail("no repro is proposed")


def test_inside_of_a_delegate_at_fault(executed: Make, tmp_path: Path) -> None:
    program = executed("residual_cnn")
    gaps = program.inspection.gaps
    first = int(gaps.loc[gaps["kind"] == "delegate", "instruction"].iloc[0])
    inspection = load_shifted(program, tmp_path, first, 100.0)
    body = checked(inspection)
    inside = body["culprit"]["inside"]
    assert body["culprit"]["kind"] == "delegate"
    assert inside["faithful"] is False
    assert "differs from the run's by up to 100" in inside["message"]
    assert inside["rows"] == []
    assert any("compare what the .pte holds" in step["text"] for step in body["next"])


def test_wrong_arguments(executed: Make) -> None:
    for top in (-1, 1.5, True, "3"):
        with pytest.raises(etviz.errors.UsageError, match="top must be"):
            executed("casts").inspection.diagnosis(top)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_why_is_readable(
    faulty: etviz.Inspection, tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(console.out, "width", width)
    monkeypatch.setattr(sys, "argv", ["etviz", "why", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main()
    text = capsys.readouterr().out
    assert end.value.code == 1, "an operator is at fault"
    assert [line for line in text.splitlines() if len(line) > width] == []
    plain = " ".join(text.split())
    assert str(faulty.analysis.digest.verdict) in plain
    assert "norm · layer_norm" in plain
    if width >= 80:
        assert "x = self.norm(x + self.block(x))" in plain
    for title in ("Share of the output's error", "Next"):
        assert title in plain


def test_why_as_json(faulty: etviz.Inspection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["etviz", "why", str(tmp_path), "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    body = json.loads(capsys.readouterr().out)
    assert end.value.code == 1, "an operator is at fault"
    validator().validate(body)
    here = faulty.diagnosis()
    assert body["finding"]["row"] == here["finding"]["row"]
    assert np.isclose(body["culprit"]["share"], here["culprit"]["share"])
