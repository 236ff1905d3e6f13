"""Scripts, wheel and reports carry the notices of the packages whose code they contain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs import Executed

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "etviz" / "view" / "static"
NOTICES = "THIRD-PARTY.txt"
LOCKED = json.loads((ROOT / "package-lock.json").read_text())["packages"]
PACKAGES = {path.removeprefix("node_modules/"): item for path, item in LOCKED.items() if path and not item.get("dev")}
TERMS = ("Permission is hereby granted, free of charge", "Permission to use, copy, modify, and/or distribute")
HOLDERS = ("2015-present Jason Miller", "2022-present Preact Team", "2012-2014 Chris Pettitt", "Mike Bostock")


def _require_notices(text: str) -> None:
    assert {"preact", "@preact/signals", "@dagrejs/dagre", "d3-scale", "internmap"} <= PACKAGES.keys()
    missing = [name for name, item in PACKAGES.items() if f"\n{name} {item['version']}\n" not in text]
    assert not missing
    assert all(part in text for part in (*TERMS, *HOLDERS))


def _scripts() -> list[Path]:
    return [*STATIC.glob("*.js"), *(ROOT / "etviz" / "labextension" / "static").glob("*.js")]


def test_every_script_begins_with_the_notices():
    assert len(_scripts()) == 3
    for script in _scripts():
        head = script.read_text().partition("*/")[0]
        assert head.startswith("/*!")
        _require_notices(head)


def test_a_report_holds_the_notices(executed: Callable[[str], Executed], tmp_path: Path):
    page = executed("plain_cnn").inspection.to_html(tmp_path / "report.html")
    _require_notices(page.read_text())


def test_the_wheel_holds_the_notices():
    wheel = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    assert f"etviz/view/static/{NOTICES}" in {item.distribution_path for item in wheel.recurse_included_files()}
    _require_notices((STATIC / NOTICES).read_text())
