"""A PyTorch model to the artifacts that a debugging run needs: `.pte`, ETRecord and record file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from etviz.artifacts.record_file import LISTINGS, write_record
from etviz.errors import EtvizError, UsageError
from etviz.executorch import delegated_listings, quietly, register_quantized_operators
from etviz.pipeline.record import build_record
from etviz.pipeline.reference import check_reference

if TYPE_CHECKING:
    import torch
    from executorch.exir import ExecutorchProgramManager
    from torch.export import ExportedProgram

logger = logging.getLogger(__name__)


class LoweringError(EtvizError):
    """A model could not be exported, quantized, lowered or emitted; upstream's own error is the cause."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """Where the artifacts of a lowered model are; `etrecord` is None where upstream could not write one."""

    pte: Path
    record: Path
    etrecord: Path | None


def flatten(inputs: Any) -> list[Any]:
    """The leaves of nested inputs, in the order in which the runtime takes them."""
    from torch.utils import _pytree as pytree

    return pytree.tree_leaves(inputs)


def lower(
    model: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[Any],
    workdir: Path,
    *,
    partitioner: Sequence[Any] | None = None,
    quantizer: Any = None,
    calibration: Iterable[Sequence[Any]] | None = None,
    reference: torch.nn.Module | ExportedProgram | None = None,
    strict: bool = True,
) -> Lowered:
    """Export, quantize if asked, lower and emit a model; write ``model.pte``, ``etrecord.bin``, ``model.etviz``.

    Parameters
    ----------
    model
        An eager module, or a program that is exported already.
    example_inputs
        Positional arguments of one call.
    workdir
        An existing folder.
    partitioner
        Partitioners for `to_edge_transform_and_lower`; None leaves everything to the portable kernels.
    quantizer, calibration
        A PT2E quantizer, and input tuples to calibrate it on (the example inputs if None).
    reference
        The float model that the record keeps; with a quantizer the model as it was before, if None.
    strict
        Passed to `torch.export.export`.

    Raises
    ------
    UsageError
        If the arguments do not fit together.
    LoweringError
        If upstream refuses the model; says at which step.
    """
    with quietly():
        from executorch.exir import to_edge_transform_and_lower
    register_quantized_operators()
    _check_arguments(model, reference, example_inputs)
    inputs = tuple(example_inputs)
    names = {"reference": reference, "quantize": quantizer}
    steps = ["export", *(name for name, given in names.items() if given is not None), "lower", "emit", "save"]
    with tqdm(total=len(steps), desc="etviz", leave=False) as bar, quietly():
        program = _step(bar, "export", lambda: _export(model, inputs, strict=strict))
        floating = program if quantizer is not None else None
        if reference is not None:
            floating = _step(bar, "reference", lambda: _export(reference, inputs, strict=strict))
        if quantizer is not None:
            batches = calibration if calibration is not None else [inputs]
            program = _step(bar, "quantize", lambda: quantize(program, inputs, quantizer, batches))
        edge = _step(
            bar,
            "lower",
            lambda: to_edge_transform_and_lower(
                program, partitioner=list(partitioner) if partitioner else None, generate_etrecord=True
            ),
        )
        listings = delegated_listings(edge)
        manager = _step(bar, "emit", edge.to_executorch)
        bar.set_postfix_str("save")
        return save(manager, inputs, workdir, listings, floating)


def _check_arguments(model: Any, reference: Any, example_inputs: Any) -> None:
    import torch
    from torch.export import ExportedProgram

    for name, given in (("model", model), *([("reference", reference)] if reference is not None else [])):
        if not isinstance(given, (torch.nn.Module, ExportedProgram)):
            raise UsageError(f"{name} must be an nn.Module or an ExportedProgram, found {type(given).__name__}")
    if not isinstance(example_inputs, (tuple, list)):
        raise UsageError(
            f"example_inputs must be a tuple of the model's arguments, found {type(example_inputs).__name__}; "
            "write (x,) for one argument"
        )


def _export(model: torch.nn.Module | ExportedProgram, inputs: tuple[Any, ...], *, strict: bool) -> ExportedProgram:
    import torch
    from torch.export import ExportedProgram

    return model if isinstance(model, ExportedProgram) else torch.export.export(model, inputs, strict=strict)


def quantize(
    program: ExportedProgram,
    example_inputs: Sequence[Any],
    quantizer: Any,
    calibration: Iterable[Sequence[Any]],
) -> ExportedProgram:
    """PT2E quantization: prepare, calibrate on every input tuple, convert, and export again.

    The second export is not strict: a strict one would lose the source lines of the float model.
    """
    import torch

    with quietly():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(program.module(), quantizer)
    with torch.no_grad():
        for batch in tqdm(calibration, desc="calibrate", leave=False):
            prepared(*batch)
    return torch.export.export(convert_pt2e(prepared), tuple(example_inputs), strict=False)


def save(
    manager: ExecutorchProgramManager,
    inputs: Sequence[Any],
    workdir: Path,
    listings: Mapping[str, str],
    reference: ExportedProgram | None = None,
) -> Lowered:
    """Write the artifacts of an emitted program; `listings` and the float `reference` go into the record."""
    pte, record, etrecord_path = workdir / "model.pte", workdir / "model.etviz", workdir / "etrecord.bin"
    manager.save(str(pte))
    etrecord: Path | None = etrecord_path
    try:
        written = manager.get_etrecord()
        written.update_representative_inputs(tuple(inputs))
        written.save(str(etrecord_path))
    except Exception as error:  # noqa: BLE001 - upstream fails in many ways here, and the record can do without
        logger.info("upstream could not write an ETRecord (%s); the record keeps everything", error)
        etrecord_path.unlink(missing_ok=True)
        etrecord = None
    kept = flatten(inputs) if etrecord is None else None
    references = check_reference(reference, sorted(manager.methods))
    found = build_record(manager, inputs=kept, use_etrecord=etrecord is not None, references=references)
    found.extra[LISTINGS] = dict(listings)
    write_record(found, record)
    return Lowered(pte, record, etrecord)


def _step(bar: tqdm, name: str, work: Callable[[], Any]) -> Any:
    bar.set_postfix_str(name)
    try:
        result = work()
    except EtvizError:
        raise
    except Exception as error:
        cause = str(error).strip() or type(error).__name__
        what = "reference" if name == "reference" else "model"
        raise LoweringError(f"The {what} could not be {_PAST[name]}: {cause}") from error
    bar.update()
    return result


_PAST = {"export": "exported", "reference": "exported", "quantize": "quantized", "lower": "lowered", "emit": "emitted"}
