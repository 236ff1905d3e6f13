"""The names that users rely on are there, cost nothing to import, and refuse what they do not know."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
import traitlets

import etviz
from etviz.errors import ArtifactError, EtvizError, ExecutionError, PairingError, UsageError
from tests.programs import Executed

MEMBERS = (
    "gaps coverage outputs run_outputs worst summary diagnosis first_divergence tensors zoom look_inside what_if "
    "against ladder "
    "attribution quantization compute_introduced introduced selected events delegation format_delegated_graph "
    "module_total tree methods method repro widget show to_html plot export time row analysis view observe"
)
ROW = (
    "name index note reference runtime inputs constants stack histogram error_map channels scatter fingerprints zoom "
    "what_if repro"
)
COLUMNS = (
    "event_block input_index instruction kind op backend output shape dtype reference_ops module source pairing "
    "mse rmse mean_abs max_abs l1 rel_l2 sqnr_db psnr_db cosine allclose max_ulp severity "
    "reference_nan reference_inf runtime_nan runtime_inf latency_ms"
)
DEBUG = (
    "model example_inputs recipe partitioner quantizer calibration reference strict workdir debug_buffer_size timeout"
)
LOAD = "etdump etrecord debug_buffer pte record inputs method delegate_metadata_parser source_time_scale"


def in_a_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_neither_torch_nor_executorch() -> None:
    heavy = ("torch", "executorch", "pandas", "anywidget", "matplotlib", "numpy")
    code = f"import sys, etviz; dir(etviz); print([name for name in {heavy} if name in sys.modules])"
    assert in_a_new_process(code) == "[]"


def test_errors_and_version_are_there_without_torch() -> None:
    code = "import sys, etviz; etviz.errors.EtvizError; print(etviz.__version__, 'torch' in sys.modules)"
    assert in_a_new_process(code) == f"{etviz.__version__} False"


def test_asking_what_can_be_lowered_here_imports_nothing() -> None:
    """A background thread asks; executorch imports itself in circles, which two threads can't do at a time."""
    code = "import sys\nfrom etviz.upstream.executorch import lowers_here\n"
    code += "print(lowers_here('XnnpackBackend'), lowers_here('no'), 'executorch.exir' in sys.modules)"
    assert in_a_new_process(code) == "True False False"


def test_public_names() -> None:
    assert set(etviz.__all__) >= {
        "Inspection",
        "__version__",
        "debug",
        "errors",
        "from_inspector",
        "load",
        "metrics",
        "options",
        "record",
    }
    for name in etviz.__all__:
        assert getattr(etviz, name) is not None
        assert name in dir(etviz)
    with pytest.raises(AttributeError, match="lod"):
        _ = etviz.lod  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("function", "names", "positional"), [("debug", DEBUG, 3), ("load", LOAD, 1)])
def test_signatures(function: str, names: str, positional: int) -> None:
    parameters = inspect.signature(getattr(etviz, function)).parameters
    assert " ".join(parameters).startswith(names)
    for name, parameter in list(parameters.items())[positional:]:
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, name
        assert parameter.default is not inspect.Parameter.empty, name


@pytest.mark.parametrize(
    "call",
    [
        lambda i: etviz.debug(None, (), partitoner=[]),  # pyright: ignore[reportCallIssue]
        lambda i: etviz.load("etdump.etdp", buffer="debug.bin"),  # pyright: ignore[reportCallIssue]
        lambda i: etviz.verify(1, tolerance=1e-3),  # pyright: ignore[reportCallIssue]
        lambda i: i.worst(metric="rmse"),
        lambda i: i.row(0).histogram(n_bins=3),
        lambda i: i.widget(heigth=500),
        lambda i: i.widget(rows=5),
        lambda i: i.summary(verbose=True),
    ],
)
def test_unknown_keywords_are_type_errors(call: Callable[[Any], Any], executed: Callable[[str], Executed]) -> None:
    with pytest.raises(TypeError):
        call(executed("counter").inspection)


def test_metrics_know_their_polarity() -> None:
    assert etviz.metrics["sqnr_db"].higher_is_better
    assert not etviz.metrics["rmse"].higher_is_better


def test_errors_form_one_family() -> None:
    for kind in (ArtifactError, PairingError, ExecutionError, UsageError):
        assert issubclass(kind, EtvizError)
        assert getattr(etviz.errors, kind.__name__) is kind
    assert issubclass(UsageError, ValueError)


def test_members_of_an_inspection(program: Executed) -> None:
    inspection = program.inspection
    assert {name for name in dir(inspection) if not name.startswith("_")} == set(MEMBERS.split())
    row = inspection.row(0)
    assert {name for name in dir(row) if not name.startswith("_")} == set(ROW.split())
    assert {name for name in dir(inspection.time) if not name.startswith("_")} == {"events", "latency", "ledger"}


def test_columns_of_gaps(program: Executed) -> None:
    gaps = program.inspection.gaps
    names = list(gaps.columns)
    expected = COLUMNS.split()
    assert [name for name in names if name in expected] == expected
    metrics = list(etviz.metrics)
    assert {f"introduced_{name}" for name in metrics} <= set(names)
    assert set(gaps["kind"]) <= {"kernel", "delegate", "inner"}
    for name in metrics:
        assert gaps[name].dtype == "float64"
        assert gaps[f"introduced_{name}"].dtype == "float64"
    assert list(gaps.index) == list(range(len(gaps)))


def test_tables_are_copies(executed: Callable[[str], Executed]) -> None:
    inspection = executed("counter").inspection
    changed = inspection.gaps
    changed["rmse"] = -1.0
    assert (inspection.gaps["rmse"] >= 0).all()


@pytest.mark.parametrize("by", ["severity", "sqnr_db", "introduced_rmse", "cosine", "latency_ms", "max_ulp"])
def test_worst(by: str, executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").inspection
    worst = inspection.worst(7, by)
    assert len(worst) == 7
    metric = etviz.metrics.get(by.removeprefix("introduced_"))
    higher = metric is not None and metric.higher_is_better
    gaps = inspection.gaps
    read = gaps if by == "latency_ms" else gaps[~gaps.index.isin(inspection.analysis.tables.unused)]
    assert worst[by].tolist() == read[by].sort_values(ascending=higher).head(7).tolist()
    row = worst.index[0]
    pd.testing.assert_series_equal(inspection.gaps.loc[row][worst.columns], worst.iloc[0])
    assert list(worst.columns[:5]) == ["name", "severity", "introduced_severity", "rmse", "source"]


def test_worst_of_what(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").inspection
    assert inspection.worst().index.tolist() == inspection.worst(5, "introduced_severity").index.tolist()
    with pytest.raises(UsageError, match=r"column of gaps, found 'snr'.*sqnr_db"):
        inspection.worst(by="snr")


def test_a_row_may_be_given_by_index_or_as_a_row(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").inspection
    row = inspection.worst(1).iloc[0]
    by_row, by_index = inspection.tensors(row), inspection.tensors(row.name)
    assert all(map(torch.equal, by_row, by_index))
    assert inspection.row(row).histogram().edges.tolist() == inspection.row(row.name).histogram().edges.tolist()


@pytest.mark.parametrize("row", [-1, 999, "x", None, 1.5])
def test_no_such_row(row: Any, executed: Callable[[str], Executed]) -> None:
    with pytest.raises(UsageError, match="row must be a"):
        executed("encoder").inspection.tensors(row)


def test_traits_are_shared_with_the_widget(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").load()
    seen: list[Any] = []
    inspection.observe(seen.append, names=["selected", "sort_by", "height"])
    widget = inspection.widget(height=800)
    try:
        widget.selected = 3
        assert inspection.selected == 3
        inspection.view.sort_by = "rmse"
        assert widget.sort_by == "rmse"
        assert [change["name"] for change in seen] == ["height", "selected", "sort_by"]
        with pytest.raises(traitlets.TraitError):
            inspection.selected = "first"
        last = {"selected": len(inspection.coverage) + len(inspection.gaps), "expanded": [len(inspection.tree)]}
        for name, value in (*last.items(), ("sort_by", "nope"), ("expanded", [0, -1])):
            for owner in (inspection.view, widget):
                with pytest.raises(traitlets.TraitError, match=name):
                    setattr(owner, name, value)
        widget.expanded = [0, len(inspection.tree) - 1]
        assert inspection.view.expanded == widget.expanded
        with pytest.raises(AttributeError, match=r"no attribute 'sort_by' to set; set view\.sort_by"):
            inspection.sort_by = "rmse"
        with pytest.raises(AttributeError, match="Inspection has no attribute 'selekted' to set"):
            inspection.selekted = 3
    finally:
        widget.close()
    inspection.selected = None
    assert widget.selected == 3


def test_summary_says_what_matters(program: Executed) -> None:
    text = program.inspection.summary()
    done = program.inspection.coverage["status"].eq("compared").sum()
    assert f"Compared: {done} of {len(program.inspection.coverage)} instructions" in text
    assert "Worst introduced" in text
    assert "Non-finite" in text
    share = program.inspection.delegation.share if program.inspection.delegation else 0
    assert f"Delegated: {100 * share:.0f} %" in text
    if program.name != "poisoned":
        assert "match" in text.splitlines()[0]
        assert program.inspection.analysis.digest.level in ("ok", "warn")
