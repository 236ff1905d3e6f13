"""`etviz report`: the linked view as one HTML file."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from etviz.artifacts.files import check_target
from etviz.cli import artifacts as given
from etviz.cli.console import doing, err, out, plain_text, print_json, with_options


class Tensors(str, Enum):
    none = "none"
    histograms = "histograms"
    worst = "worst"


def report(
    artifacts: given.Artifacts,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file.")] = Path("report.html"),
    tensors: Annotated[
        Tensors, typer.Option(help="none: smallest; histograms: of every row; worst: and worst elements.")
    ] = Tensors.histograms,
    svg: Annotated[Path | None, typer.Option(help="Also draw the graph, coloured by severity.")] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    as_json: given.JsonOption = False,
) -> None:
    """One HTML file with the linked view. It needs no kernel and no network, and can be mailed."""
    check_target(output, "the report")
    if svg is not None:
        check_target(svg, "the graph")
    inspection = artifacts.load()
    with doing("writing the report"):
        for method in inspection.methods if artifacts.program is not None else ():
            inspection.method(method)
        written = inspection.to_html(output, tensors.value, title)
        if svg is not None:
            inspection.export.svg(svg)
    size = written.stat().st_size
    if as_json:
        print_json({"report": str(written), "bytes": size, "rows": len(inspection.gaps)})
        return
    out.print(plain_text(with_options(inspection.analysis.digest.verdict)))
    err.print(f"{plain_text(written)}: {size / 1e6:.2f} MB, {len(inspection.gaps)} rows")
