"""`etviz info`: what the artifacts hold, without comparing anything and without torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from etviz.analysis.profile import instruction_latency, scale_factor
from etviz.cli import artifacts as given
from etviz.cli.console import out, plain_text, print_json
from etviz.cli.sizes import is_program, needs, print_needs
from etviz.errors import UsageError
from etviz.graph.labels import node_label, short_operator, source_line
from etviz.loading.paired import Paired, pair

_SLOWEST: Final = 5


def info(
    artifacts: given.Artifacts,
    executions: Annotated[
        int, typer.Option(min=1, metavar="N", help="Executions that the debug buffer of a program must hold.")
    ] = 1,
    as_json: given.JsonOption = False,
) -> None:
    """Files, methods, delegation and the slowest instructions. Nothing is executed, and torch is not needed.

    Of a program alone (etviz info model.pte): the debug buffer that --executions of it need, and each runner's flag.
    """
    if is_program(artifacts.etdump):
        needed = needs(artifacts.etdump, executions)
        print_json(needed) if as_json else print_needs(needed)
        return
    if executions > 1:
        raise UsageError("--executions is for a program: etviz info model.pte --executions N")
    body = describe(artifacts)
    print_json(body) if as_json else _print(body)


def describe(files: given.Artifacts) -> dict[str, Any]:
    factor = scale_factor(files.clock)
    artifacts = files.open(checked=False)
    methods = artifacts.methods if files.method is None else [artifacts.method(files.method)]
    return {
        "files": [
            {"kind": kind, "path": path, "bytes": Path(path).stat().st_size} for kind, path in artifacts.named.items()
        ],
        "methods": [_method(pair(artifacts, name), factor) for name in methods],
        "problems": list(artifacts.dump.problems),
    }


def _method(paired: Paired, factor: float) -> dict[str, Any]:
    graph = paired.graph
    blocks = [block for _, block in paired.executions]
    nodes = graph.by_instruction()
    latency = instruction_latency(blocks, factor)
    slowest = sorted(latency, key=lambda instruction: -latency[instruction])[:_SLOWEST]
    kernels = Counter(short_operator(n.kernel or n.target) for n in nodes.values() if n.target != "delegate")
    return {
        "name": paired.method,
        "instructions": len(nodes),
        "executions": len(blocks),
        "logged_values": sum(len(event.tensors) for block in blocks for event in block.debug),
        "delegation": None if paired.delegation is None else paired.delegation.counts,
        "backends": dict(Counter(graph.inside(n).backend_id or "not known" for n in nodes.values() if n.subgraphs)),
        "kernels": dict(kernels.most_common()),
        "total_ms": sum(latency.values()) if latency else None,
        "slowest": [
            {
                "instruction": instruction,
                "operator": node_label(graph, nodes[instruction]) if instruction in nodes else "",
                "ms": latency[instruction],
                "source": source_line(nodes[instruction].stack) if instruction in nodes else "",
            }
            for instruction in slowest
        ],
    }


def _print(body: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in ("left", "right", "left"):
        table.add_column(justify=column, overflow="fold")
    for file in body["files"]:
        table.add_row(file["kind"].replace("_", " "), f"{file['bytes'] / 1e6:,.3g} MB", plain_text(file["path"]))
    out.print(table)
    for method in body["methods"]:
        out.print()
        out.print(f"[bold]{plain_text(method['name'])}[/bold]")
        for line in _lines(method):
            out.print(f"  {line}")
        if method["slowest"]:
            out.print("  slowest:")
            for line in _slowest(method):
                out.print(line, soft_wrap=True)
    for problem in body["problems"]:
        out.print(f"! {plain_text(problem)}")


def _lines(method: dict[str, Any]) -> list[str]:
    counted = [("instruction", method["instructions"]), ("execution", method["executions"])]
    counted.append(("logged value", method["logged_values"]))
    lines = [", ".join(f"{count:,} {name}{'s' * (count != 1)}" for name, count in counted)]
    counts = method["delegation"]
    if counts is not None:
        total = counts["num_delegated_nodes"] + counts["num_non_delegated_nodes"]
        share = 100 * counts["num_delegated_nodes"] / total if total else 0
        parts = counts["num_delegated_subgraphs"]
        delegated = f"{share:.0f} % delegated: {counts['num_delegated_nodes']} of {total} nodes"
        lines.append(f"{delegated} in {parts} delegate{'s' * (parts != 1)}")
    for title in ("backends", "kernels"):
        if method[title]:
            items = ", ".join(f"{plain_text(name)} × {count}" for name, count in list(method[title].items())[:12])
            more = len(method[title]) - 12
            lines.append(f"{title}: {items}" + (f", {more} more" if more > 0 else ""))
    if method["total_ms"] is not None:
        lines.append(f"{method['total_ms']:.4g} ms in all (mean of the executions)")
    return lines


def _slowest(method: dict[str, Any]) -> Iterator[str]:
    for slow in method["slowest"]:
        source = f" [dim]{plain_text(slow['source'])}[/dim]" if slow["source"] else ""
        yield f"{slow['ms']:>10.4g} ms  #{slow['instruction']} {plain_text(slow['operator'])}{source}"
