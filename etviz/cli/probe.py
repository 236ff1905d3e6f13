"""`etviz probe` and `etviz load-outputs`: inner values from any runner that writes outputs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etviz.artifacts.collection import by_name
from etviz.cli import artifacts as given
from etviz.cli.console import err, out, plain_text, print_json
from etviz.cli.gaps import ByOption, records, show
from etviz.errors import UsageError

if TYPE_CHECKING:
    from etviz.pipeline.probe_program import Probe


def probe(
    source: Annotated[Path, typer.Argument(metavar="PTE", help="A .pte, its record (.etviz), or a folder with both.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the probes; by default the program's.")
    ] = None,
    budget: Annotated[str, typer.Option(help="Maximum additional memory of a probe: 512KB, 64MB.")] = "64MB",
    instructions: Annotated[str | None, typer.Option(metavar="1,2,…", help="Only the values of these.")] = None,
    inside: Annotated[
        str | None, typer.Option(metavar="1,2,…", help="Also the values inside these delegate calls.")
    ] = None,
    method: given.MethodOption = None,
    as_json: given.JsonOption = False,
) -> None:
    """Make programs whose ordinary outputs are inner values of another program, for runners that only write outputs."""
    from etviz.pipeline.probe_program import probe as make

    def numbers(option: str, given: str | None) -> list[int]:
        try:
            return [int(part) for part in given.split(",")] if given else []
        except ValueError:
            raise UsageError(f"{option} takes numbers with commas between them, found {given!r}") from None

    wanted, opened = numbers("--instructions", instructions) or None, numbers("--inside", inside)
    made = make(source, budget=budget, method=method, instructions=wanted, inside=opened, workdir=output)
    if as_json:
        print_json([_facts(file) for file in made])
        return
    for file in made:
        first, last = file.values[0].instruction, file.values[-1].instruction
        size = f"{file.path.stat().st_size / 1e6:.2f} MB, {file.nbytes / 1e6:.2f} MB more memory"
        out.print(
            f"{plain_text(file.path)}: {len(file.values)} values of instructions {first} to {last}; {size}",
            soft_wrap=True,
        )
    model, record = made[0].model, made[0].record
    etrecord = by_name(model.parent, "etrecord")
    words = ["etviz", "load-outputs", "OUTPUTS", *(["--record", made[0].folder] if record else []), "--pte", model]
    words += ["--inputs", "INPUTS"] if record and not etrecord else ["--etrecord", etrecord or "ETRECORD"]
    err.print(
        f"Run {plain_text(model)} and each probe on the same inputs, keep the raw outputs as model-0.bin, …, "
        f"probe-0-0.bin, …{'' if record else ', with a copy of probes.json'}, and show them: "
        + plain_text(shlex.join(map(str, words))),
        soft_wrap=True,
    )


def _facts(file: Probe) -> dict[str, object]:
    values = [
        {"instruction": v.instruction, "index": v.index, "output": v.position, "inside": v.inside} for v in file.values
    ]
    return {"name": file.name, "path": str(file.path), "outputs": file.outputs, "bytes": file.nbytes, "values": values}


def load_outputs(
    outputs: Annotated[Path, typer.Argument(metavar="FOLDER", help="Raw outputs: probe-0-0.bin, …, model-0.bin, …")],
    etrecord: given.EtrecordOption = None,
    pte: Annotated[Path | None, typer.Option(help="The program (.pte or .bpte).")] = None,
    record: given.RecordOption = None,
    inputs: given.InputsOption = None,
    by: ByOption = "introduced_severity",
    top: given.TopOption = 10,
    report: Annotated[Path | None, typer.Option("-o", "--output", help="Write an HTML report.")] = None,
    method: given.MethodOption = None,
    as_json: given.JsonOption = False,
) -> None:
    """Compare outputs that a runner without ETDump wrote: final outputs, or outputs of probes."""
    from etviz.api import load

    folder = next((path for path in (record, outputs) if path is not None and path.is_dir()), outputs)
    kinds = {"etrecord": etrecord, "pte": pte, "record": None if record == folder else record}
    files: dict[str, Any] = {kind: path or by_name(folder, kind) for kind, path in kinds.items()}
    if files["pte"] is not None and files["pte"].name.startswith("probe-"):
        raise UsageError(f"{files['pte']} is a probe, not the program; name the program with --pte")
    inspection = load(outputs=outputs, inputs=inputs, method=method, **files)
    if report is not None:
        inspection.to_html(report)
    show(inspection, by, top, as_json, {"outputs": records(inspection.outputs)} if as_json else {})
