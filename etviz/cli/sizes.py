"""Properties of a `.pte` alone: readable delegates, the debug buffer's size, each runner's flag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from etviz.artifacts.program.bundled_program import bundled_or_plain
from etviz.artifacts.program.held import held_operators
from etviz.artifacts.program.logged import debug_buffer_bytes
from etviz.artifacts.program.program import Instruction, Method, Program
from etviz.cli.console import out, plain_text
from etviz.errors import EtvizError

_ROUNDING: Final = 1 << 16
RUNNERS: Final = (
    ("Python", "load_program(…, enable_etdump=True, debug_buffer_size={size})", 0),
    ("etviz_runner", "--dump-intermediate-outputs --debug-buffer-size {size} (or none: it writes to the file)", 0),
    ("example_runner", "--dump_intermediate_outputs --debug_buffer_size={size}", 256 << 10),
    ("qnn_executor_runner", "--dump_intermediate_outputs --debug_buffer_size={size}", 100 << 20),
    ("Core ML runner", "--dump_intermediate_outputs --debug_buffer_size {size}", 1 << 20),
    ("Arm", "-DET_DUMP_INTERMEDIATE_OUTPUTS=ON -DET_DEBUG_BUFFER_SIZE={size}", 2 << 20),
)
"""Name of a runner, its flags, and the default size of its debug buffer."""
_NO_FLAG: Final = (
    "executor_runner, llama_main, the Android and iOS apps and WebAssembly have no debug buffer: etviz probe"
)


def is_program(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(8)
    return head[4:6] == b"ET" or head[4:8] == b"BP08"


def needs(path: Path, executions: int = 1) -> dict[str, Any]:
    program = bundled_or_plain(path)
    return {
        "path": str(path),
        "bytes": path.stat().st_size,
        "methods": [_method(program, method, executions) for method in program.methods],
    }


def _method(program: Program, method: Method, executions: int) -> dict[str, Any]:
    exact = executions * debug_buffer_bytes(program, method.name)
    size = -(-exact // _ROUNDING) * _ROUNDING
    unbound = any(value.tensor is not None and value.tensor.dynamism == "dynamic_unbound" for value in method.values)
    loops = any(item.target is not None and item.target <= item.index for item in method.instructions)
    return {
        "name": method.name,
        "instructions": sum(instruction.kind in ("kernel", "delegate") for instruction in method.instructions),
        "delegate_calls": sum(instruction.kind == "delegate" for instruction in method.instructions),
        "delegates": [_delegate(program, method, item) for item in method.instructions if item.kind == "delegate"],
        "executions": executions,
        "debug_buffer_bytes": exact,
        "at_least": unbound or loops,
        "flags": {
            name: {"flag": flag.format(size=size), "default": default, "enough": default >= exact}
            for name, flag, default in RUNNERS
        },
    }


def _delegate(program: Program, method: Method, call: Instruction) -> dict[str, Any]:
    backend, payload = str(method.backend(call)), program.payload(method.name, call.index)
    known: dict[str, Any] = {"instruction": call.index, "backend": backend, "operators": None, "problem": ""}
    try:
        held = held_operators(backend, payload) if payload is not None else None
    except EtvizError as error:
        return known | {"problem": str(error)}
    return known if held is None else known | {"operators": dict(Counter(item.kind for item in held).most_common())}


def print_needs(body: Mapping[str, Any]) -> None:
    out.print(f"{plain_text(body['path'])}: {body['bytes'] / 1e6:,.3g} MB", soft_wrap=True)
    for method in body["methods"]:
        out.print()
        out.print(f"[bold]{plain_text(method['name'])}[/bold]")
        calls = f"{method['instructions']} instructions, {method['delegate_calls']} of them delegate calls"
        bound = "at least" if method["at_least"] else "at most"
        out.print(f"  {calls}")
        for call in method["delegates"]:
            named = [f"{kind} × {count}" if count > 1 else kind for kind, count in (call["operators"] or {}).items()]
            text = ", ".join(named) or call["problem"]
            if text:
                out.print(f"  {call['instruction']}: {plain_text(call['backend'])}: {plain_text(text)}", soft_wrap=True)
        runs = "an execution" if method["executions"] == 1 else f"for {method['executions']:,} executions"
        out.print(f"  debug buffer: {bound} {method['debug_buffer_bytes']:,} bytes {runs}")
        for name, flag in method["flags"].items():
            note = " [dim](its default is enough)[/dim]" if flag["enough"] else ""
            out.print(f"    {name}: {plain_text(flag['flag'])}{note}", soft_wrap=True)
    out.print()
    out.print(_NO_FLAG, soft_wrap=True)
