"""The process that lowers and runs a model in another environment.

It has nothing of etviz but this file and `service`, and takes only what several versions of executorch have.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import platform
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from etviz.pipeline.service import run_program, serve

_NEEDED: Final = ("torch", "executorch.runtime", "executorch.kernels.quantized")


def main(connection: int, parent: int) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    serve(connection, parent, _NEEDED, {"versions": lambda *_: versions(), "lower": _lower, "run": _run})


def versions() -> dict[str, str]:
    installed = {"python": platform.python_version()}
    for name in ("executorch", "torch"):
        try:
            installed[name] = str(importlib.import_module(name).__version__) if name == "torch" else _installed(name)
        except Exception as error:  # noqa: BLE001 - a broken installation fails in its own way
            installed[name] = f"none ({type(error).__name__}: {error})"
    return installed


def _installed(name: str) -> str:
    importlib.import_module(name)
    return importlib.metadata.version(name)


def make(text: str) -> Any:
    """Call a callable named ``package.module:name`` or ``file.py:name``.

    Examples
    --------
    >>> make("builtins:list")
    []
    """
    place, _, name = text.rpartition(":")
    if not place or not name.isidentifier():
        raise ValueError(f"{text!r} names nothing; write package.module:name, or file.py:name")
    if not place.endswith(".py"):
        return getattr(importlib.import_module(place), name)()
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} can't be imported")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)()


def _lower(request: dict[str, Any], step: Callable[[int], None]) -> dict[str, Any]:
    answer: dict[str, Any] = {"problem": "", "step": "import"}
    try:
        for done, answer["step"] in enumerate(_steps(request), 1):
            step(done)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the recipe's reason
        traceback.print_exc()
        answer["problem"] = f"{type(error).__name__}: {error}"
    return answer


def _steps(request: dict[str, Any]) -> Any:
    import torch
    from executorch.exir import to_edge_transform_and_lower

    importlib.import_module("executorch.kernels.quantized")
    folder = Path(request["folder"])
    given = torch.load(request["values"], weights_only=True)
    inputs = tuple(given["inputs"])
    if request["model"]:
        yield "export"
        model = make(request["model"]).eval()
        model.load_state_dict(given["weights"])
        program = torch.export.export(model, inputs, strict=request["strict"])
    else:
        yield "read"
        program = torch.export.load(request["program"])
    if request["quantizer"]:
        yield "quantize"
        program = _quantize(program, inputs, make(request["quantizer"]), given["calibration"])
    yield "lower"
    made = make(request["partitioner"]) if request["partitioner"] else []
    partitioner: Any = list(made) if isinstance(made, (list, tuple)) else [made]
    edge = to_edge_transform_and_lower(program, partitioner=partitioner or None, generate_etrecord=True)
    yield "emit"
    manager = edge.to_executorch()
    yield "save"
    with (folder / "model.pte").open("wb") as file:
        manager.write_to_file(file)
    try:
        etrecord = manager.get_etrecord()
        etrecord.update_representative_inputs(inputs)
        etrecord.save(str(folder / "etrecord.bin"))
    except Exception:  # noqa: BLE001 - older versions have none, and others fail on some programs
        traceback.print_exc()
        (folder / "etrecord.bin").unlink(missing_ok=True)


def _quantize(program: Any, inputs: Sequence[Any], quantizer: Any, calibration: Sequence[Sequence[Any]]) -> Any:
    import torch

    try:
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    except ImportError:  # torchao did not have it yet
        module = importlib.import_module("torch.ao.quantization.quantize_pt2e")
        convert_pt2e, prepare_pt2e = module.convert_pt2e, module.prepare_pt2e
    prepared = prepare_pt2e(program.module(), quantizer)
    with torch.no_grad(), kept_state(prepared, [name for name, _ in program.named_buffers()]):
        for batch in calibration:
            prepared(*batch)
    return torch.export.export(convert_pt2e(prepared), tuple(inputs), strict=False)


@contextmanager
def kept_state(module: Any, names: Iterable[str]) -> Generator[None]:
    """Give these buffers their values back at the end: the calls of a model change its caches."""
    buffers = dict(module.named_buffers())
    before = [(buffers[name], buffers[name].clone()) for name in names if name in buffers]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.detach().copy_(value)


def _run(request: dict[str, Any], step: Callable[[int], None]) -> dict[str, Any]:
    from executorch.runtime import Runtime, Verification

    return run_program(Runtime, Verification, request, step)
