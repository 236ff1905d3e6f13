"""The graphs that the files hold, by name, as `ExportedProgram`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from etviz.artifacts.record.etrecord import ETRecord
from etviz.artifacts.record.record_file import read_record
from etviz.artifacts.record.weights import Weights
from etviz.errors import UsageError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def exported_program_of(files: Mapping[str, str], method: str, name: str) -> ExportedProgram:
    makers = _makers(files, method)
    if name not in makers:
        known = ", ".join(makers) or "none, since there is neither an ETRecord nor a record"
        raise UsageError(f"there is no program {name!r}; the files hold {known}")
    return makers[name]()


def _makers(files: Mapping[str, str], method: str) -> dict[str, Callable[[], ExportedProgram]]:
    from etviz.evaluation.exported import exported_program

    makers: dict[str, Callable[[], ExportedProgram]] = {}
    etrecord = ETRecord(files["etrecord"]) if "etrecord" in files else None
    if etrecord is not None:
        short = {"exported_program": "exported", f"edge_dialect_exported_program/{method}": "edge"}
        for program in etrecord.programs:
            make = partial(_of_etrecord, etrecord, program)
            makers |= dict.fromkeys((short.get(program, program), program), make)
    if "record" in files:
        record = read_record(files["record"])
        weights = Weights(record, files["record"], etrecord)
        for name, graphs in (("lowered", record.graphs), ("float", record.references)):
            if method in graphs:
                makers[name] = partial(exported_program, graphs[method], weights)
    return makers


def _of_etrecord(etrecord: ETRecord, program: str) -> ExportedProgram:
    from etviz.evaluation.exported import exported_program

    return exported_program(etrecord.graph(program), etrecord.weights(program))
