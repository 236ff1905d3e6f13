"""The repro capsule: a folder that shows the gap of one operator or delegate without etviz."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import save_file

from etviz.artifacts.files import whole_folder
from etviz.errors import UsageError
from etviz.pipeline.relower import own_copy, run_alone
from etviz.tensors.digest import same_bits
from etviz.text import markdown

if TYPE_CHECKING:
    import pandas as pd

    from etviz.explain.zoom.piece import Alone

_MARK: Final = "repro.json"
_FORMAT: Final = "etviz-repro"
_SCRIPT: Final = '''"""Runs model.pte on ExecuTorch and prints how far its outputs are from the expected ones."""

from pathlib import Path

import numpy as np
import torch
from executorch.runtime import Runtime, Verification
from safetensors.torch import load_file

here = Path(__file__).resolve().parent
inputs, expected = load_file(here / "inputs.safetensors"), load_file(here / "expected.safetensors")
values = [inputs[f"input_{k}"] for k in range(len(inputs))]
{layouts}program = Runtime.get().load_program(here / "model.pte", verification=Verification.Minimal)
for k, found in enumerate(program.load_method("forward").execute(values)):
    a, b = expected[f"output_{k}"].double().numpy().ravel(), found.double().numpy().ravel()
    finite = np.isfinite(a) & np.isfinite(b)
    odd = int((~finite & ~((a == b) | (np.isnan(a) & np.isnan(b)))).sum())
    error = (b - a)[finite]
    rmse, largest = (np.sqrt(np.mean(error**2)), np.abs(error).max()) if error.size else (np.nan, np.nan)
    print(f"output {k}: rmse {rmse:.9g}, max |error| {largest:.9g}, NaN or Inf on one side only: {odd}")
'''


def write_repro(alone: Alone, row: pd.Series, path: Path, timeout: float | None = None) -> Path:
    """Of a gap row. An earlier repro at `path` is replaced; a `UsageError` if something else is there."""
    _check_free(path)
    with whole_folder(path, "the repro") as fresh:
        run = run_alone(alone.piece, label="repro", keep_pte=fresh / "model.pte", timeout=timeout)
        same = all(map(same_bits, run.outputs, alone.piece.outputs))
        _fill(fresh, alone, _of_last_round(alone, row), run.outputs, same=same)
    return path


def _of_last_round(alone: Alone, row: pd.Series) -> dict[str, Any]:
    about: dict[str, Any] = {str(name): value for name, value in row.items()} | {"note": ""}
    if alone.piece.rounds < 2:
        return about
    runtime, expected = alone.piece.outputs[about["output"]], alone.expected[about["output"]]
    rmse = float((runtime.double() - expected.double()).square().mean().sqrt())
    note = f" It was executed {alone.piece.rounds} times in a loop; this is the last time."
    return about | {"shape": tuple(expected.shape), "introduced_rmse": rmse, "note": note}


def _check_free(path: Path) -> None:
    if not path.parent.is_dir():
        raise UsageError(f"path must be in a folder that exists; {path.parent} does not")
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not path.is_dir():
        raise UsageError(f"path must be a folder; {path} is something else")
    if any(path.iterdir()) and not _is_repro(path):
        raise UsageError(f"{path} holds other files, which a repro would replace; name a new folder")


def _is_repro(path: Path) -> bool:
    try:
        mark = json.loads((path / _MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(mark, dict) and mark.get("format") == _FORMAT


def _fill(folder: Path, alone: Alone, about: Mapping[str, Any], found: Sequence[torch.Tensor], *, same: bool) -> None:
    inputs = [value for value in alone.piece.inputs if isinstance(value, torch.Tensor)]
    layouts = [f"values[{k}] = values[{k}].{how}\n" for k, value in enumerate(inputs) if (how := _layout(value))]
    save_file({f"input_{k}": _plain(value) for k, value in enumerate(inputs)}, folder / "inputs.safetensors")
    save_file({f"output_{k}": _plain(value) for k, value in enumerate(alone.expected)}, folder / "expected.safetensors")
    runtime = {f"output_{k}": _plain(v) for k, v in enumerate(alone.piece.outputs) if isinstance(v, torch.Tensor)}
    save_file(runtime, folder / "runtime.safetensors")
    (folder / "repro.py").write_text(_SCRIPT.replace("{layouts}", "".join(layouts)), encoding="utf-8")
    versions = {name: version(name) for name in ("executorch", "torch")}
    mark = {"format": _FORMAT, "versions": versions, "operator": _operator(about), "outputs": len(found)}
    (folder / _MARK).write_text(json.dumps(mark, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_readme(about, versions, same=same), encoding="utf-8")


def _operator(about: Mapping[str, Any]) -> str:
    return about["reference_ops"] or about["op"]


def _readme(about: Mapping[str, Any], versions: dict[str, str], *, same: bool) -> str:
    where = f" ({markdown(about['source'])})" if about["source"] else ""
    shape = f"{about['dtype']} [{', '.join(map(str, about['shape']))}]"
    again = "Run alone, it gives" if same else "Run alone, it does not exactly give"
    return (
        f"# {markdown(_operator(about))} on {markdown(about['backend'] or 'the portable kernels')}{where}\n\n"
        "`python repro.py` runs it on ExecuTorch and prints the gap (needs torch, executorch, numpy, safetensors).\n\n"
        f"Output {about['output']}, {shape}: RMSE {about['introduced_rmse']:.9g} between eager PyTorch and ExecuTorch "
        f"on the same inputs, with executorch {versions['executorch']} and torch {versions['torch']}. "
        f"{again} the outputs of the whole program's run (`runtime.safetensors`).{about['note']}\n"
    )


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return own_copy(tensor).contiguous()


def _layout(tensor: torch.Tensor) -> str:
    if tensor.is_contiguous():
        return ""
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return "contiguous(memory_format=torch.channels_last)"
    return ""
