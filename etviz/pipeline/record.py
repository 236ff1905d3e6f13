"""Keeping the lowered program beside the `.pte`, so that exact pairing works later and elsewhere."""

from __future__ import annotations

import functools
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.artifacts.files import PathLike
from etviz.artifacts.known_files import note_written
from etviz.artifacts.record.checksum import checksum_of
from etviz.artifacts.record.record_file import LISTINGS, SPECIFICATIONS, Record, TensorPlace, write_record
from etviz.errors import UsageError
from etviz.graph.delegation import count_nodes
from etviz.graph.ir import Graph
from etviz.pipeline.capture import capture, capture_reference, check_reference
from etviz.upstream import tosa
from etviz.upstream.executorch import delegated_listings, emitted_programs, lowered_module, quietly, swapped

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
    from torch.export import ExportedProgram


logger = logging.getLogger(__name__)

_EDGE: Final = "edge_dialect_exported_program/"
_SMALL: Final = 64
"""Bytes up to which the record keeps a constant: opening its weights takes longer."""


def record(
    edge_program_manager: EdgeProgramManager | None,
    executorch_program_manager: ExecutorchProgramManager,
    path: PathLike,
    reference: ExportedProgram | Mapping[str, ExportedProgram] | None = None,
) -> None:
    """Write the record file of a lowered program, for `etviz.load`.

    Parameters
    ----------
    edge_program_manager
        Not read; may be None.
    executorch_program_manager
        Result of `to_executorch()`. With ``generate_etrecord=True``, the record refers to weights in the ETRecord.
    path
        By convention ``model.etviz`` beside ``model.pte``.
    reference
        The float model that was quantized, exported, for `Inspection.quantization`; a dict by method if there are
        several. Weights that the ETRecord lacks are written too, so the record is about as large as the float model.

    Raises
    ------
    UsageError
        If the arguments are not program managers, or `reference` is no exported program of one of the methods.
    """
    if not hasattr(executorch_program_manager, "executorch_program"):
        raise UsageError(
            "executorch_program_manager must be what to_executorch() returns, "
            f"found {type(executorch_program_manager).__name__}"
        )
    references = check_reference(reference, sorted(executorch_program_manager.methods))
    _write(executorch_program_manager, path, {}, references)


def _write(
    manager: ExecutorchProgramManager,
    path: PathLike,
    extra: dict[str, Any],
    references: Mapping[str, ExportedProgram] | None = None,
) -> None:
    record = build_record(manager, references=references)
    record.extra |= extra
    write_record(record, path)
    note_written([path])


@contextmanager
def recording(path: PathLike) -> Generator[None]:
    """Write the record file of the program that an exporter emits within the ``with`` block.

    Exporters such as `export_llama` and optimum-executorch keep the program managers that `record` needs. All of them
    call `EdgeProgramManager.to_executorch`, whose result is recorded. Raises `UsageError` if the block emits no
    program, or several.

    Examples
    --------
    >>> with etviz.recording("model.etviz"):  # doctest: +SKIP
    ...     export_llama(config)
    """
    with quietly():
        from executorch.exir import EdgeProgramManager

    emit = EdgeProgramManager.to_executorch
    emitted: list[tuple[dict[str, str], ExecutorchProgramManager]] = []

    @functools.wraps(emit)
    def emit_and_keep(self: EdgeProgramManager, *args: Any, **kwargs: Any) -> ExecutorchProgramManager:
        listings = delegated_listings(self)
        emitted.append((listings, emit(self, *args, **kwargs)))
        return emitted[-1][1]

    with swapped(EdgeProgramManager, to_executorch=emit_and_keep):
        yield
    if len(emitted) != 1:
        raise UsageError(f"recording() takes the one program that is emitted in its block, found {len(emitted)}")
    ((listings, manager),) = emitted
    _write(manager, path, {LISTINGS: listings})


def build_record(
    manager: ExecutorchProgramManager,
    *,
    inputs: list[Any] | None = None,
    use_etrecord: bool = True,
    references: Mapping[str, ExportedProgram] | None = None,
) -> Record:
    """Flat `inputs` are kept where no ETRecord holds them; without `use_etrecord` the record keeps all weights."""
    graphs, constants = capture(manager)
    programs = _etrecord_programs(manager)
    captured = {method: capture_reference(p, method, constants) for method, p in (references or {}).items()}
    places, tensors = _place(constants, _etrecord_tensors(programs) if use_etrecord else {})
    extra: dict[str, Any] = {}
    if inputs is not None:
        extra["inputs"] = _keep_inputs(inputs, tensors)
    if specifications := _specifications(manager, tensors):
        extra[SPECIFICATIONS] = specifications
    delegation = {
        method: count_nodes(graph, _elided_views(graph, programs.get(_EDGE + method)))
        for method, graph in graphs.items()
    }
    return Record(graphs, places, checksum_of(manager.buffer), delegation, extra, captured, tensors)


def _specifications(manager: ExecutorchProgramManager, stored: dict[str, torch.Tensor]) -> dict[str, Any]:
    """By delegate lowered through TOSA; bytes that no payload holds are added to `stored`."""
    tensors: dict[str, Any] = {}
    for method, program in emitted_programs(manager).items():
        for node in program.graph.nodes:
            lowered = lowered_module(program.graph_module, node)
            if lowered is None or lowered.backend_id not in tosa.BACKENDS:
                continue
            key = f"{method}/{node.args[0]}"
            specs = [(spec.key, bytes(spec.value)) for spec in lowered.compile_specs]
            try:
                data, origins = tosa.specify(lowered.original_module, lowered.backend_id, specs)
            except Exception as error:  # noqa: BLE001 - the record holds without it, and a zoom says what is missing
                logger.info("the TOSA graph of %s can't be made (%s)", key, error)
                continue
            kept = f"specification.{key}" if data != bytes(lowered.processed_bytes) else ""
            if kept:
                stored[kept] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            tensors[key] = {"data": kept, "origins": origins}
    return tensors


def _etrecord_programs(manager: ExecutorchProgramManager) -> dict[str, ExportedProgram]:
    try:
        etrecord = manager.get_etrecord()
    except RuntimeError:
        return {}
    programs: dict[str, ExportedProgram] = {}
    if etrecord.exported_program is not None:
        programs["exported_program"] = etrecord.exported_program
    edge = etrecord.edge_dialect_program or {}
    for method, program in (edge if isinstance(edge, dict) else {"forward": edge}).items():
        programs[_EDGE + method] = program
    return programs


def _elided_views(graph: Graph, edge: ExportedProgram | None) -> list[str]:
    """Views that `to_executorch()` merged into others: upstream counts them, nothing runs them."""
    if edge is None:
        return []
    kept = {node.name for part in (graph, *graph.subgraphs.values()) for node in part.nodes}
    return [n.name for n in edge.graph.nodes if n.name.startswith("aten_view_copy_default") and n.name not in kept]


def _etrecord_tensors(programs: dict[str, ExportedProgram]) -> dict[tuple[str, str], torch.Tensor]:
    tensors = {}
    for member, program in programs.items():
        tables: dict[str, dict[str, Any]] = {"state_dict": program.state_dict, "constants": dict(program.constants)}
        for kind, table in tables.items():
            for name, tensor in table.items():
                if hasattr(tensor, "data_ptr"):
                    tensors[f"{member}_{kind}", name] = tensor.detach()
    return tensors


def _place(
    constants: dict[str, torch.Tensor], known: dict[tuple[str, str], torch.Tensor]
) -> tuple[dict[str, TensorPlace], dict[str, torch.Tensor]]:
    by_name: dict[str, list[tuple[str, str]]] = {}
    for place in known:
        by_name.setdefault(place[1], []).append(place)
    places, stored = {}, {}
    for key, tensor in constants.items():
        name = key.rpartition("/")[2]
        for place in by_name.get(name, []):
            if place[0].startswith(_EDGE) and tensor.nbytes <= _SMALL:
                continue
            if _same(known[place], tensor):
                places[key] = TensorPlace(*place)
                break
        else:
            places[key] = TensorPlace("", key)
            stored[key] = tensor.detach().contiguous().clone()
    return places, stored


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return (a.data_ptr() == b.data_ptr() and a.stride() == b.stride()) or torch.equal(a, b)


def _keep_inputs(inputs: list[Any], stored: dict[str, torch.Tensor]) -> list[Any]:
    kept = []
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            stored[f"input.{index}"] = value.detach().contiguous().clone()
            kept.append({"tensor": f"input.{index}"})
        else:
            kept.append({"value": value})
    return kept
