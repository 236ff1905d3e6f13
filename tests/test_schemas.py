"""The files that etviz writes fit their published schemas, and the schemas allow nothing else."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

import etviz
from etviz.cli.app import app
from tests.programs import Executed

SCHEMAS = {path.name.partition(".")[0]: path for path in (Path(etviz.__file__).parent / "schemas").glob("*.json")}


@pytest.fixture(scope="module")
def written(executed: Callable[[str], Executed], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One file of each kind, by the name of its schema."""
    program, folder = executed("residual_cnn"), tmp_path_factory.mktemp("schemas")
    with zipfile.ZipFile(program.folder / "model.etviz") as archive:
        found = {"record": json.loads(archive.read("record.json"))}
    etviz.study(program.folder / "model.pte", [program.inputs] * 2, folder=folder / "study")
    etviz.probe(program.folder / "model.pte", workdir=folder / "probe")
    options = ["--write-baseline", str(folder / "baseline.json"), "--json", str(folder / "check.json")]
    runner = CliRunner()
    result = runner.invoke(app, ["check", str(program.folder), "--max-rmse", "1e-30", *options])
    assert result.exit_code == 1, result.output
    paths = {"study": "study/study.json", "probes": "probe/probes.json"}
    for name in ("study", "probes", "baseline", "check"):
        found[name] = json.loads((folder / paths.get(name, f"{name}.json")).read_text("utf-8"))
    inspection = program.load()
    found["diagnosis"] = inspection.diagnosis()
    found["tensors"] = json.loads(inspection.export.tensors(folder / "tensors").read_text("utf-8"))
    page = inspection.to_html(folder / "report.html", tensors="worst").read_text("utf-8")
    data = gzip.decompress(base64.b64decode(page.split('id="etviz-data">')[1].partition("<")[0]))
    found["report"] = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    return found


def test_every_kind_of_file_has_a_schema(written: dict[str, Any]) -> None:
    assert set(SCHEMAS) == set(written)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_files_fit_and_nothing_else_does(written: dict[str, Any], name: str) -> None:
    schema = json.loads(SCHEMAS[name].read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    validator.validate(written[name])
    version = written[name]["version"]
    assert schema["$id"] == f"urn:etviz:{name}:{version}"
    wrong = [{**written[name], "another": 1}, {**written[name], "version": version + 1}]
    for field in schema["required"]:
        less = copy.deepcopy(written[name])
        del less[field]
        wrong.append(less)
    assert [body for body in wrong if validator.is_valid(body)] == []
