"""What is done with a damaged file: everything that a user would do with a sound one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import etviz
from etviz.artifacts.collection import collect
from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.etdump.lost_values import restore_lost_values
from etviz.artifacts.program.bundled_program import read_bundled_program
from etviz.artifacts.program.logged import debug_buffer_bytes
from etviz.artifacts.program.program import read_program
from etviz.artifacts.record.etrecord import ETRecord
from etviz.artifacts.record.record_file import read_record
from etviz.artifacts.record.weights import Weights
from etviz.errors import ArtifactError, ExecutionError, PairingError, UsageError
from etviz.evidence.parquet import read_table, vet
from etviz.view.payload.program_payload import build_payload
from etviz.view.payload.tensor import build_tensor

Files = Mapping[str, Path]


def etdump(files: Files) -> int:
    dump = read_etdump(files["etdump"])
    buffer = DebugBuffer(files["debug_buffer"])
    count = 0
    for ref in dump.tensor_refs():
        with contextlib.suppress(ArtifactError):
            count += buffer.tensor(ref).numel()
    return count


def pte(files: Files) -> int:
    program = read_program(files["pte"])
    return sum(debug_buffer_bytes(program, method.name) for method in program.methods)


def bpte(files: Files) -> int:
    return len(read_bundled_program(files["bpte"]).program().methods)


def lost(files: Files) -> int:
    dump, program = read_etdump(files["etdump"]), read_program(files["pte"])
    if not program.methods:
        return 0
    restored = restore_lost_values(dump, program.methods[0], DebugBuffer(files["debug_buffer"]))
    return sum(event.restored for block in restored.blocks for event in block.debug)


def log(files: Files) -> int:
    return len(collect(files["log"]).paths)


def parquet(files: Files) -> int:
    """The table of a study, with any checksum: a child process reads it first."""
    vet([files["parquet"]])
    return len(read_table(files["parquet"], ""))


def etrecord(files: Files) -> int:
    record = ETRecord(files["etrecord"])
    count = 0
    for method in record.methods:
        record.debug_handles(method)
        record.backends(method)
        count += len(record.edge_graph(method).nodes)
        weights = record.weights(f"edge_dialect_exported_program/{method}")
        count += sum(weights[name].numel() for name in weights)
    record.representative_inputs()
    return count


def record(files: Files) -> int:
    found = read_record(files["record"])
    weights = Weights(found, str(files["record"]), None)
    weights.inputs()
    count = sum(tensor.numel() for tensor in found.tensors.values())
    return sum(len(list(graph.walk())) for graph in found.graphs.values()) + count


def load(files: Files) -> int:
    """Everything, through the front door; the files are given as they are named."""
    given: dict[str, Any] = dict(files)
    inspection = etviz.load(given.pop("etdump"), **given)
    rows = len(inspection.gaps)
    inspection.summary()
    build_payload(inspection.analysis)
    for row in {0, rows - 1} if rows else ():
        inspection.tensors(row)
        build_tensor(inspection.analysis, row)
    return len(inspection.coverage) + rows + len(inspection.outputs)


def asked(files: Files) -> int:
    """All that an Inspection of them can be asked; what one question can't say leaves the others."""
    given: dict[str, Any] = dict(files)
    inspection = etviz.load(given.pop("etdump"), **given)
    questions = (
        lambda: inspection.attribution(),
        lambda: inspection.what_if(0),
        lambda: inspection.ladder(),
        lambda: inspection.time.ledger(),
        lambda: inspection.diagnosis(look_inside=False),
        lambda: inspection.row(0).fingerprints(force=True),
    )
    answered = 0
    for ask in questions:
        with contextlib.suppress(ExecutionError, PairingError, UsageError):
            ask()
            answered += 1
    return answered


READERS: dict[str, Callable[[Files], int]] = {
    reader.__name__: reader for reader in (etdump, pte, bpte, log, parquet, lost, etrecord, record, load, asked)
}
