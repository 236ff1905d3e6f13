"""The child process: loads a `.pte`, runs it, writes its ETDump, debug buffer and outputs. Started by `execute.py`.

The runtime ends the whole process when a debug buffer overflows, and a backend may crash or hang; here that harms
nobody. What to do is read from a JSON file, tensors from a torch file with ``weights_only=True``.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main(request_path: str) -> int:
    """Run one request; returns the exit status."""
    import torch
    from executorch.runtime import Runtime, Verification

    importlib.import_module("executorch.kernels.quantized")  # its library registers the runtime's kernels too
    request: dict[str, Any] = json.loads(Path(request_path).read_text(encoding="utf-8"))
    runs = torch.load(request["inputs"], weights_only=True)
    program = Runtime.get().load_program(
        Path(request["pte"]),
        verification=Verification.Minimal,
        enable_etdump=request["etdump"] is not None,
        debug_buffer_size=request["debug_buffer_size"],
    )
    if request["method"] not in program.method_names:
        sys.stderr.write(f"the program has the methods {sorted(program.method_names)}, not {request['method']}\n")
        return 3
    method: Any = program.load_method(request["method"])
    outputs = []
    for done, inputs in enumerate(runs, 1):
        outputs.append([_detached(value) for value in method.execute(inputs)])
        sys.stdout.write(f"run {done}\n")
        sys.stdout.flush()
    torch.save(outputs, request["outputs"])
    if request["etdump"] is not None:
        program.write_etdump_result_to_file(request["etdump"], request["debug_buffer"])
    return 0


def _detached(value: Any) -> Any:
    import torch

    return value.detach().clone() if isinstance(value, torch.Tensor) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
