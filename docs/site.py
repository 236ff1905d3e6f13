"""Builds the site into ``site/``: ``make docs``.

The pages are those of this folder, the README and the notebooks as executed; the reference comes from the docstrings of
every public name; the gallery has live reports (`docs.gallery`). The site needs no server and asks no other host:
``site/index.html`` opens in a browser.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import nbformat
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from tqdm.auto import tqdm

import etviz
from docs import gallery

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
GUIDES: Final = {
    "Start": ("getting-started", "from-artifacts", "language-models", "troubleshooting"),
    "Read": ("reading-the-table", "view", "tensor", "why", "zoom", "quantization", "noise", "verdicts"),
    "Run": ("command-line", "devices", "evidence", "panel", "hosts", "sharing", "security", "compatibility"),
    "Know": ("upstream", "traps", "how-pairing-works", "diagnosis", "backends", "performance", "real-models"),
}
"""Pages by section, in the order of the navigation; other pages follow under "Know"."""
_PAGES: Final = ("CHANGELOG", "CONTRIBUTING", "SECURITY", "SKILL")
_LONGEST: Final = 600
"""Seconds for one notebook."""


def main() -> None:
    """Build the site; a link that leads nowhere is an error."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description=__doc__)
    parser.add_argument("--pages-only", action="store_true", help="leave out the gallery, and do not run the notebooks")
    options = parser.parse_args()
    sys.stdout.write(f"{build_site(ROOT / 'build/site', ROOT / 'site', whole=not options.pages_only)}\n")


def build_site(source: Path, site: Path, *, whole: bool) -> Path:
    """Build the site; returns its folder.

    Parameters
    ----------
    source
        Folder for the pages before they are rendered; made anew.
    site
        Folder of the result.
    whole
        False leaves out the gallery, and does not run the notebooks.
    """
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("*.py", "*.yml", "__pycache__"))
    front = _linked((ROOT / "README.md").read_text("utf-8"))
    if whole:
        front = front.replace("gallery of live reports", "[gallery of live reports](gallery/index.md)", 1)
    (source / "index.md").write_text(front, "utf-8")
    for name in _PAGES:
        (source / f"{name.lower()}.md").write_text(_linked((ROOT / f"{name}.md").read_text("utf-8")), "utf-8")
    for page in source.glob("*.md"):
        page.write_text(_inside(page.read_text("utf-8")), "utf-8")
    for path in (ROOT / "llms.txt", *ROOT.glob("etviz/**/*.schema.json")):
        shutil.copy(path, source / path.name)
    shutil.copy(ROOT / "LICENSE", source / "LICENSE.txt")
    shutil.copy(ROOT / "node_modules/iframe-worker/shim/index.js", source / "iframe-worker.js")
    sections: dict[str, list[str]] = {"Gallery": gallery.write(source / "gallery")} if whole else {}
    sections |= {title: [f"{name}.md" for name in names] for title, names in GUIDES.items()}
    listed = {f"{name}.md" for names in GUIDES.values() for name in names}
    sections["Know"] += sorted({page.name for page in DOCS.glob("*.md")} - listed)
    sections["Notebooks"] = list(_notebooks(source / "notebooks", run=whole))
    sections["Reference"] = list(_reference(source / "reference"))
    sections["Project"] = [f"{name.lower()}.md" for name in _PAGES]
    settings = yaml.safe_load((DOCS / "site.yml").read_text("utf-8"))
    settings |= {"docs_dir": str(source), "site_dir": str(site)}
    settings["nav"] = ["index.md", *({title: pages} for title, pages in sections.items())]
    made = source.with_suffix(".yml")
    # The order of the keys counts: the theme's search is found after the theme.
    made.write_text(yaml.safe_dump(settings, allow_unicode=True, sort_keys=False), "utf-8")
    build(load_config(str(made)))
    return site


def _linked(text: str) -> str:
    """A page of the root, whose links point to pages of the site."""
    return re.sub(r"\]\(docs/?([^)]*)\)", lambda match: f"]({match[1] or 'getting-started.md'})", text)


def _inside(text: str) -> str:
    """A page whose links to files outside of ``docs`` point to their copies."""
    text = re.sub(r"\]\((?:\.\./)?README\.md", "](index.md", text)
    text = re.sub(r"\]\((?:\.\./)?LICENSE\)", "](LICENSE.txt)", text)
    text = re.sub(r"\]\(\.\./etviz/[^)]*/([^/)]+\.schema\.json)\)", r"](\1)", text)
    text = re.sub(r"\]\(\.\./(notebooks/[^)]*)\.ipynb", r"](\1.md", text)
    text = re.sub(r"\[([^]]*)\]\(\.\./examples/[^)]*\)", r"\1", text)
    for name in _PAGES:
        text = re.sub(rf"\]\((?:\.\./)?{name}\.md", f"]({name.lower()}.md", text)
    return text


def _notebooks(folder: Path, *, run: bool) -> Iterator[str]:
    """Write each notebook as a page, with its outputs; yield the pages."""
    folder.mkdir()
    for path in tqdm(sorted((ROOT / "notebooks").glob("*.ipynb")), desc="notebooks", unit="notebook"):
        notebook = nbformat.read(path, nbformat.NO_CONVERT)
        if run:
            NotebookClient(notebook, timeout=_LONGEST, resources={"metadata": {"path": str(path.parent)}}).execute()
        text, resources = MarkdownExporter().from_notebook_node(notebook, {"unique_key": path.stem})
        for name, data in resources["outputs"].items():
            (folder / name).write_bytes(data)
        (folder / f"{path.stem}.md").write_text(re.sub(r"\]\(\.\./docs/", "](../", text), "utf-8")
        yield f"notebooks/{path.stem}.md"


def _reference(folder: Path) -> Iterator[str]:
    """Write a page for each public name; `study` and `Study` share one. Yield the pages."""
    folder.mkdir()
    pages: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(etviz.__all__) - {"__version__"}, key=lambda name: (name.lower(), name[0].isupper())):
        pages[name.lower()].append(name)
    for page, names in pages.items():
        sections = [f"::: {_place(name)}\n    options:\n      heading_level: 2\n" for name in names]
        title = ", ".join(f"etviz.{name}" for name in names)
        (folder / f"{page}.md").write_text("\n\n".join([f"# {title}", *sections]), "utf-8")
        yield f"reference/{page}.md"


def _place(name: str) -> str:
    """Where a public name is defined: ``module.name``."""
    member = getattr(etviz, name)
    if inspect.ismodule(member):
        return member.__name__
    if inspect.isclass(member) or inspect.isfunction(member):
        return f"{member.__module__}.{member.__qualname__}"
    module = importlib.import_module(type(member).__module__)
    return f"{module.__name__}.{next(key for key, value in vars(module).items() if value is member)}"


if __name__ == "__main__":
    main()
