"""`etviz.debug`: from a model to an Inspection in one call."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etviz.artifacts.files import PathLike
from etviz.inspection import Inspection
from etviz.opening import read
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import flatten, lower
from etviz.profile import scale_factor
from etviz.sources import Files

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def debug(
    model: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[Any],
    *,
    partitioner: Sequence[Any] | None = None,
    quantizer: Any = None,
    calibration: Iterable[Sequence[Any]] | None = None,
    reference: torch.nn.Module | ExportedProgram | None = None,
    strict: bool = True,
    workdir: PathLike | None = None,
    debug_buffer_size: int | None = None,
    timeout: float | None = None,
) -> Inspection:
    """Export, lower, run and compare a model in one call.

    Parameters
    ----------
    model
        An eager `nn.Module`, or an `ExportedProgram`.
    example_inputs
        A tuple of the model's arguments; the comparison runs on them.
    partitioner
        Partitioners of the backends to delegate to; None means portable kernels only.
    quantizer, calibration
        A PT2E quantizer, and an iterable of input tuples to calibrate it on.
    reference
        The float model that `Inspection.quantization` compares with, if `model` is quantized already. With a
        `quantizer` the float model is kept by itself.
    strict
        Passed to `torch.export.export`.
    workdir
        Folder that keeps the artifacts (``model.pte``, ``etrecord.bin``, ``model.etviz``, ``etdump.etdp``,
        ``debug_buffer.bin``); a temporary one if None.
    debug_buffer_size
        Bytes; by default as large as the program needs.
    timeout
        Seconds for the run in the child process.

    Raises
    ------
    UsageError
        If an argument makes no sense.
    LoweringError
        If upstream refuses the model.
    ExecutionError
        If the run fails.
    """
    temporary = None if workdir is not None else tempfile.TemporaryDirectory(prefix="etviz-")
    folder = Path(temporary.name if temporary else workdir or "")
    folder.mkdir(parents=True, exist_ok=True)
    lowered = lower(
        model,
        example_inputs,
        folder,
        partitioner=partitioner,
        quantizer=quantizer,
        calibration=calibration,
        reference=reference,
        strict=strict,
    )
    run = execute(
        lowered.pte,
        [flatten(tuple(example_inputs))],
        workdir=folder,
        debug_buffer_size=debug_buffer_size,
        timeout=timeout,
    )
    etdump = run.etdump or folder / "etdump.etdp"
    files = Files(etdump, lowered.etrecord, run.debug_buffer, lowered.pte, lowered.record)
    findings = read(files, tuple(example_inputs), None, scale_factor("ns"), ran_here=True)
    findings.title = f"{type(model).__name__} ({findings.method})"
    findings.keep_alive = temporary
    return Inspection(findings)
