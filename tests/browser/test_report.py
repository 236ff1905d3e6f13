"""A report opened from a folder: the linked view works without kernel and network, on paper and without scripts too."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect
from pypdf import PdfReader

import etviz
from etviz.graph.ir import Graph
from etviz.graph.labels import describe_row
from tests.browser.accessibility import serious
from tests.browser.geometry import assert_laid_out, box, inside
from tests.browser.network import OfflineGuard
from tests.kinds.making import Made
from tests.markup import IMAGE, MARKUP, poisoned_names, rewritten
from tests.programs import Executed

WIDE: ViewportSize = {"width": 1400, "height": 900}
NARROW: ViewportSize = {"width": 480, "height": 900}
Scheme = Literal["light", "dark"]


class Reader:
    """Someone who was sent a report: opens it from the disk; every request and every error is kept."""

    def __init__(self, page: Page, guard: OfflineGuard) -> None:
        self.page, self._guard = page, guard
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._hear: dict[Any, Callable[[Any], None]] = {
            "request": lambda request: self.requests.append(request.url),
            "console": lambda message: self.errors.append(message.text),
            "pageerror": lambda error: self.errors.append(str(error)),
        }
        for event, hear in self._hear.items():
            page.on(event, hear)

    def open(self, path: Path) -> Locator:
        """Open the file and wait for the view."""
        self.page.goto(path.as_uri())
        view = self.page.locator(".etviz")
        view.locator(".etv-table [data-row]").first.wait_for()
        return view

    def leave(self) -> None:
        """Nothing may have been asked for but the file, and nothing may have gone wrong."""
        for event, hear in self._hear.items():
            self.page.remove_listener(event, hear)
        self._guard.assert_offline()
        assert self.errors == []
        assert len(self.requests) == 1, self.requests


@pytest.fixture(scope="module")
def pages(browser: Browser) -> Iterator[dict[bool, tuple[Page, OfflineGuard]]]:
    """A page with scripts and one without, which all tests open one after the other: a report keeps nothing."""
    contexts = {scripts: browser.new_context(java_script_enabled=scripts) for scripts in (True, False)}
    guards = {scripts: OfflineGuard(context) for scripts, context in contexts.items()}
    yield {scripts: (context.new_page(), guards[scripts]) for scripts, context in contexts.items()}
    for context in contexts.values():
        context.close()


@pytest.fixture
def reader(pages: dict[bool, tuple[Page, OfflineGuard]]) -> Iterator[Callable[..., Reader]]:
    """Make readers; the next one of a page takes it from the one before."""
    reads: dict[bool, Reader] = {}

    def make(viewport: ViewportSize = WIDE, scheme: Scheme = "light", scripts: bool = True) -> Reader:
        page, guard = pages[scripts]
        if scripts in reads:
            reads.pop(scripts).leave()
        page.goto("about:blank")
        page.mouse.move(0, 0)
        page.set_viewport_size(viewport)
        page.emulate_media(media="null", color_scheme=scheme)
        reads[scripts] = Reader(page, guard)
        return reads[scripts]

    yield make
    for person in reads.values():
        person.leave()


@pytest.fixture(scope="package")
def inspection(executed: Callable[[str], Executed]) -> etviz.Inspection:
    return executed("residual_cnn").inspection


@pytest.fixture(scope="package")
def report(inspection: etviz.Inspection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inspection.to_html(tmp_path_factory.mktemp("report") / "report.html", tensors="worst")


def read_rows(inspection: etviz.Inspection) -> int:
    """How many values are read by anyone: the table leaves the others out at first."""
    unused = inspection.analysis.tables.unused
    assert unused
    return len(inspection.gaps) - len(unused)


def selected(view: Locator) -> Locator:
    return view.locator(".etv-table [data-row][aria-selected=true]")


@pytest.mark.parametrize("scheme", get_args(Scheme))
def test_nothing_serious_keeps_anyone_out(reader: Callable[..., Reader], report: Path, scheme: Scheme) -> None:
    view = reader(scheme=scheme).open(report)
    found = serious(view)
    for tab in view.locator(".etv-chart-tabs [role=tab]").all():
        tab.click()
        found += serious(view.locator(".etv-tensor-pane"))
    view.get_by_role("button", name="Graph", exact=True).click()
    found += serious(view.locator(".etv-tree-pane"))
    for name in ("Facts", "Columns"):
        view.get_by_role("button", name=name).click()
        found += serious(view)
        view.page.keyboard.press("Escape")
    view.get_by_role("button", name="Time", exact=True).click()
    expect(view.get_by_role("img", name=re.compile("Timed events"))).to_be_visible()
    found += serious(view.locator(".etv-profile"))
    view.get_by_role("button", name="All keys").click()
    found += serious(view)
    assert found == [], "\n".join(found)


def test_the_profile_is_saved_as_a_picture(reader: Callable[..., Reader], report: Path) -> None:
    view = reader().open(report)
    box = view.locator("[role=search] input").first
    box.fill("> profile as PNG")
    with view.page.expect_download() as download:
        box.press("Enter")
    assert download.value.suggested_filename.endswith("-profile.png")
    with Image.open(download.value.path()) as picture:
        assert picture.format == "PNG"
        plot = view.locator(".etv-profile-plot").bounding_box()
        assert plot is not None
        assert picture.width == 2 * round(plot["width"])
        assert len(picture.convert("RGB").getcolors(1 << 16) or ()) > 20


def test_the_timeline_reads_and_selects(reader: Callable[..., Reader], report: Path, screenshots: Path) -> None:
    view = reader().open(report)
    view.locator(".etv-table [data-row]").first.focus()
    view.page.keyboard.press("m")
    plot = view.get_by_role("img", name=re.compile("Timed events"))
    expect(view.locator(".etv-time-note")).to_contain_text("logging values is in these times")
    plot.focus()
    reading = view.locator(".etv-profile-reading")
    for key in ("ArrowRight", "Home", "ArrowUp", "ArrowDown"):
        view.page.keyboard.press(key)
    expect(reading).to_contain_text(re.compile(r"^#"))
    name = reading.locator("b").inner_text()
    view.page.keyboard.press("Enter")
    expect(selected(view)).to_contain_text(name)
    expect(view.locator(".etv-time-selected")).not_to_have_count(0)
    view.page.screenshot(path=screenshots / "report-timeline.png")


def test_a_selected_row_shows_its_histograms_and_its_node(
    reader: Callable[..., Reader], report: Path, inspection: etviz.Inspection
) -> None:
    view = reader().open(report)
    expect(view).to_contain_text(inspection.analysis.digest.verdict)
    expect(view.locator(".etv-table [data-row]")).to_have_count(read_rows(inspection))
    view.locator(".etv-table [data-row]", has_text="cumsum").first.click()
    expect(view.locator("svg[role=img]")).to_have_count(2)
    paths = view.locator("svg[role=img] path").all()
    assert paths
    assert all(path.get_attribute("d") for path in paths)
    expect(view.locator(".etv-detail-body")).to_contain_text("Worst elements")
    expect(view.locator("[role=treegrid] [aria-selected=true]")).to_contain_text("cumsum")
    view.locator("[role=treegrid] [data-node]", has_text="layer_norm").first.click()
    expect(selected(view)).to_contain_text("layer_norm")


def test_histograms_are_painted_soon_after_the_click(reader: Callable[..., Reader], report: Path) -> None:
    view = reader().open(report)
    view.locator(".etv-table [data-row]").first.click()
    expect(view.locator("svg[role=img]")).to_have_count(2)
    took = (
        view.locator(".etv-table [data-row]")
        .nth(1)
        .evaluate(
            """(row) => new Promise((resolve) => {
            const title = () => document.querySelector(".etv-detail-head").nextSibling.textContent;
            const before = title(), start = performance.now();
            row.click();
            const look = () => (title() === before || document.querySelectorAll("svg[role=img]").length < 2)
                ? requestAnimationFrame(look) : resolve(performance.now() - start);
            look();
        })"""
        )
    )
    assert took < 500


def test_a_delegate_unfolds_to_its_operators(reader: Callable[..., Reader], report: Path) -> None:
    view = reader().open(report)
    tree = view.locator("[role=treegrid]")
    nodes = tree.locator("[data-node]")
    before = nodes.count()
    nodes.filter(has_text="conv2d").first.locator(".etv-twisty").click()
    expect(tree).to_contain_text("convolution")
    assert nodes.count() > before
    nodes.filter(has_text="convolution").first.click()
    expect(view.locator(".etv-detail-body")).to_contain_text("delegate")


def test_rows_are_ranked_by_what_they_introduce_in_one_click(
    reader: Callable[..., Reader], report: Path, inspection: etviz.Inspection
) -> None:
    view = reader().open(report)
    view.locator(".etv-table-pane").get_by_role("button", name="introduced", exact=True).click()
    expect(view.locator("[role=columnheader][aria-sort='descending']")).to_contain_text("introduced")
    read = inspection.gaps.drop(index=list(inspection.analysis.tables.unused))
    worst = read["introduced_severity"].idxmax()
    expect(view.locator(".etv-table [data-row][aria-rowindex='2']")).to_have_attribute("data-row", str(worst))
    assert view.locator(".etv-table [data-row] .etv-gauge-part").count() > 0


def test_the_map_reads_the_largest_error_and_its_element(
    reader: Callable[..., Reader], report: Path, inspection: etviz.Inspection
) -> None:
    person = reader()
    view = person.open(report)
    worst = int(inspection.worst(1).index[0])
    view.locator(f".etv-table [data-row='{worst}']").click()
    view.get_by_role("tab", name="Error map").click()
    reference, runtime = (tensor.double() for tensor in inspection.tensors(worst))
    error = (runtime - reference).abs()
    grid = view.locator(".etv-grid")
    expect(grid).to_have_count(1)
    grid.focus()
    person.page.keyboard.press("ArrowRight")
    reading = view.locator(".etv-grid-reading")
    places = [str(place.tolist()) for place in (error == error.max()).nonzero()]
    expect(reading).to_contain_text(re.compile("|".join(map(re.escape, places))))
    shown = re.search(r"\|error\| (\S+)", reading.inner_text())
    assert shown is not None
    assert float(shown[1]) == pytest.approx(float(error.max()), rel=1e-3)
    painted = grid.locator("canvas").evaluate(
        "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"
        ".filter((value, at) => at % 4 === 3 && value > 0).length"
    )
    assert painted > 0


def test_without_a_debug_buffer_the_view_says_so_and_ranks_instructions_by_latency(
    reader: Callable[..., Reader], executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    program = executed("residual_cnn")
    blind = etviz.load(program.path("etdump"), pte=program.path("pte"))
    person = reader()
    person.page.goto(blind.to_html(tmp_path / "report.html").as_uri())
    view = person.page.locator(".etviz")
    expect(view.locator(".etv-header")).to_contain_text("There is no debug buffer")
    expect(view.locator("[role=treegrid]")).to_contain_text("cumsum")
    expect(view.locator(".etv-table [data-row]")).to_have_count(len(blind.coverage))
    expect(view.locator("[role=columnheader][aria-sort='descending']")).to_contain_text("latency")
    slowest = max(blind.analysis.latency, key=blind.analysis.latency.__getitem__)
    expect(view.locator(".etv-table [data-row][aria-rowindex='2']")).to_contain_text(f"#{slowest} ")
    expect(view.locator("[role=columnheader]", has_text="severity")).to_have_count(0)


def test_table_sorts_and_filters(reader: Callable[..., Reader], report: Path) -> None:
    view = reader().open(report)
    expect(view.locator("[role=columnheader][aria-sort='descending']")).to_contain_text("introduced")
    view.locator("[role=columnheader]", has_text="operator").first.click()
    expect(view.locator("[role=columnheader][aria-sort='ascending']")).to_contain_text("operator")
    view.locator("input[type=search], [role=search] input").first.fill("layer_norm")
    expect(view.locator(".etv-table [data-row]")).to_have_count(1)
    view.locator("input[type=search]").fill("layer_norm is:any")
    expect(view.locator(".etv-table [data-row]")).to_have_count(3)


def test_a_link_opens_the_report_where_it_says(reader: Callable[..., Reader], report: Path) -> None:
    person = reader()
    person.page.goto(f"{report.as_uri()}#row=2&tab=map&filter=is:any")
    view = person.page.locator(".etviz")
    expect(selected(view)).to_have_attribute("data-row", "2")
    expect(view.get_by_role("tab", name="Error map")).to_have_attribute("aria-selected", "true")
    expect(view.locator("input[type=search]")).to_have_value("is:any")


def test_the_profile_selects_filters_and_reads(reader: Callable[..., Reader], report: Path) -> None:
    person = reader()
    view = person.open(report)
    plot = view.locator(".etv-profile-plot")
    expect(plot.locator("canvas")).not_to_have_js_property("width", 300)  # as it is before anything is drawn
    painted = plot.locator("canvas").evaluate(
        "(canvas) => new Set(new Uint32Array(canvas.getContext('2d')"
        ".getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"
    )
    assert painted > 5
    place = plot.bounding_box()
    assert place is not None
    middle, left, right = place["y"] + 40, place["x"] + 40, place["x"] + place["width"] - 50
    person.page.mouse.move(left, middle)
    expect(view.locator(".etv-profile-reading b")).to_contain_text("#0")
    person.page.mouse.click(right, middle)
    last = selected(view).inner_text()
    person.page.mouse.click(left, middle)
    expect(selected(view)).to_contain_text("#0")
    assert "#0" not in last
    before = view.locator(".etv-table [data-row]").count()
    person.page.mouse.move(left, middle)
    person.page.mouse.down()
    person.page.mouse.move(left + 200, middle, steps=3)
    person.page.mouse.up()
    expect(view.locator("input[type=search]")).to_have_value(re.compile(r"at:0\.\.\d+"))
    assert view.locator(".etv-table [data-row]").count() < before


@pytest.mark.parametrize(("tensors", "said"), [("none", "holds no histograms"), ("histograms", 'tensors="worst"')])
def test_it_says_what_it_does_not_hold(
    reader: Callable[..., Reader], inspection: etviz.Inspection, tmp_path: Path, tensors: str, said: str
) -> None:
    view = reader().open(inspection.to_html(tmp_path / "report.html", tensors=tensors))
    view.locator(".etv-table [data-row]").first.click()
    expect(view.locator(".etv-detail-body")).to_contain_text(said)
    expect(view.locator(".etv-detail-body")).to_contain_text("Metrics")
    expect(view.get_by_role("button", name="Retry")).to_have_count(0)


def test_it_shows_where_the_error_of_the_worst_rows_is_and_computes_nothing(
    reader: Callable[..., Reader], report: Path, screenshots: Path
) -> None:
    person = reader()
    view = person.open(report)
    view.locator(".etv-table [data-row]").first.click()
    for tab, picture in (("Error map", ".etv-grid"), ("Channels", ".etv-channel-bars"), ("Scatter", ".etv-grid")):
        view.get_by_role("tab", name=tab).click()
        expect(view.locator(f".etv-chart {picture}")).to_have_count(1)
        person.page.screenshot(path=screenshots / f"report-{tab.replace(' ', '-').lower()}.png")
    expect(view.locator(".etv-attribute, .etv-zoom")).to_have_count(0)


def test_markup_in_names_does_not_run(
    reader: Callable[..., Reader], executed: Callable[[str], Executed], tmp_path: Path, screenshots: Path
) -> None:
    poisoned = poisoned_names(executed("residual_cnn"), tmp_path)
    path = poisoned.to_html(tmp_path / f"{IMAGE}.html", tensors="worst", title=MARKUP)
    person = reader()
    view = person.open(path)
    rows = view.locator(".etv-table [data-row]").all()
    assert rows
    for row in rows:
        row.hover()
        row.click()
        expect(view.locator("svg[role=img]")).to_have_count(2)
    view.get_by_role("button", name="Expand all").click()
    view.get_by_role("button", name="Modules").click()
    expect(view.locator("[role=treegrid]")).to_contain_text("<script>")
    expect(person.page).to_have_title(f"{MARKUP} · etviz")
    counts = person.page.evaluate(
        "['img', 'script', 'style', 'iframe'].map((tag) => document.querySelectorAll(tag).length)"
    )
    assert counts == [0, 1, 1, 0]
    person.page.screenshot(path=screenshots / "report-markup.png")


def test_operators_of_long_modules_stay_legible(
    reader: Callable[..., Reader], executed: Callable[[str], Executed], tmp_path: Path, screenshots: Path
) -> None:
    """The module gives way on the left, in table and tree; the whole path is in the tooltip."""
    path = "feature_extraction_backbone.encoder.layers.3.shifted_window_attention_block_self_attention_output"

    def lengthen(graph: Graph) -> None:
        for node in graph.nodes:
            node.module = path
        for inner in graph.subgraphs.values():
            lengthen(inner)

    report = rewritten(executed("residual_cnn"), tmp_path, lengthen).to_html(tmp_path / "long.html", tensors="worst")
    for viewport in (WIDE, NARROW):
        view = reader(viewport).open(report)
        names = view.locator(".etv-row > .etv-first:has(.etv-place), .etv-node-label:has(.etv-place):visible")
        cut = """(names) => names.map((name) => [".etv-place", null].map((part) => {
            const { clientWidth, scrollWidth } = part ? name.querySelector(part) : name;
            return [clientWidth, scrollWidth];
        }))"""
        found = names.evaluate_all(cut)
        assert len(found) > 5
        for (place, needed), (width, whole) in found:
            assert 8 < place < needed
            assert whole <= width
        view.locator(".etv-row > .etv-first").first.hover()
        expect(view.locator(".etv-tip")).to_contain_text(path)
        view.page.screenshot(path=screenshots / f"report-long-{viewport['width']}.png")


def test_which_output_it_is_stays_legible_and_no_bar_is_below_words(
    reader: Callable[..., Reader], made: Callable[[str], Made], tmp_path: Path
) -> None:
    outputs = made("outputs").load("record").to_html(tmp_path / "outputs.html")
    nonfinite = made("nonfinite").load("record").to_html(tmp_path / "nonfinite.html")
    words = """(cells) => cells.map((cell) => {
        const words = new Range(), bar = cell.querySelector(".etv-gauge").getBoundingClientRect();
        words.selectNode(cell.lastChild);
        return [bar.width && bar.right, words.getBoundingClientRect().left];
    })"""
    for width in (1400, 1024, 800, 480, 390):
        view = reader({"width": width, "height": 900}).open(outputs)
        named = view.locator(".etv-row > .etv-first:has(.etv-at)", has_text=re.compile(r"^#\d+\[\d+\]"))
        assert named.count() > 1
        whole = """(cells) => cells.map((cell) => {
            const at = cell.querySelector(".etv-at");
            return at.offsetLeft + at.offsetWidth <= cell.clientWidth;
        })"""
        assert all(named.evaluate_all(whole))
        found = reader({"width": width, "height": 900}).open(nonfinite).locator("[data-nonfinite]:has(.etv-gauge)")
        assert found.count() > 0
        for end, start in found.evaluate_all(words):
            assert end <= start


def test_injected_script_would_be_stopped_by_the_policy(reader: Callable[..., Reader], report: Path) -> None:
    person = reader()
    person.open(report)
    ran = person.page.evaluate(
        """() => {
            const script = document.createElement("script");
            try { script.textContent = "document.title = 'hacked'"; } catch { return "refused"; }
            document.body.append(script);
            return document.title;
        }"""
    )
    assert ran == "refused"
    blocked = person.page.evaluate(
        "(url) => fetch(url).then(() => 'answered', () => 'stopped')", "https://example.org/"
    )
    assert blocked == "stopped"
    assert all("Content Security Policy" in error or "TrustedScript" in error for error in person.errors)
    person.errors.clear()


def test_without_javascript_the_worst_rows_are_shown(
    reader: Callable[..., Reader], report: Path, inspection: etviz.Inspection, screenshots: Path
) -> None:
    finding = inspection.diagnosis(look_inside=False)["finding"]
    for name, viewport in (("wide", WIDE), ("narrow", NARROW)):
        page = reader(viewport, scripts=False).page
        page.goto(report.as_uri())
        expect(page.locator(".etv-summary-verdict")).to_contain_text(inspection.analysis.digest.verdict)
        expect(page.locator(".etv-summary-verdict + p")).to_have_text(finding["text"])
        expect(page.locator(".etv-summary tbody tr")).to_have_count(len(inspection.gaps))
        stems = page.locator(".etv-summary svg rect")
        expect(stems).to_have_count(read_rows(inspection))
        assert max(float(stem.get_attribute("height") or 0) for stem in stems.all()) > 5
        expect(page.locator("noscript p")).to_be_visible()
        page.screenshot(path=screenshots / f"report-without-script-{name}.png")


def test_damaged_data_leaves_the_summary_and_says_why(
    reader: Callable[..., Reader], report: Path, inspection: etviz.Inspection, tmp_path: Path
) -> None:
    text = report.read_text("utf-8")
    start = text.index('id="etviz-data">') + 400
    damaged = tmp_path / "damaged.html"
    damaged.write_text(text[:start] + text[start + 400 :], "utf-8")
    page = reader().page
    page.goto(damaged.as_uri())
    expect(page.get_by_role("alert")).to_contain_text("The linked view can't be shown")
    expect(page.locator(".etv-summary-verdict")).to_contain_text(inspection.analysis.digest.verdict)


def _letters(text: str) -> str:
    """Without spaces and ligatures, which a PDF has where it likes."""
    return "".join(unicodedata.normalize("NFKC", text).split())


def test_paper_has_the_verdict_and_the_worst_rows(
    reader: Callable[..., Reader], report: Path, inspection: etviz.Inspection, screenshots: Path
) -> None:
    page = reader(scheme="dark").open(report).page
    pdf = PdfReader(BytesIO(page.pdf(format="A4")))
    assert len(pdf.pages) == 1
    text = _letters(pdf.pages[0].extract_text())
    assert _letters(inspection.analysis.digest.verdict) in text
    for _, row in inspection.worst(10).iterrows():
        assert _letters(describe_row(row).partition(" ")[2]) in text
    page.set_viewport_size({"width": 700, "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.screenshot(path=screenshots / "report-paper.png")


def test_a_note_travels_with_the_report_and_paper_has_the_profile(
    reader: Callable[..., Reader], inspection: etviz.Inspection, tmp_path: Path
) -> None:
    note, row = "ask <b>upstream</b>", int(inspection.worst(1).index[0])
    inspection.row(row).note = note
    path = inspection.to_html(tmp_path / "note.html")
    inspection.row(row).note = ""
    view = reader().open(path)
    view.locator(f".etv-table [data-row='{row}']").click()
    expect(view.locator(".etv-detail-body .etv-note")).to_have_text(note)
    plain = reader(scripts=False).page
    plain.goto(path.as_uri())
    view.page.emulate_media(media="print")
    for page in (plain, view.page):
        expect(page.locator(".etv-summary")).to_contain_text(note)
        stems = page.locator(".etv-summary svg rect")
        expect(stems).to_have_count(read_rows(inspection))
        assert stems.evaluate_all("all => Math.max(...all.map((one) => one.getBoundingClientRect().height))") > 5


def test_a_key_brings_its_chart_below_the_head(reader: Callable[..., Reader], report: Path) -> None:
    view = reader({"width": 1280, "height": 560}).open(report)
    view.locator(".etv-table [data-row]").first.click()
    expect(view.locator(".etv-chart-tabs")).to_have_count(1)
    before = box(view.locator(".etv-chart-tabs"))
    view.page.keyboard.press("2")
    expect(view.locator(".etv-chart .etv-grid")).to_have_count(1)
    head, tabs, pane = (box(view.locator(name)) for name in (".etv-detail-head", ".etv-chart-tabs", ".etv-tensor-pane"))
    assert tabs["y"] < before["y"]
    assert tabs["y"] >= head["y"] + head["height"] - 1
    assert inside(tabs, pane)


def test_a_press_on_an_execution_shows_its_rows_in_every_pane(
    reader: Callable[..., Reader], made: Callable[[str], Made], tmp_path: Path
) -> None:
    inspection = made("different").load("exact")
    view = reader().open(inspection.to_html(tmp_path / "runs.html"))
    gaps = inspection.gaps
    view.locator(".etv-table [data-row]").last.click()
    instruction = gaps.instruction[int(selected(view).get_attribute("data-row") or -1)]
    cells = view.locator(".etv-run")
    expect(cells).to_have_count(gaps.input_index.nunique())
    for run in (2, 1, 0):
        assert box(cells.nth(run))["width"] >= 10
        cells.nth(run).click()
        expect(selected(view)).to_have_count(1)
        row = gaps.loc[int(selected(view).get_attribute("data-row") or -1)]
        assert (row.input_index, row.instruction) == (run, instruction)
        expect(view.locator(".etv-detail-title")).to_contain_text(f"#{instruction}{f'@{run}' if run else ''} ")


def test_the_whole_screen_and_back(reader: Callable[..., Reader], report: Path) -> None:
    """The button says where it leads; in a window that is narrow the view scrolls."""
    view = reader(NARROW).open(report)
    button = view.locator(".etv-header-buttons button").last
    for text, large in (("Close", True), ("Full screen", False)):
        button.click()
        expect(view.get_by_role("button", name=text, exact=True)).to_be_visible()
        assert view.evaluate("e => e.matches(':fullscreen')") == large
    view.page.keyboard.press("f")
    expect(button).to_have_text("Close")
    assert view.evaluate("e => { e.scrollTop = 1e6; return e.scrollTop > 0; }")
    view.page.keyboard.press("f")
    expect(button).to_have_attribute("aria-label", "Full screen")


def test_too_narrow_for_any_pane_it_says_so_and_opens_large(reader: Callable[..., Reader], report: Path) -> None:
    view = reader().open(report)
    view.evaluate("e => { e.parentElement.style.width = '97px'; }")
    expect(view).to_contain_text("Too narrow for the view")
    expect(view.locator(".etv-table")).to_have_count(0)
    button = view.get_by_role("button", name="Open large")
    assert inside(box(button), box(view))
    assert button.evaluate("e => e.scrollWidth <= e.clientWidth")
    button.click()
    expect(view.locator(".etv-table [data-row]").first).to_be_visible()
    view.get_by_role("button", name="Close").click()
    expect(view.locator(".etv-table")).to_have_count(0)


def test_the_search_box_has_the_next_key(reader: Callable[..., Reader], report: Path) -> None:
    """However fast: letters before the box has the focus would be commands of the table. A query is replaced."""
    view = reader().open(report)
    search = view.get_by_role("combobox", name="Search rows")
    search.fill("op:conv")
    view.locator(".etv-table [data-row]").first.click()
    found = view.evaluate("""async () => {
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true }));
        await null;
        const { type, selectionStart, selectionEnd } = document.activeElement;
        return [type, selectionStart, selectionEnd];
    }""")
    assert found == ["search", 0, len("op:conv")]
    view.page.keyboard.type("cumsum")
    expect(search).to_have_value("cumsum")


def test_a_narrow_view_has_one_scrollbar_and_its_lists_have_pages(
    reader: Callable[..., Reader], executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    """Each row is on a page of its list, whole; the wheel over a list scrolls the page around it."""
    view = reader(NARROW).open(executed("encoder").inspection.to_html(tmp_path / "long.html"))
    assert_laid_out(view, stacked=True)
    view.get_by_role("button", name="Expand all").click()
    for rows, part in (("[data-row]", ".etv-table"), ("[data-node]", ".etv-tree")):
        pane = view.locator(f"{part}-pane")
        after, before = (pane.get_by_role("button", name=name) for name in ("Rows after", "Rows before"))
        total = int(pane.locator(part).get_attribute("aria-rowcount") or 0) - 1
        assert total > 10
        pane.locator(rows).last.click()
        for key, first in (("Home", 1), ("PageDown", 11)):
            view.page.keyboard.press(key)
            expect(pane.get_by_role("status")).to_have_text(f"{first}–{first + 9} of {total}")
            expect(pane.locator(f"[aria-rowindex='{first + 1}']")).to_be_focused()
        before.click()
        seen: set[str] = set()
        while True:
            frame, head = box(pane.locator(part)), box(pane.locator("[aria-rowindex='1']"))
            top, bottom = head["y"] + head["height"], frame["y"] + frame["height"]
            found = [row for row in pane.locator(rows).all() if top <= box(row)["y"] <= bottom - box(row)["height"]]
            assert len(found) == 10
            seen |= {row.get_attribute("aria-rowindex") or "" for row in found}
            if after.get_attribute("aria-disabled") == "true":
                break
            after.click()
        assert len(seen) == total
    view.page.evaluate("scrollTo(0, 0)")
    view.locator(".etv-table").hover()
    before_wheel = view.page.evaluate("scrollY")
    view.page.mouse.wheel(0, 200)
    view.page.evaluate("async (y) => { while (scrollY === y) await new Promise(requestAnimationFrame); }", before_wheel)


def test_light_and_dark_wide_and_narrow(reader: Callable[..., Reader], report: Path, screenshots: Path) -> None:
    backgrounds = set()
    for scheme in get_args(Scheme):
        for viewport in (WIDE, NARROW):
            view = reader(viewport, scheme).open(report)
            view.locator(".etv-table [data-row]").first.click()
            expect(view.locator("svg[role=img]")).to_have_count(2)
            backgrounds.add(view.evaluate("e => getComputedStyle(e).backgroundColor"))
            assert_laid_out(view, stacked=viewport is NARROW)
            expect(view.locator(".etv-verdict-details")).to_be_visible()
            height = view.evaluate("e => e.getBoundingClientRect().height / innerHeight")
            assert height > 1 if viewport is NARROW else height == 1
            assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            view.page.screenshot(path=screenshots / f"report-{scheme}-{viewport['width']}.png")
    assert len(backgrounds) == 2
