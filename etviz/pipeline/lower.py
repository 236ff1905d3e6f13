"""A PyTorch model to `.pte`, ETRecord and record file."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves
from tqdm.auto import tqdm

from etviz.artifacts.files import whole_files
from etviz.artifacts.known_files import note_written
from etviz.artifacts.record.record_file import LISTINGS, REFUSALS, write_record
from etviz.errors import EtvizError, UsageError
from etviz.pipeline.capture import check_reference
from etviz.pipeline.complaint import complaint, place
from etviz.pipeline.environment_child import kept_state
from etviz.pipeline.record import build_record
from etviz.tensors.blocks import dtype_name
from etviz.text import one_line
from etviz.upstream.executorch import delegated_listings, quietly, refusals
from etviz.upstream.operators import register_quantized_operators

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager, ExecutorchProgramManager

logger = logging.getLogger(__name__)

_FEW = 8
_STRICT: Final = (
    "move it out of forward(), or give strict=False: then the operators that the model calls are traced, not its Python"
)
_CALLS: Final = "; several calls are a list of tuples"
_NOT_STRICT: Final = "write it with operators of torch, or move it out of forward()"
_AUTOGRAD: Final = re.compile("being (modified inplace|used in an in-place operation)")
_TWICE: Final = (
    "the program has one tensor as the buffer {} and as {}, and writes to it: an export with strict=False does not "
    "follow what a Python object holds; export it with strict=True, or read the buffer as an attribute of the model"
)
_PREPARED: Final = (
    "where an index became float, upstream made the number beside it a float tensor (x + 1): give the number as a "
    "tensor of integers (register_buffer), or keep it out of the quantizer's reach"
)
_PTE, _ETRECORD, _RECORD, _DATA = "model.pte", "etrecord.bin", "model.etviz", "model.ptd"


class LoweringError(EtvizError):
    """Upstream can't export, quantize, lower or emit a model; its error is the cause."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """`etrecord` is None where upstream could not write one, `data` where the `.pte` holds all weights."""

    pte: Path
    record: Path
    etrecord: Path | None
    data: Path | None = None


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
    """Replace the files in `workdir`; `LoweringError` names the refused step."""
    with quietly():
        from executorch.exir import to_edge_transform_and_lower
    register_quantized_operators()
    _check_arguments(model, reference, example_inputs, partitioner)
    if calibration is not None and quantizer is None:
        raise UsageError("calibration= means nothing without a quantizer; give quantizer= too")
    inputs = tuple(example_inputs)
    names = {"reference": reference, "quantize": quantizer}
    steps = ["export", *(name for name, given in names.items() if given is not None), "lower", "emit", "save"]
    with tqdm(total=len(steps), desc="etviz", leave=False) as bar, quietly(), _tried(model, inputs):
        program = _step(bar, "export", lambda: export(model, inputs, strict=strict))
        floating = program if quantizer is not None else None
        if reference is not None:
            floating = _step(bar, "reference", lambda: export(reference, inputs, strict=strict, what="reference"))
        if quantizer is not None:
            batches = calibration if calibration is not None else [inputs]
            program = _step(bar, "quantize", lambda: quantize(program, inputs, quantizer, batches))
        with refusals() as refused:
            edge = _step(
                bar,
                "lower",
                lambda: to_edge_transform_and_lower(
                    program, partitioner=list(partitioner) if partitioner else None, generate_etrecord=True
                ),
                lambda: _shared(program),
            )
        listings = delegated_listings(edge)
        with torch.no_grad() if _assigns(edge) else nullcontext():  # without gradients upstream emits another program
            manager = _step(bar, "emit", edge.to_executorch)
        bar.set_postfix_str("save")
        saved = save(manager, inputs, workdir, listings, floating, refused)
        bar.update()  # a notebook shows a bar that is not full at its end in red
        return saved


def _check_arguments(model: Any, reference: Any, example_inputs: Any, partitioner: Any) -> None:
    for name, given in (("model", model), *([("reference", reference)] if reference is not None else [])):
        if not isinstance(given, (torch.nn.Module, ExportedProgram)):
            raise UsageError(f"{name} must be an nn.Module or an ExportedProgram, found {type(given).__name__}")
    if not isinstance(example_inputs, (tuple, list)):
        raise UsageError(
            f"example_inputs must be a tuple of the model's arguments, found {type(example_inputs).__name__}; "
            "write (x,) for one argument"
        )
    if partitioner is None:
        return
    if not isinstance(partitioner, (tuple, list)):
        raise UsageError(f"partitioner must be a list of partitioners, found {type(partitioner).__name__}")
    for entry in partitioner:
        if isinstance(entry, type):
            raise UsageError(f"partitioner must hold partitioners, found the class {entry.__name__}; call it")
        if not callable(getattr(entry, "partition", None)):
            raise UsageError(f"partitioner must hold partitioners, found {type(entry).__name__}")


@contextmanager
def _tried(model: torch.nn.Module | ExportedProgram, inputs: tuple[Any, ...]) -> Generator[None]:
    """If a copy of the model fails to run too, its error is the better reason."""
    try:
        yield
    except LoweringError:
        if not isinstance(model, torch.nn.Module):
            raise
        try:
            copied = copy.deepcopy(model)
        except Exception:  # noqa: BLE001 - what a model holds may refuse in its own way, which is no fault of it
            copied = None
        if copied is None:
            raise
        try:
            with torch.no_grad():
                result = copied(*inputs)
        except Exception as error:
            calls = _CALLS if all(isinstance(item, (list, tuple, dict)) for item in inputs) else ""
            raise UsageError(
                f"The model itself fails on example_inputs{_given(inputs)}: {type(error).__name__}: "
                f"{(str(error).strip().splitlines() or [''])[0][:500]}{f' ({at})' if (at := place(error)) else ''}. "
                f"Give inputs that model(*example_inputs) takes{calls}."
            ) from error
        if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(result)):
            raise UsageError(
                f"The model returns no tensor, found {type(result).__name__}; return the tensors to compare"
            ) from None
        raise


def _given(inputs: tuple[Any, ...]) -> str:
    return f" {_kinds(inputs)}" if 0 < len(tree_leaves(inputs)) <= _FEW else ""


def export(
    model: torch.nn.Module | ExportedProgram, inputs: tuple[Any, ...], *, strict: bool, what: str = "model"
) -> ExportedProgram:
    if isinstance(model, ExportedProgram):
        return model
    try:
        with kept_state(model, [name for name, _ in model.named_buffers()]):  # tracing may run what writes integers
            return torch.export.export(model, inputs, strict=strict)
    except Exception as error:
        if torch.is_grad_enabled() and _AUTOGRAD.search(str(error)):  # no program computes gradients
            with torch.no_grad():
                return export(model, inputs, strict=strict, what=what)
        advice = _STRICT if strict else _NOT_STRICT
        raise LoweringError(f"The {what} could not be exported: {complaint(error, advice)}") from error


def quantize(
    program: ExportedProgram, example_inputs: Sequence[Any], quantizer: Any, calibration: Iterable[Sequence[Any]]
) -> ExportedProgram:
    """PT2E; a strict second export would lose the source lines of the float model."""
    with quietly():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    # Arm's passes refuse a call of _guards_fn in the graph, so it checks the inputs from outside
    guards = dict(program.module().named_children()).get("_guards_fn")
    prepared = prepare_pt2e(program.module(check_guards=False), quantizer)
    with torch.no_grad(), kept_state(prepared, [name for name, _ in program.named_buffers()]):
        for at, batch in enumerate(tqdm(calibration, desc="calibrate", leave=False)):
            if not isinstance(batch, (tuple, list)):
                raise UsageError(
                    f"calibration must hold tuples of the model's arguments, item {at} is a {type(batch).__name__}; "
                    "write (x,) for one argument"
                )
            if (problem := _refusal(prepared, guards, batch)) is None:
                continue
            if _refusal(program.module(check_guards=False), guards, batch) is None:
                _blame_quantizer(prepared, batch, at)
            raise UsageError(
                f"calibration: the model can't take item {at}, {_kinds(batch)}; it was exported for "
                f"{_kinds(example_inputs)} ({one_line(problem)[:200] or type(problem).__name__})"
            ) from problem
    return torch.export.export(convert_pt2e(prepared), tuple(example_inputs), strict=False)


def _refusal(module: torch.nn.Module, guards: Any, batch: Sequence[Any]) -> Exception | None:
    try:
        if guards is not None:
            guards(*tree_leaves(batch))
        module(*batch)
    except Exception as error:  # noqa: BLE001 - any error is told
        return error
    return None


def _blame_quantizer(prepared: torch.fx.GraphModule, batch: Sequence[Any], at: int) -> None:
    """An interpreter's error knows the operator, that of compiled code does not."""
    try:
        torch.fx.Interpreter(prepared).run(*batch)
    except Exception as error:
        raise LoweringError(
            f"The model takes item {at} of the calibration, but fails as the quantizer has prepared it: "
            f"{complaint(error, _PREPARED)}"
        ) from error


def _kinds(values: Sequence[Any]) -> str:
    kinds = ", ".join(
        f"{dtype_name(value.dtype)} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        for value in tree_leaves(values)
    )
    return f"({kinds})"


def save(
    manager: ExecutorchProgramManager,
    inputs: Sequence[Any],
    workdir: Path,
    listings: Mapping[str, str],
    reference: ExportedProgram | None = None,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> Lowered:
    references = check_reference(reference, sorted(manager.methods))
    with whole_files(workdir) as fresh:
        manager.save(str(fresh / _PTE))
        manager.write_tensor_data_to_file(str(fresh))
        written = sorted(fresh.glob("*.ptd"))
        if len(written) > 1:
            names = ", ".join(path.name for path in written)
            raise LoweringError(
                f"The program keeps its weights in {len(written)} files ({names}); the runtime takes one"
            )
        data = written[0].rename(fresh / _DATA).name if written else None
        has_etrecord = _save_etrecord(manager, inputs, fresh / _ETRECORD)
        kept = None if has_etrecord else tree_leaves(inputs)
        record = build_record(manager, inputs=kept, use_etrecord=has_etrecord, references=references)
        record.extra |= {LISTINGS: dict(listings), REFUSALS: dict(refused)}
        write_record(record, fresh / _RECORD)
    if not has_etrecord:
        (workdir / _ETRECORD).unlink(missing_ok=True)
    if data is None:
        (workdir / _DATA).unlink(missing_ok=True)
    note_written(workdir / name for name in (_PTE, _RECORD, _ETRECORD, _DATA))
    etrecord = workdir / _ETRECORD if has_etrecord else None
    return Lowered(workdir / _PTE, workdir / _RECORD, etrecord, workdir / data if data is not None else None)


def _save_etrecord(manager: ExecutorchProgramManager, inputs: Sequence[Any], path: Path) -> bool:
    try:
        etrecord = manager.get_etrecord()
        etrecord.update_representative_inputs(tuple(inputs))
        etrecord.save(str(path))
    except Exception as error:  # noqa: BLE001 - upstream fails in many ways here, and the record can do without
        logger.info("upstream could not write an ETRecord (%s); the record keeps everything", error)
        path.unlink(missing_ok=True)
        return False
    return True


def _assigns(edge: EdgeProgramManager) -> bool:
    """Upstream's passes overwrite buffers while parameters require gradients."""
    return any(edge.exported_program(name).graph_signature.buffers_to_mutate for name in edge.methods)


def _shared(program: ExportedProgram) -> str:
    signature, names = program.graph_signature, dict[int, str]()
    for name in (*signature.buffers, *signature.lifted_tensor_constants):
        value = program.state_dict.get(name, program.constants.get(name))
        at = value.data_ptr() if isinstance(value, torch.Tensor) else 0
        if at and (other := names.setdefault(at, name)) != name:
            return _TWICE.format(other, name)
    return ""


def _step(bar: tqdm, name: str, work: Callable[[], Any], advice: Callable[[], str] = str) -> Any:
    bar.set_postfix_str(name)
    try:
        result = work()
    except EtvizError:
        raise
    except Exception as error:
        raise LoweringError(f"The model could not be {_PAST[name]}: {complaint(error, advice())}") from error
    bar.update()
    return result


_PAST: Final = {"quantize": "quantized", "lower": "lowered", "emit": "emitted"}
