"""The site is built strictly, has a page for every public name, and asks no other host."""

from __future__ import annotations

import re
from pathlib import Path

import etviz
from docs.site import build_site


def test_the_site_is_whole_and_needs_no_other_host(tmp_path: Path) -> None:
    site = build_site(tmp_path / "pages", tmp_path / "site", whole=False)
    pages = {page.relative_to(site).as_posix(): page.read_text("utf-8") for page in site.glob("**/*.html")}
    for name in set(etviz.__all__) - {"__version__"}:
        assert f"etviz.{name}" in pages[f"reference/{name.lower()}.html"]
    assert {"index.html", "noise.html", "notebooks/01-first-look.html"} <= set(pages)
    for name, text in pages.items():
        asked = re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?([^\s\">]+)", text)
        assert [url for url in asked if re.match(r"(https?:)?//", url) and "rel=canonical" not in url] == [], name
