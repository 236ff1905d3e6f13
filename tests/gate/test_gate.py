"""The gate: which rows fail which limits, against a baseline, and the files that CI systems read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import xmlschema

import etviz
from etviz.analysis.analysis import Analysis
from etviz.errors import ArtifactError, UsageError
from etviz.gate import Limit, Rule, Rules, check, read_baseline, read_rules, write_baseline
from etviz.gate.baseline import Baseline, baseline_of
from etviz.gate.formats import to_json, to_markdown, write_junit
from etviz.gate.rules import find_rules
from tests.programs import Executed
from tests.shifted import load_shifted

Make = Callable[[str], Executed]


@pytest.fixture
def inspection(executed: Make) -> etviz.Inspection:
    return executed("residual_cnn").inspection


def test_without_limits_a_good_program_passes(inspection: etviz.Inspection) -> None:
    result = check(inspection.analysis, Rules())
    assert result.passed
    assert len(result.cases) == len(inspection.gaps) + 3


@pytest.mark.parametrize("name", ["max_rmse", "min_sqnr_db", "max_ulp", "max_abs", "max_introduced_severity"])
def test_exactly_the_rows_beyond_a_limit_fail(inspection: etviz.Inspection, name: str) -> None:
    column = name if name in ("max_ulp", "max_abs") else name[4:]
    gaps = inspection.gaps
    limit = float(gaps[column].median())
    wrong = gaps[column] < limit if name.startswith("min") else gaps[column] > limit
    result = check(inspection.analysis, Rules().with_flags({name: limit}))
    assert {case.row for case in result.failures} == set(gaps.index[wrong])
    assert 0 < wrong.sum() < len(gaps)


def test_a_limit_that_is_hardly_missed_is_shown_as_missed(inspection: etviz.Inspection) -> None:
    severity = float(inspection.gaps["severity"].max())
    result = check(inspection.analysis, Rules().with_flags({"max_severity": severity * (1 - 1e-9)}))
    text = next(violation.text for case in result.failures for violation in case.violations)
    shown, _, limit = text.removeprefix("severity ").partition(" > ")
    assert float(shown) > float(limit)


def test_a_program_with_nan_fails_whatever_is_allowed(executed: Make) -> None:
    result = check(executed("poisoned").inspection.analysis, Rules().with_flags({"max_rmse": 1e30}))
    demands = {violation.demand for case in result.failures for violation in case.violations}
    assert {"non-finite", "outputs"} <= demands


def test_coverage_and_outputs_can_be_demanded(inspection: etviz.Inspection, executed: Make) -> None:
    program = executed("residual_cnn")
    blind = etviz.load(program.path("etdump"), pte=program.path("pte"), etrecord=program.path("etrecord"))
    assert not check(blind.analysis, Rules()).passed
    assert check(blind.analysis, Rules(outputs=False)).passed
    assert [case.name for case in check(blind.analysis, Rules(outputs=False, min_compared=0.5)).failures] == [
        "coverage"
    ]
    assert check(inspection.analysis, Rules(min_compared=0.5)).passed


def test_rules_of_a_file(inspection: etviz.Inspection, tmp_path: Path) -> None:
    path = tmp_path / "etviz.toml"
    path.write_text(
        "[check]\nmax_rmse = 0\nfactor = 3\n[[check.rules]]\noperator = '*'\nmax_rmse = 1\n"
        "[[check.rules]]\noperator = '*cumsum*'\ndtype = 'float*'\nmax_rmse = 1e-12\n"
    )
    rules = read_rules(path)
    assert rules.factor == 3
    failed = {case.row for case in check(inspection.analysis, rules).failures}
    gaps = inspection.gaps
    assert failed == set(gaps.index[gaps["op"].str.contains("cumsum") & (gaps["rmse"] > 1e-12)]) != set()
    assert check(inspection.analysis, rules.with_flags({"max_rmse": 1.0})).passed


@pytest.mark.parametrize(
    "text",
    [
        "max_rmse = 1",
        "[check]\nmax_rms = 1",
        "[check]\nrmse = 1",
        "[check]\nmax_rmse = 'x'",
        "[check]\nmax_rmse = true",
        "[check]\nmax_rmse = nan",
        f"[check]\nmax_rmse = {10**400}",
        f"[check]\nfactor = {10**400}",
        "[check]\nfactor = nan",
        "[check]\nfactor = -1",
        "[check]\nmin_compared = nan",
        "[check]\nmin_compared = 1.5",
        "[check]\nrules = 3",
        "[check]\nrules = [3]",
        "[[check.rules]]\noperator = 3\n",
        "[check\n",
        "\x00",
    ],
)
def test_a_file_that_holds_no_rules_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "etviz.toml").write_text(text)
    with pytest.raises(ArtifactError, match=r"etviz\.toml"):
        read_rules(tmp_path / "etviz.toml")


def test_the_nearest_rules_of_the_repository_are_found(tmp_path: Path) -> None:
    root = tmp_path / "root"
    inner = root / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "etviz.toml").write_text("[check]\n")
    (root / "pyproject.toml").write_text("[tool.etviz.check]\nmax_rmse = 0.25\n")
    assert find_rules(inner) is None, "outside a repository only the folder itself counts"
    (root / ".git").mkdir()
    found = find_rules(inner)
    assert found is not None
    assert found == (root / "pyproject.toml").resolve()
    assert read_rules(found).rules[0].limits[0].value == 0.25
    assert read_rules(found).path == str(found)
    (root / "pyproject.toml").unlink()
    assert find_rules(inner) is None, "what lies above the repository is somebody else's"
    (root / "a" / "etviz.toml").write_text("[check]\n")
    assert find_rules(inner) == (root / "a" / "etviz.toml").resolve()


def test_rules_do_not_come_with_the_artifacts(tmp_path: Path) -> None:
    judged = tmp_path / "build"
    judged.mkdir()
    (judged / "etviz.toml").write_text("[check]\n")
    assert find_rules(judged / "deeper", judged) != (judged / "etviz.toml").resolve()
    (tmp_path / "etviz.toml").symlink_to(judged / "etviz.toml")
    with pytest.raises(UsageError, match="leads to the artifacts that it would judge"):
        find_rules(tmp_path, judged)


def test_a_baseline_of_another_program_fails(inspection: etviz.Inspection) -> None:
    """Artifacts can't rename their way out of it."""
    result = check(inspection.analysis, Rules(), Baseline({"other": {"severity": 1.0}}))
    assert [case.name for case in result.failures] == ["baseline"]
    assert "another program" in str(result)


def test_baseline(inspection: etviz.Inspection, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    write_baseline(inspection.analysis, path)
    stored = read_baseline(path)
    assert len(stored.rows) == len(inspection.gaps)
    assert check(inspection.analysis, Rules(), stored).passed
    worst = int(inspection.gaps["severity"].to_numpy().argmax())
    keys = list(stored.rows)
    stored.rows[keys[worst]]["severity"] = float(inspection.gaps["severity"].iloc[worst]) / 2.5
    assert [case.row for case in check(inspection.analysis, Rules(factor=2), stored).failures] == [worst]
    assert check(inspection.analysis, Rules(factor=3), stored).passed


_NAN = '{"format": "etviz-baseline", "version": 2, "rows": {"a": {"severity": NaN}}, "names": {}, "bits": {}}'


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "etviz-baseline", "version": 9}', "\x00\x01", "[" * 9999, _NAN]
)
def test_a_file_that_is_no_baseline_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(ArtifactError, match=r"b\.json"):
        read_baseline(tmp_path / "b.json")


def test_an_output_that_was_not_compared_fails(executed: Make) -> None:
    """Also in one execution of several."""
    inspection = executed("counter").load()
    assert check(inspection.analysis, Rules()).passed
    analysis = inspection.analysis
    run = analysis.tables.compared.runs[0]
    silent = run._replace(event_block=run.event_block + 1, comparison=replace(run.comparison, runtime_outputs=[]))
    twice = replace(analysis.findings, compared=replace(analysis.tables.compared, runs=(run, silent)))
    result = check(Analysis(twice), Rules())
    assert [case.name for case in result.failures] == ["final outputs"]
    assert "1 of 2 final outputs were not compared" in str(result)


def test_a_limit_that_meets_nothing_fails(inspection: etviz.Inspection, executed: Make) -> None:
    program = executed("residual_cnn")
    blind = etviz.load(program.path("etdump"), pte=program.path("pte"), etrecord=program.path("etrecord"))
    result = check(blind.analysis, Rules(outputs=False, min_compared=0.0).with_flags({"max_rmse": 1.0}))
    assert [case.name for case in result.failures] == ["limits"]
    stale = Rules((Rule((Limit("rmse", 1.0, True),), operator="*no_such*"),))
    assert [case.name for case in check(inspection.analysis, stale).failures] == ["limits"]


def test_an_instruction_with_a_limit_must_be_compared(inspection: etviz.Inspection) -> None:
    analysis = inspection.analysis
    run = analysis.tables.compared.runs[0]
    gaps = run.comparison.gaps
    lost = next(gap.instruction for gap in gaps if gap.node.target != "delegate")
    less = replace(
        run.comparison,
        gaps=[gap for gap in gaps if gap.instruction != lost],
        reasons={**run.comparison.reasons, lost: "the runtime logged no value for it"},
    )
    compared = replace(analysis.tables.compared, runs=(run._replace(comparison=less),))
    partial = Analysis(replace(analysis.findings, compared=compared))
    assert check(partial, Rules()).passed
    limited = Rules().with_flags({"max_rmse": 1.0})
    result = check(partial, limited)
    assert [case.name for case in result.failures] == ["coverage"]
    assert f"#{lost} " in str(result)
    assert check(partial, limited.with_flags({}, min_compared=0.5)).passed


def test_a_baseline_whose_rows_are_gone_or_unlimited_fails(inspection: etviz.Inspection) -> None:
    stored = baseline_of(inspection.analysis)
    keys = list(stored.rows)
    renamed = Baseline({(key if at == 0 else f"{key}?"): stored.rows[key] for at, key in enumerate(keys)})
    result = check(inspection.analysis, Rules(), renamed)
    assert [case.name for case in result.failures] == ["baseline"]
    assert f"{len(keys) - 1} of {len(keys)} rows of the baseline are not in this run" in str(result)
    for wrong in ({"severity": math.inf}, {}):
        result = check(inspection.analysis, Rules(), Baseline(stored.rows | {keys[0]: wrong}))
        assert [case.row for case in result.failures] == [0]


def test_an_operator_at_fault_fails_though_the_outputs_match(executed: Make, tmp_path: Path) -> None:
    program = executed("residual_cnn")
    gaps = program.inspection.gaps
    norm = gaps.loc[gaps["op"].str.contains("layer_norm") & (gaps["output"] == 0)].iloc[0]
    faulty = load_shifted(program, tmp_path, int(norm["instruction"]), 100.0, at=-3)
    assert faulty.outputs["matches"].all(), "only the logged value was changed"
    assert faulty.analysis.digest.level == "bad"
    result = check(faulty.analysis, Rules())
    assert [case.name for case in result.failures] == ["operators"]
    assert check(faulty.analysis, Rules(operators=False)).passed


def test_junit_validates_and_says_what_is_wrong(inspection: etviz.Inspection, tmp_path: Path) -> None:
    result = check(inspection.analysis, Rules().with_flags({"max_rmse": 0.0}))
    result.title = "bad \x00 </testsuite> & name"
    write_junit(result, tmp_path / "junit.xml", 1.5)
    schema = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))
    schema.validate(tmp_path / "junit.xml")
    tree = xmlschema.XMLResource(tmp_path / "junit.xml").root
    assert len(tree.findall(".//testcase")) == len(result.cases)
    failures = tree.findall(".//failure")
    assert len(failures) == len(result.failures)
    assert failures[0].get("message", "").startswith("rmse ")


def test_json_and_markdown(inspection: etviz.Inspection) -> None:
    result = check(inspection.analysis, Rules().with_flags({"max_rmse": 0.0}))
    result.title = "<script>|`x`"
    body = json.loads(json.dumps(to_json(result), allow_nan=False))
    assert not body["passed"]
    assert len(body["failures"]) == len(result.failures)
    text = to_markdown(result)
    assert "<script>" not in text
    assert text.count("\n| ") == 2 + min(len(result.failures), 20) + (len(result.failures) > 20)


@pytest.mark.parametrize(
    "limits", [{"rmse": 1.0}, {"max_nothing": 1.0}, {"max_rmse": math.nan}, {"max_rmse": math.inf}, {"max_rmse": "1"}]
)
def test_limits_that_make_no_sense(limits: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Rules().with_flags(limits)


@pytest.mark.parametrize("options", [{"factor": math.nan}, {"factor": 0.0}, {"min_compared": math.nan}])
def test_options_that_would_let_everything_pass(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        Rules().with_flags({}, **options)


PLUGIN_TEST = """
import etviz

def test_numerics(assert_numerics):
    inspection = etviz.load({etdump!r}, etrecord={etrecord!r}, debug_buffer={debug_buffer!r}, pte={pte!r})
    assert_numerics(inspection, max_rmse=1.0)
    assert_numerics(inspection, max_rmse=0.0)
"""


def test_pytest_plugin(executed: Make, tmp_path: Path) -> None:
    """In a pytest of its own, which knows the plugin without being told; the report lies in the test's folder."""
    import subprocess
    import sys

    program = executed("residual_cnn")
    paths = {kind: str(program.path(kind)) for kind in ("etdump", "etrecord", "debug_buffer", "pte")}
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST.format(**paths))
    command = [sys.executable, "-m", "pytest", "-q", "--basetemp", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--junitxml", str(tmp_path / "j.xml"), str(tmp_path / "test_it.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "rmse" in done.stdout
    assert "FAILED: model.pte" in done.stdout
    report = next((tmp_path / "out").rglob("etviz-report.html"))
    assert str(report) in done.stdout
    assert "etviz-report" in (tmp_path / "j.xml").read_text()
