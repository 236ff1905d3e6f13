"""A report is one file that holds what the view would ask a kernel for, and runs nothing but the view."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import struct
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etviz
from etviz.analysis.analysis import Analysis
from etviz.errors import ArtifactError, UsageError
from etviz.graph.labels import describe_row
from etviz.pipeline.execute import execute
from etviz.view.pages import report_page as report_module
from etviz.view.pages.container import evenly_spaced, in_planes
from etviz.view.pages.html import view_page
from etviz.view.pages.report_page import held_rows
from etviz.view.payload.program_payload import build_payload
from etviz.view.payload.tensor import build_tensor
from tests.markup import IMAGE, MARKUP, poisoned_names
from tests.programs import Executed

VOID = {"meta", "img", "br", "link", "wbr"}


class Page(HTMLParser):
    """A report as an HTML parser reads it: its elements, and the text inside of them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_bytes()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open = [""]
        self.feed(self.source.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1], data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str, at: int = 0) -> str:
        return [text for name, text in self.texts if name == tag][at]

    def text_of_body(self) -> str:
        return "".join(text for name, text in self.texts if name not in {"script", "style", "title"})


class Container:
    """The data of a report, read as js/kernel/container.ts reads it."""

    def __init__(self, page: Page) -> None:
        data = gzip.decompress(base64.b64decode(page.text("script", 0), validate=True))
        size = struct.unpack("<I", data[:4])[0]
        self.header = json.loads(data[4 : 4 + size])
        self._data = data[4 + size :]
        assert (4 + size) % 8 == 0

    def buffers(self, ids: list[int]) -> list[bytes]:
        offsets, lengths = self.header["offsets"], self.header["lengths"]
        assert all(offset % 8 == 0 for offset in offsets)
        even = {int(k): ends for k, ends in self.header["even"].items()}
        held = {k: self._data[offsets[k] : offsets[k] + lengths[k]] for k in ids}
        for k in set(ids).intersection(self.header["planes"]):
            held[k] = np.frombuffer(held[k], np.uint8).reshape(8, -1).T.tobytes()
        return [np.linspace(*even[k]).tobytes() if k in even else held[k] for k in ids]

    def payload(self) -> tuple[dict[str, Any], list[bytes]]:
        return self.header["payload"], self.buffers(self.header["payload_buffers"])

    def tensor(self, row: int) -> tuple[dict[str, Any], list[bytes]]:
        held = self.header["tensors"][str(row)]
        return held["result"], self.buffers(held["buffers"])


def test_evenly_spaced_values_are_their_ends() -> None:
    even = [np.linspace(-0.3, 7.7e-3, 65), np.arange(9.0) - 0.5, np.zeros(12), np.linspace(-5e307, 5e307, 33) * 2]
    for values in even[:3]:
        assert evenly_spaced(values.tobytes()) == (values[0], values[-1], len(values))
    others = [np.nextafter(even[0], 1), np.full(8, np.nan), np.array([-0.0] * 8), np.array([0.0, np.inf] * 4), even[3]]
    assert all(evenly_spaced(values.tobytes()) is None for values in others)
    assert [evenly_spaced(b""), evenly_spaced(bytes(31))] == [None, None]


def test_numbers_are_kept_in_planes_where_these_compress_better() -> None:
    numbers = np.random.default_rng(0).standard_normal(1000)
    planes = in_planes(numbers.tobytes())
    assert planes is not None
    assert (planes[0], planes[999], planes[1000]) == (
        numbers.tobytes()[0],
        numbers.tobytes()[7992],
        numbers.tobytes()[1],
    )
    assert np.frombuffer(planes, np.uint8).reshape(8, -1).T.tobytes() == numbers.tobytes()
    assert [in_planes(given) for given in (b"", bytes(31), np.random.default_rng(1).bytes(800))] == [None, None, None]


@pytest.fixture
def residual(executed: Callable[[str], Executed]) -> etviz.Inspection:
    return executed("residual_cnn").inspection


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_it_answers_what_a_kernel_answers(program: Executed, tmp_path: Path) -> None:
    inspection = program.inspection
    data = Container(Page(inspection.to_html(tmp_path / "report.html", tensors="worst")))
    payload, buffers = build_payload(inspection.analysis)
    assert data.payload() == (json.loads(json.dumps(payload)), buffers)
    rows = range(payload["compared"])
    assert set(data.header["tensors"]) == {str(row) for row in rows}
    assert data.header["missing"] == {}
    for row in rows:
        result, buffers = build_tensor(inspection.analysis, row)
        assert data.tensor(row) == (json.loads(json.dumps(result)), buffers)


@pytest.mark.parametrize("name", ["encoder", "residual_cnn"])
def test_where_the_error_is_comes_with_the_worst_rows(
    name: str, executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    inspection = executed(name).load()
    assert (len(inspection.gaps) > report_module.MAPPED) == (name == "encoder")
    data = Container(Page(inspection.to_html(tmp_path / "report.html", tensors="worst")))
    held = data.header["answers"]
    worst = [int(row) for row in inspection.worst(report_module.MAPPED).index]
    maps = {f"{method}:{row}" for method in ("error_map", "channels", "scatter") for row in worst}
    assert set(held) == maps | {"timeline:0"}
    for row in worst:
        reference, runtime = (tensor.double() for tensor in inspection.tensors(row))
        error = (runtime - reference).abs()
        answer = held[f"error_map:{row}"]
        cells = np.frombuffer(data.buffers(answer["buffers"])[0], "<f4")
        assert len(cells) == answer["result"]["height"] * answer["result"]["width"]
        assert cells.max() == pytest.approx(float(error.max()), rel=1e-6)
        channels = held[f"channels:{row}"]
        assert channels["result"]["axis"] == (1 if runtime.ndim >= 4 else runtime.ndim - 1)
        assert channels["result"]["size"] == runtime.shape[channels["result"]["axis"]]
    without = Container(Page(inspection.to_html(tmp_path / "without.html", tensors="histograms")))
    assert set(without.header["answers"]) == {"timeline:0"}


def test_operators_inside_a_delegate_have_error_maps_too(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    zoomed = executed("residual_cnn").load()
    inner = zoomed.zoom(int(zoomed.gaps.index[zoomed.gaps["kind"] == "delegate"][0]))
    data = Container(Page(zoomed.to_html(tmp_path / "zoomed.html", tensors="worst")))
    assert {f"error_map:{len(zoomed.gaps) + int(row)}" for row in inner.worst(2).index} <= set(data.header["answers"])


def test_the_policy_lets_only_the_view_run(residual: etviz.Inspection, tmp_path: Path) -> None:
    page = Page(residual.to_html(tmp_path / "report.html"))
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == hash_of(page.text("script", 1))
    assert rules["style-src"] == hash_of(page.text("style"))
    assert set(rules) - {"default-src", "script-src", "style-src"} == {
        "base-uri",
        "form-action",
        "require-trusted-types-for",
        "trusted-types",
    }
    assert not {"connect-src", "img-src", "frame-src"} & set(rules)


def test_it_is_one_page_that_refers_to_nothing(residual: etviz.Inspection, tmp_path: Path) -> None:
    page = Page(residual.to_html(tmp_path / "report.html", title="Nightly <1>"))
    assert page.source.startswith(b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">')
    assert page.text("title") == "Nightly <1> · etviz"
    assert page.text("h1") == "Nightly <1>"
    assert Container(page).header["payload"]["title"] == "Nightly <1>"
    for _, attributes in page.elements:
        assert not {"src", "href", "srcset", "action", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert [script.get("id") for script in page.all("script")] == ["etviz-data", None]
    assert not re.search(r"@import|url\(", page.text("style"))


def test_without_a_script_verdict_and_worst_rows_are_there(residual: etviz.Inspection, tmp_path: Path) -> None:
    text = Page(residual.to_html(tmp_path / "report.html")).text_of_body()
    assert residual.analysis.digest.verdict in text
    for fact in residual.analysis.digest.facts:
        assert f"{fact.label}: {fact.value}" in text
    for _, row in residual.worst(5).iterrows():
        assert describe_row(row).partition(" ")[2] in text
    assert f"etviz {etviz.__version__}" in text


def test_a_run_without_debug_buffer_has_a_report_that_says_so(
    executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    made = executed("residual_cnn")
    inspection = etviz.load(made.path("etdump"), pte=made.path("pte"))
    page = Page(inspection.to_html(tmp_path / "report.html"))
    assert "There is no debug buffer" in page.text_of_body()
    assert page.all("table") == []
    assert Container(page).header["tensors"] == {}


def test_tensors_trade_size_for_detail(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    program = executed("encoder")
    run = execute(program.path("pte"), [list(program.inputs), [program.inputs[0] + 1]], workdir=tmp_path)
    twice = program.load(etdump=run.etdump, debug_buffer=run.debug_buffer, inputs=None)
    assert len(twice.gaps) > report_module.DETAILED
    paths = {mode: twice.to_html(tmp_path / f"{mode}.html", tensors=mode) for mode in report_module.TENSORS}
    held = {mode: Container(Page(path)).header["tensors"] for mode, path in paths.items()}
    rows = {str(row) for row in twice.gaps.index}
    assert held["none"] == {}
    assert set(held["histograms"]) == set(held["worst"]) == rows
    assert all(item["result"]["worst"] is None for item in held["histograms"].values())
    listed = {row for row, item in held["worst"].items() if item["result"]["worst"] is not None}
    assert listed == {str(row) for row in twice.worst(report_module.DETAILED).index}
    sizes = [paths[mode].stat().st_size for mode in ("none", "histograms", "worst")]
    assert sizes == sorted(set(sizes))


def test_a_row_without_tensors_keeps_the_reason(
    residual: etviz.Inspection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_others(analysis: Analysis, row: int, *, worst: bool, beside: None) -> Any:
        if row == 3:
            raise UsageError("row 3 has no reference tensor")
        return build_tensor(analysis, row, worst=worst)

    monkeypatch.setattr(report_module, "build_tensor", only_others)
    data = Container(Page(residual.to_html(tmp_path / "report.html")))
    assert data.header["missing"] == {"3": "row 3 has no reference tensor"}
    assert set(data.header["tensors"]) == {str(row) for row in residual.gaps.index if row != 3}


def test_unknown_tensors_are_refused_before_anything_is_written(residual: etviz.Inspection, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'none', 'histograms', 'worst', found 'everything'"):
        residual.to_html(tmp_path / "report.html", tensors="everything")
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_many_rows_holds_the_histograms_of_the_worst(residual: etviz.Inspection) -> None:
    analysis = residual.analysis
    count = len(residual.gaps)
    assert list(held_rows(analysis, count)) == list(range(count))
    residual.row(0).note = "kept"
    few = held_rows(analysis, count, most=2)
    residual.row(0).note = ""
    finding = analysis.finder.finding()
    assert finding is not None
    assert {0, finding.row, *map(int, residual.worst(2).index)} <= set(few) < set(range(count))


def test_four_hundred_rows_fit_into_three_megabytes(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    inspection = executed("encoder").inspection
    least = inspection.to_html(tmp_path / "none.html", tensors="none").stat().st_size
    whole = inspection.to_html(tmp_path / "histograms.html").stat().st_size
    assert least + 400 * (whole - least) / len(inspection.gaps) < 3_000_000


def test_names_are_text_wherever_they_come_from(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    inspection = poisoned_names(executed("residual_cnn"), tmp_path)
    page = Page(inspection.to_html(tmp_path / "report.html", title=f"{inspection.analysis.title} {MARKUP}"))
    assert page.text("title") == f"{inspection.analysis.title} {MARKUP} · etviz"
    assert [len(page.all(tag)) for tag in ("img", "style", "script", "title")] == [0, 1, 2, 1]
    assert MARKUP[:40] in page.text_of_body()
    assert IMAGE in page.text_of_body()
    assert MARKUP in json.dumps(Container(page).header, ensure_ascii=False).replace('\\"', '"')


def test_a_file_name_that_is_no_text_can_be_a_title(residual: etviz.Inspection, tmp_path: Path) -> None:
    page = Page(residual.to_html(tmp_path / "report.html", title=b"model-\xff.pte".decode("utf-8", "surrogateescape")))
    assert page.text("h1") == "model-\ufffd.pte"
    assert Container(page).header["payload"]["title"] == "model-\udcff.pte"


def test_an_interrupt_keeps_the_report_that_was_there(
    residual: etviz.Inspection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    path = residual.to_html(tmp_path / "report.html")
    before = path.read_bytes()
    monkeypatch.setattr(report_module, "build_tensor", interrupt)
    with pytest.raises(KeyboardInterrupt):
        residual.to_html(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_front_end_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"report\.css: the view of the report is not built.*make install"):
        view_page("title", "", b"", tmp_path)


def test_what_would_end_the_script_is_spelled_otherwise(tmp_path: Path) -> None:
    (tmp_path / "report.js").write_text("const a = '</SCRIPT><!-- <script>';\r\n")
    (tmp_path / "report.css").write_text("a::after { content: '</style>' }")
    (tmp_path / "report.html").write_bytes(view_page("title", "", b"data", tmp_path))
    page = Page(tmp_path / "report.html")
    assert page.text("script", 1) == r"const a = '\x3C/SCRIPT>\x3C!-- \x3Cscript>';" + "\n"
    assert page.text("style") == r"a::after { content: '\3C /style>' }"
