# pyright: reportPrivateUsage=false
"""The payload that a view gets holds exactly what the Inspection holds, as JSON without NaN and plain buffers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import etviz
from etviz.analysis.analysis import Analysis
from etviz.artifacts.recent import Recent
from etviz.comparison.gap import WRONG
from etviz.errors import UsageError
from etviz.view.pages.html_tables import html_table
from etviz.view.payload.program_payload import build_payload
from etviz.view.payload.tensor import build_tensor
from tests.programs import Executed

FIXED = {"uint8": 1, "uint16": 2, "int32": 4, "uint32": 4, "float64": 8}


def decode(description: dict[str, Any], buffers: list[bytes]) -> Any:
    """A buffer as the view reads it: little-endian, of the given type and length."""
    raw = buffers[description["buffer"]]
    assert len(raw) == description["length"] * FIXED[description["dtype"]]
    return np.frombuffer(raw, np.dtype(description["dtype"]).newbyteorder("<"))


def texts(codes: Any, dictionary: list[str]) -> list[str]:
    assert dictionary == sorted(dictionary)
    assert len(set(dictionary)) == len(dictionary)
    return ["" if code < 0 else dictionary[code] for code in codes]


@pytest.fixture
def sent(program: Executed) -> tuple[etviz.Inspection, dict[str, Any], list[bytes]]:
    """What crosses the wire: through strict JSON and back."""
    payload, buffers = build_payload(program.inspection.analysis)
    return program.inspection, json.loads(json.dumps(payload, allow_nan=False)), buffers


def test_columns_hold_the_table(sent: tuple[etviz.Inspection, dict[str, Any], list[bytes]]) -> None:
    inspection, payload, buffers = sent
    gaps = inspection.gaps
    missing = (inspection.coverage["status"] == "not compared").sum()
    assert payload["compared"] == len(gaps)
    assert payload["rows"] == len(gaps) + missing
    names = [column["name"] for column in payload["columns"]]
    assert len(set(names)) == len(names)
    assert set(gaps.columns) - {"name", "event_block"} <= {*names, "run"}
    for column in payload["columns"]:
        values = decode(column["values"], buffers)
        assert len(values) == payload["rows"]
        if column["name"] == "row":
            addresses = texts(values, column["dictionary"])[: len(gaps)]
            assert [gaps["name"][inspection.row(text).index].split(" ")[0] for text in addresses] == addresses
            continue
        if column["name"] not in gaps:
            assert column["group"] in ("introduced", "attribution", "quantization") or column["name"] == "run"
            continue
        expected = gaps[column["name"]]
        if column["kind"] == "number":
            numbers = pd.to_numeric(expected).to_numpy(float)
            np.testing.assert_array_equal(values[: len(gaps)], numbers, err_msg=column["name"])
        else:
            found = texts(values, column["dictionary"])[: len(gaps)]
            wanted = _operators(gaps) if column["name"] == "op" else [_shown(value) for value in expected]
            assert found == wanted, column["name"]


def test_introduced_part_of_each_gap(sent: tuple[etviz.Inspection, dict[str, Any], list[bytes]]) -> None:
    inspection, payload, buffers = sent
    gaps = inspection.gaps
    (column,) = [column for column in payload["columns"] if column["name"] == "introduced_part"]
    for value, introduced, total in zip(
        decode(column["values"], buffers), gaps["introduced_rmse"], gaps["rmse"], strict=False
    ):
        if introduced > 0:
            assert value == (min(1.0, introduced / total) if total > 0 else 1.0)
        else:
            assert value == 0.0 if total > 0 and introduced == 0 else np.isnan(value)


def _operators(gaps: pd.DataFrame) -> list[str]:
    """Names of the rows without their addresses."""
    return [name.split(" ", 1)[1] for name in gaps["name"]]


def _shown(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def test_instructions_without_a_value_are_listed_with_their_reason(executed: Callable[[str], Executed]) -> None:
    inspection = executed("branches").inspection
    payload, buffers = build_payload(inspection.analysis)
    columns = {column["name"]: column for column in payload["columns"]}
    rest = slice(payload["compared"], None)
    instructions = decode(columns["instruction"]["values"], buffers)[rest]
    missing = inspection.coverage[inspection.coverage["status"] == "not compared"]
    assert instructions.tolist() == missing["instruction"].tolist()
    reasons = texts(decode(columns["reason"]["values"], buffers), columns["reason"]["dictionary"])[rest]
    assert reasons == missing["reason"].tolist()
    assert np.isnan(decode(columns["rmse"]["values"], buffers)[rest]).all()


def test_metric_columns_say_which_way_is_better(executed: Callable[[str], Executed]) -> None:
    payload, _ = build_payload(executed("encoder").inspection.analysis)
    columns = {column["name"]: column for column in payload["columns"]}
    for name, metric in etviz.metrics.items():
        for prefix in ("", "introduced_"):
            assert columns[prefix + name]["better"] == ("high" if metric.higher_is_better else "low")
            assert metric.formula in columns[prefix + name]["description"]
    assert columns["severity"]["visible"]
    assert columns["introduced_severity"]["visible"]


@pytest.mark.parametrize("which", ["program", "modules"])
def test_trees(which: str, sent: tuple[etviz.Inspection, dict[str, Any], list[bytes]]) -> None:
    inspection, payload, buffers = sent
    tree = inspection.tree if which == "program" else inspection.analysis.modules
    found = payload["trees"][which]
    assert found["nodes"] == len(tree)
    for name in ("depth", "size", "instruction", "operators", "latency"):
        np.testing.assert_array_equal(decode(found[name], buffers), np.array(getattr(tree, name), float))
    assert [found["kinds"][code] for code in decode(found["kind"], buffers)] == tree.kind
    for name in ("label", "backend", "op", "shape", "module", "source", "stack"):
        said = texts(decode(found[name], buffers), found[f"{name}s"])
        own = name != "label" or which == "modules"
        named = (
            range(len(tree)) if own else [k for k, kind in enumerate(tree.kind) if kind not in ("kernel", "delegate")]
        )
        assert [said[k] for k in named] == [getattr(tree, name)[k] for k in named]
    nodes = decode(found["row_node"], buffers)
    assert len(nodes) == payload["rows"]
    expected = [
        tree.node_of(i, o) for i, o in zip(inspection.gaps["instruction"], inspection.gaps["output"], strict=True)
    ]
    assert nodes[: len(expected)].tolist() == expected


def test_summary(sent: tuple[etviz.Inspection, dict[str, Any], list[bytes]]) -> None:
    inspection, payload, _ = sent
    summary = payload["summary"]
    assert summary["verdict"] in inspection.summary()
    for fact in summary["facts"]:
        assert f"{fact['label']}: {fact['value']}" in inspection.summary()
        assert fact["level"] in ("ok", "warn", "bad", "unknown")
        assert fact["row"] is None or 0 <= fact["row"] < payload["compared"]
    assert payload["title"] == inspection.analysis.title


def number(value: float | str) -> float:
    return float(value)


def test_tensor_of_every_row(program: Executed) -> None:
    inspection = program.inspection
    for row in inspection.gaps.index:
        found, buffers = build_tensor(inspection.analysis, row, 16)
        found = json.loads(json.dumps(found, allow_nan=False))
        reference, runtime = inspection.tensors(row)
        assert (found["row"], found["elements"]) == (row, runtime.numel())
        edges = decode(found["edges"], buffers)
        assert (np.diff(edges) > 0).all()
        for side, tensor in (("reference", reference), ("runtime", runtime)):
            values = tensor.double().numpy().ravel()
            finite = values[np.isfinite(values)]
            counts = decode(found[side], buffers)
            assert len(counts) == len(edges) - 1
            assert counts.sum() == len(finite)
            np.testing.assert_array_equal(counts, np.histogram(finite, edges)[0])
            check_statistics(found["statistics"], side, finite)
        with np.errstate(invalid="ignore"):
            error = runtime.double().numpy().ravel() - reference.double().numpy().ravel()
        finite = error[np.isfinite(error)]
        error_edges = decode(found["error_edges"], buffers)
        np.testing.assert_array_equal(decode(found["error"], buffers), np.histogram(finite, error_edges)[0])
        check_worst(found["worst"], reference, runtime)


def check_statistics(table: list[dict[str, Any]], side: str, finite: Any) -> None:
    found = {item["name"]: number(item[side]) for item in table}
    expected = {
        "min": finite.min() if len(finite) else math.nan,
        "max": finite.max() if len(finite) else math.nan,
        "mean": finite.mean() if len(finite) else math.nan,
        "std": finite.std() if len(finite) else math.nan,
        "rms": math.sqrt(np.square(finite).mean()) if len(finite) else math.nan,
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)


def check_worst(worst: list[dict[str, Any]], reference: torch.Tensor, runtime: torch.Tensor) -> None:
    """The listed elements have the values of their index, and none that is left out is worse."""
    r, q = (tensor.double() for tensor in (reference, runtime))
    errors = torch.where(r == q, 0.0, (q - r).abs().nan_to_num(math.inf))
    errors = torch.where(r.isnan() & q.isnan(), 0.0, errors)
    shown = []
    for item in worst:
        index = tuple(item["index"])
        assert number(item["reference"]) == pytest.approx(r[index].item(), rel=0, abs=0, nan_ok=True)
        assert number(item["runtime"]) == pytest.approx(q[index].item(), rel=0, abs=0, nan_ok=True)
        shown.append(errors[index].item())
    assert shown == sorted(errors.flatten().tolist(), reverse=True)[: len(shown)]
    assert len(shown) == min(10, int((errors > 0).sum()))


def test_non_finite_values_of_a_tensor_are_counted_by_class(executed: Callable[[str], Executed]) -> None:
    inspection = executed("poisoned").inspection
    row = inspection.gaps.index[inspection.gaps["status"] == "non-finite mismatch"][0]
    found, _ = build_tensor(inspection.analysis, row)
    nan = found["nonfinite"]["classes"].index("nan")
    assert found["nonfinite"]["counts"][0][nan] == 1
    assert found["worst"][0]["runtime"] == "nan"


@pytest.mark.parametrize("row", [-1, 10_000, None, "first"])
def test_no_such_row(row: Any, executed: Callable[[str], Executed]) -> None:
    with pytest.raises(UsageError, match="row"):
        build_tensor(executed("counter").inspection.analysis, row)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


EVIL = "<script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;"


def test_markup_in_names_stays_text(executed: Callable[[str], Executed], monkeypatch: pytest.MonkeyPatch) -> None:
    """A title, an operator, a module or a note from somebody's file must not become markup."""
    from dataclasses import replace

    from etviz.inspection import Inspection

    monkeypatch.setattr("etviz.artifacts.record.record_file._GRAPHS", Recent(1))  # the graph of nobody else
    program = executed("counter")
    found = etviz.load(
        program.path("etdump"),
        etrecord=program.path("etrecord"),
        debug_buffer=program.path("debug_buffer"),
        pte=program.path("pte"),
    )
    findings = replace(found.analysis.findings, title=EVIL, notes=(EVIL,))
    for node in findings.graph.nodes:
        node.kernel = node.module = node.origin = EVIL
        node.stack = f'  File "/home/me/{EVIL.replace(chr(34), "")}.py", line 3, in forward'
    evil = Inspection(Analysis(findings))
    page = html_table(evil.analysis)
    parser = _Tags()
    parser.feed(page)
    assert parser.tags <= {"div", "p", "b", "ul", "li", "table", "thead", "tbody", "tr", "td", "th"}
    assert EVIL in parser.text
    payload, _ = build_payload(evil.analysis)
    assert payload["title"] == EVIL


def test_rich_display_has_all_three_forms(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").inspection
    data, _ = inspection._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == repr(inspection)
    assert "<table" in data["text/html"]
    assert inspection.analysis.digest.verdict in repr(inspection)


def test_html_shows_the_worst_rows(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").inspection
    parser = _Tags()
    parser.feed(html_table(inspection.analysis, 3))
    for _, row in inspection.worst(3).iterrows():
        assert f"{row['introduced_severity']:.3g}" in parser.text
        assert row["source"] in parser.text
        assert row["name"] in parser.text
    assert inspection.diagnosis(look_inside=False)["finding"]["text"] in parser.text


def test_limits_are_those_by_which_a_row_is_judged(sent: tuple[etviz.Inspection, dict[str, Any], list[bytes]]) -> None:
    """The view's colours come from the same limits as the verdict's words."""
    inspection, payload, buffers = sent
    tables = inspection.analysis.tables
    for name, introduced in (("severity", False), ("introduced_severity", True)):
        column = next(item for item in payload["columns"] if item["name"] == name)
        values = decode(column["values"], buffers)
        look, fault = (decode(ends, buffers) for ends in column["limits"])
        assert np.isnan(look[payload["compared"] :]).all()
        for row in range(len(tables)):
            seen = "bad" if values[row] >= fault[row] else "warn" if values[row] >= look[row] else "ok"
            gap = tables.gaps[row]
            known = gap.level if introduced else gap.total_level
            assert known in (seen, "unknown") or gap.status in WRONG


def test_values_that_nobody_reads_are_flagged(executed: Callable[[str], Executed]) -> None:
    """Mean and rstd of each layer norm, and nothing that another instruction reads."""
    inspection = executed("residual_cnn").inspection
    payload, buffers = build_payload(inspection.analysis)
    unused = np.flatnonzero(decode(payload["unused"], buffers))
    gaps = inspection.gaps
    auxiliary = gaps.index[gaps["op"].str.contains("layer_norm") & (gaps["output"] > 0)]
    assert list(unused) == list(auxiliary)
    assert len(unused) > 0
