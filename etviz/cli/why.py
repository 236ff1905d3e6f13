"""`etviz why`: the diagnosis in a terminal, or as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from etviz.cli import artifacts as given
from etviz.cli.console import COLOUR, doing, out, plain_text, print_json, with_options
from etviz.graph.labels import short_name
from etviz.tensors.metrics import figure
from etviz.text import shortened

_UNKNOWN: Final = 3
_WIDEST: Final = 100
_BAR: Final = 20


def why(
    artifacts: given.Artifacts,
    top: Annotated[int, typer.Option(min=0, help="Number of other suspects.")] = 5,
    inside: Annotated[
        bool, typer.Option("--inside/--no-inside", help="Zoom into delegates that may be at fault; they run again.")
    ] = True,
    as_json: given.JsonOption = False,
) -> None:
    """Name the operator at fault, with its share of the error, the proof, the likely bug, and what to do next.

    Exit status: 0 nothing is at fault, 1 an operator or output is, 3 it is not known, 2 an error.
    """
    inspection = artifacts.load()
    with doing("looking for the operator at fault"):
        body = inspection.diagnosis(top, look_inside=inside)
    if as_json:
        print_json(body)
    else:
        for style, line in _lines(body, max(20, min(out.width, _WIDEST))):
            out.print(plain_text(line), style=style, soft_wrap=True)
    if status := _status(body):
        raise typer.Exit(status)


def _status(body: dict[str, Any]) -> int:
    if body["culprit"] is not None or body["level"] == "bad":
        return 1
    return _UNKNOWN if body["level"] == "unknown" else 0


def _lines(body: dict[str, Any], width: int) -> Iterator[tuple[str, str]]:
    yield from _wrapped(with_options(body["verdict"]), width, style=f"bold {COLOUR.get(body['level'], '')}".strip())
    finding, culprit = body["finding"], body["culprit"]
    if finding is not None:
        yield "", ""
        yield from _wrapped(finding["text"], width, style="bold" if culprit is not None else "")
    if culprit is not None:
        if culprit["code"]:
            yield "", ""
            yield "cyan", f"  {short_name(culprit['source'], width - 2)}"
            yield "", f"    {shortened(culprit['code'], width - 4)}"
        yield from _proof(culprit["proof"], width)
        yield from _shares(body["attribution"], body["outputs"], width)
        looks = [f"{item['name']} ({item['score']:.2f}): {item['evidence']}" for item in culprit["fingerprints"]]
        yield from _listed("What it looks like", looks, width)
        yield from _inside(culprit["inside"], width)
    yield from _suspects(body, width)
    yield from _listed("Next", [f"{step['text']} {step['python']}".rstrip() for step in body["next"]], width)
    yield from _listed("Notes", [with_options(note) for note in body["notes"]], width)


def _shares(attribution: dict[str, Any], outputs: Sequence[dict[str, Any]], width: int) -> Iterator[tuple[str, str]]:
    shares = [share for share in attribution["shares"] if abs(share["share"]) >= 0.005][:5]
    if shares:
        yield "", ""
        exact = any(item["output"] == attribution["output"] and item["max_abs"] == 0 for item in outputs)
        what = "distance to float64" if exact else "error"
        yield from _wrapped(f"Share of the output's {what} (sum {100 * attribution['sum']:.0f} %)", width, style="bold")
    for share in shares:
        bar = f"{'█' * round(_BAR * min(1.0, max(0.0, share['share']))):<{_BAR}}  " if width >= 60 else ""
        yield from _wrapped(_place(share), width, f"{100 * share['share']:>6.0f} %  {bar}")
    if attribution["note"]:
        yield from _wrapped(attribution["note"], width, "  ")


def _proof(proof: dict[str, Any], width: int) -> Iterator[tuple[str, str]]:
    several = len({output["run"] for output in proof["outputs"]}) > 1
    lines = [
        (f"run {output['run']}, " if several else "")
        + f"output {output['output']}: {_change(output)}"
        + (", which matches the reference" if output["matches"] else "")
        for output in proof["outputs"]
        if output["rmse"] not in (None, 0) or output["status"] != output["status_without"]
    ]
    yield from _listed("Proof", [proof["message"], *lines], width)


def _change(output: dict[str, Any]) -> str:
    if output["status"] != output["status_without"]:
        return f"{output['status']} → {output['status_without']}"
    return f"rmse {_number(output['rmse'])} → {_number(output['without'])}"


def _inside(inside: dict[str, Any] | None, width: int) -> Iterator[tuple[str, str]]:
    if inside is None:
        return
    rows = [  # an inner number is that of another program
        f"{_place(row | {'name': row['name'].partition(' ')[2]})}: introduced severity "
        f"{_number(row['introduced_severity'])}"
        for row in inside["rows"]
    ]
    none = (
        ["No operator inside adds more error than its precision explains."]
        if inside["compared"] and inside["faithful"]
        else []
    )
    yield from _listed("Inside the delegate", [*(rows or none), inside["message"], *inside["notes"]], width)


def _suspects(body: dict[str, Any], width: int) -> Iterator[tuple[str, str]]:
    name = "introduced_severity" if body["culprit"] is not None else "severity"
    rows = [
        f"{_place(row)}: {name.replace('_', ' ')} {_number(row[name])}"
        + (f", in {row['executions']} executions" if row["executions"] > 1 else "")
        + (f", {row['fingerprints'][0]['name']}" if row["fingerprints"] else "")
        for row in body["suspects"]
    ]
    yield from _listed("Also suspicious", rows, width)


def _place(row: dict[str, Any]) -> str:
    return f"{row['name']} ({row['source']})" if row["source"] else row["name"]


def _number(value: float | str | None) -> str:
    return "not known" if value is None else value if isinstance(value, str) else figure(value)


def _listed(title: str, items: list[str], width: int) -> Iterator[tuple[str, str]]:
    if items:
        yield "", ""
        yield "bold", title
    for text in items:
        yield from _wrapped(text, width, "  - ")


def _wrapped(text: str, width: int, first: str = "", style: str = "") -> Iterator[tuple[str, str]]:
    rest = " " * len(first)
    for line in textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest) or [first]:
        yield style, line
