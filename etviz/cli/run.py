"""`etviz run`: run a program on this machine or on a device, and compare the result."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from etviz.artifacts.collection import by_name
from etviz.artifacts.program.program import read_program
from etviz.cli import artifacts as given
from etviz.cli.console import err, plain_text
from etviz.cli.gaps import show
from etviz.errors import UsageError
from etviz.loading.artifact_set import ArtifactSet

if TYPE_CHECKING:
    from etviz.pipeline.device import Machine

_RUNNER: Final = "etviz_runner"


def run(
    pte: Annotated[Path, typer.Argument(metavar="PTE", help="The program (.pte).")],
    runner: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="A command with {pte} {inputs} {etdump} {debug_buffer} {debug_buffer_size} {outputs} {method} {data}; "
            "without placeholders it gets the flags of examples/cpp_runner.",
        ),
    ] = None,
    adb: Annotated[bool, typer.Option("--adb", help="Run on a device: push, run, pull.")] = False,
    device: Annotated[str | None, typer.Option(help="Serial number of the device.")] = None,
    device_folder: Annotated[str | None, typer.Option(help="Folder on the device.")] = None,
    push: Annotated[list[Path] | None, typer.Option(help="Also push this file (the runner, a .ptd).")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for its files.")] = Path("etviz-run"),
    inputs: given.InputsOption = None,
    etrecord: given.EtrecordOption = None,
    record: given.RecordOption = None,
    data: Annotated[Path | None, typer.Option(help="Weights outside of the program (.ptd).")] = None,
    method: given.MethodOption = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds that the run may take.")] = None,
    time_scale: given.ScaleOption = "ns",
    top: given.TopOption = 10,
    as_json: given.JsonOption = False,
) -> None:
    """Run a program with your runner or on a device, and compare its values with the reference."""
    from etviz.api import load
    from etviz.loading.given_outputs import no_etdump
    from etviz.pipeline.device import run_elsewhere

    if not adb and (device or device_folder or push):
        raise UsageError("--device, --device-folder and --push are for --adb")
    if runner is None and not adb:
        raise UsageError("give --runner CMD, or --adb")
    files: dict[str, Any] = {
        "pte": pte,
        "etrecord": etrecord or by_name(pte.parent, "etrecord"),
        "record": record,
        "data": data or by_name(pte.parent, "data"),
    }
    opened = ArtifactSet.open(no_etdump(), **files, checked=False)
    program = opened.program or read_program(pte)
    chosen = opened.method(method)
    runs = opened.inputs(inputs, chosen)
    if not runs:
        raise UsageError("the inputs of the run are unknown; give --inputs, or --etrecord with representative inputs")
    place = _place(adb, device, device_folder, output, push or [])
    command = runner or shlex.quote(place.name(_RUNNER))
    ran = run_elsewhere(place, pte, program, chosen, runs, command, output, timeout, files["data"])
    if ran.problem:
        err.print(f"etviz: {plain_text(ran.problem)}", style="red", soft_wrap=True)
    known = [tuple(values) for values in runs]
    common: dict[str, Any] = files | {"inputs": known if len(known) > 1 else known[0], "method": chosen}
    if ran.etdump is not None:
        inspection = load(ran.etdump, debug_buffer=ran.debug_buffer, source_time_scale=time_scale, **common)
    else:
        inspection = load(outputs=output, **common)
    show(inspection, "introduced_severity", top, as_json, {"folder": str(output)})
    if not as_json:
        err.print(f"The files of the run are in {plain_text(output)}", soft_wrap=True)


def _place(adb: bool, device: str | None, folder: str | None, output: Path, push: list[Path]) -> Machine:
    from etviz.pipeline.device import DEVICE_FOLDER, Adb, ThisMachine

    if not adb:
        return ThisMachine(output)
    place = Adb(device, folder or DEVICE_FOLDER)
    for path in push:
        place.put(path)
    return place
