# pyright: reportPrivateUsage=false
"""A view holds its program only as long as it may be on the screen: hundreds of loads end where they began."""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import pytest
from IPython.core.formatters import DisplayFormatter
from ipywidgets.widgets import widget as registry

import etviz
from etviz.artifacts.known_files import note_written
from etviz.view.widget.widget import KEPT
from tests.programs import Executed


@pytest.fixture(autouse=True)
def _own_views(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(etviz.options, "look_inside", "never")
    KEPT.clear()
    yield
    KEPT.clear()


def _open_files(folder: Path) -> int:
    """Descriptors of files in `folder`, those whose file is deleted too; other tests' objects may go meanwhile."""
    gc.collect()
    return sum(
        str(item.readlink()).startswith(f"{folder}/") for item in Path("/proc/self/fd").iterdir() if item.is_symlink()
    )


def _ask(widget: Any, name: str, **params: Any) -> dict[str, Any]:
    sent: list[dict[str, Any]] = []
    widget.send = lambda content, buffers=None: sent.append(content)
    widget._answer(widget, {"id": 1, "method": name, "params": params}, [])
    return sent[-1]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted in /proc")
@pytest.mark.parametrize("foreign", [False, True])
def test_displayed_loads_end_where_they_began(
    foreign: bool, executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    """Only the newest views keep what nobody else holds; a zoom and a closed view keep nothing."""
    program = executed("encoder")
    names = {kind: program.path(kind) for kind in ("etdump", "etrecord", "debug_buffer", "record", "pte")}
    files: dict[str, Any] = {kind: tmp_path / path.name for kind, path in names.items()}
    for kind, path in files.items():
        shutil.copy(names[kind], path)
    if not foreign:
        note_written(files.values())
    shell, most = DisplayFormatter(), KEPT.maxlen or 0
    counts, programs = [], []
    for number in range(most + 5):
        found = etviz.load(**files, inputs=program.inputs)
        shell.format(found)
        found.zoom(int(found.gaps.index[found.gaps["kind"] == "delegate"][0]))
        programs.append(weakref.ref(found.analysis))
        del found
        if number > most:
            counts.append(_open_files(tmp_path))
    assert counts == [counts[0]] * len(counts)
    gc.collect()
    assert sum(known() is not None for known in programs) == most
    KEPT.clear()
    assert _open_files(tmp_path) == 0
    assert [known() for known in programs] == [None] * len(programs)


def test_a_view_lasts_as_long_as_somebody_holds_its_program(executed: Callable[[str], Executed]) -> None:
    program = executed("encoder")
    held = program.load()
    first, second = held.widget(), program.load().widget()
    for _ in range(KEPT.maxlen or 0):
        program.load().widget()
    gc.collect()
    assert "result" in _ask(first, "tensor", row=0)
    answer = _ask(second, "tensor", row=0)
    assert "run the cell again" in answer["error"]["message"]
    assert second.selected is None
    second.close()  # nothing to disconnect


def test_a_closed_view_is_forgotten(executed: Callable[[str], Executed]) -> None:
    """ipywidgets keeps every widget that is open, its layout too; a layout of the user's stays open."""
    inspection, before = executed("encoder").load(), set(registry._instances)
    widget, layout = inspection.widget(), ipywidgets.Layout(width="50%")
    gone = weakref.ref(widget)
    inspection.widget(layout=layout).close()
    assert layout.comm is not None
    layout.close()
    widget.close()
    assert "this view is closed" in _ask(widget, "tensor", row=0)["error"]["message"]
    del widget
    gc.collect()
    assert gone() is None
    assert set(registry._instances) == before


def test_a_view_that_left_the_page_is_closed_with_its_program(executed: Callable[[str], Executed]) -> None:
    """As a notebook that runs one cell again and again: the page counts the views that it shows."""
    before = set(registry._instances)
    for _ in range(3):
        shown, never_shown, still_shown = (executed("encoder").load().widget() for _ in range(3))
        for view, counts in ((shown, (1, 2, 1, 0)), (still_shown, (1, 0, 1))):
            for count in counts:
                view._view_count = count
        KEPT.clear()
        gc.collect()
        executed("encoder").load().widget().close()
        assert shown.comm is None
        assert "run the cell again" in _ask(shown, "tensor", row=0)["error"]["message"]
        for view in (never_shown, still_shown):
            assert view.comm is not None
            view.close()
        assert view.layout is not None
    held = executed("encoder").load()
    view = held.widget()
    view._view_count = 1
    view._view_count = 0
    KEPT.clear()
    held.widget().close()
    assert view.comm is not None
    view.close()
    assert set(registry._instances) == before


def test_a_slider_is_linked_when_nothing_is_selected(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").load()
    widget, slider = inspection.widget(), ipywidgets.IntSlider(max=len(inspection.gaps) - 1)
    link = ipywidgets.link((widget, "row"), (slider, "value"))
    assert inspection.selected is None
    slider.value = 2
    assert inspection.selected == widget.selected == 2
    inspection.selected = 1
    assert slider.value == 1
    inspection.selected = None
    assert (slider.value, widget.selected) == (1, None)
    link.unlink()
