"""The artifacts of one Inspection: opened, checked against one another, and asked for graphs, weights and inputs.

What only an evaluation needs is imported where it is needed, so that `etviz info` starts at once.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etviz.artifacts.bundle import BundledProgram, BundledTensor, read_bundled_program
from etviz.artifacts.checksum import Checking
from etviz.artifacts.counts import count_nodes
from etviz.artifacts.debug_buffer import DebugBuffer
from etviz.artifacts.etdump import ETDump, RunBlock, read_etdump
from etviz.artifacts.etrecord import ETRecord
from etviz.artifacts.files import PathLike
from etviz.artifacts.ir import Graph
from etviz.artifacts.lost_values import restore_lost_values
from etviz.artifacts.program import read_program
from etviz.artifacts.record_file import Record, read_record
from etviz.belonging import Calls, calls_of_etrecord, calls_of_graph, calls_of_program, misfit
from etviz.errors import ArtifactError, PairingError
from etviz.graph.delegation import Delegation
from etviz.graph.skeleton import skeleton

if TYPE_CHECKING:
    from etviz.numerics.limits import Limits
    from etviz.numerics.reference import Evaluator


class Files:
    """The artifacts of one call of `load`, opened and checked against one another.

    ``checked=False`` leaves out the check that reads all of the `.pte`, and with it what `finish` waits for.
    """

    def __init__(
        self,
        etdump: PathLike | ETDump,
        etrecord: PathLike | None,
        debug_buffer: PathLike | None,
        pte: PathLike | None,
        record: PathLike | None,
        *,
        checked: bool = True,
    ) -> None:
        if record is None and pte is not None:
            beside = Path(pte).with_suffix(".etviz")
            record = beside if beside.is_file() else None
        self.bundle = _read_bundle(pte) if pte is not None else None
        self._checking: Checking | None = None
        if checked and pte is not None and record is not None:
            self._checking = Checking(bytes(self.bundle.program_bytes) if self.bundle else pte)
        self.record: Record | None = read_record(record) if record is not None else None
        self.record_path = str(record)
        dump = etdump if isinstance(etdump, ETDump) else read_etdump(etdump)
        given = {"etdump": dump.path, "etrecord": etrecord, "debug_buffer": debug_buffer, "pte": pte, "record": record}
        self.named = {kind: str(path) for kind, path in given.items() if path is not None}
        self.dump: ETDump = dump
        self.buffer = DebugBuffer(debug_buffer) if debug_buffer is not None else None
        if self.buffer is not None:
            self.buffer.require_whole(self.dump.tensor_refs())
        self.etrecord = ETRecord(etrecord) if etrecord is not None else None
        self.program = self.bundle.program() if self.bundle else read_program(pte) if pte is not None else None
        self.derived: set[str] = set()
        self._edges: dict[str, Graph] = {}

    def check_etrecord(self) -> None:
        """Refuse an ETRecord whose calls are not those of the program.

        Raises
        ------
        ArtifactError
            If its delegate calls or debug handles stand at other instructions than the `.pte`'s calls.
        """
        etrecord, program = self.etrecord, self.program
        if etrecord is None or program is None or not etrecord.has_member("delegate_map"):
            return
        for method in program.methods:
            if method.name not in etrecord.methods:
                continue
            calls = {i.index for i in method.instructions if i.kind in ("kernel", "delegate")}
            delegates = {i.index: method.backend(i) for i in method.instructions if i.kind == "delegate"}
            found, handled = etrecord.backends(method.name), set(etrecord.debug_handles(method.name))
            if found != delegates or not handled <= calls:
                raise ArtifactError(
                    etrecord.path,
                    f"the ETRecord belongs to another program than {self.named['pte']} (their calls differ)",
                    "give the ETRecord that was written together with the .pte",
                    where=method.name,
                    found=found,
                    expected=delegates,
                )

    def graphs(self) -> dict[str, Graph]:
        """The graphs of all methods that the files tell of."""
        return self._graphs

    @functools.cached_property
    def _graphs(self) -> dict[str, Graph]:
        if self.record is not None:
            return dict(self.record.graphs)
        methods = [m.name for m in self.program.methods] if self.program else []
        methods = methods or (self.etrecord.methods if self.etrecord else []) or ["forward"]
        return {method: self._skeleton(method) for method in methods}

    def _skeleton(self, method: str) -> Graph:
        """The graph that can be told of without a record: derived where that succeeds, else only the instructions."""
        from etviz.graph.derive import derive
        from etviz.graph.rebuild import InconsistentError, rebuild

        etrecord = self.etrecord
        if self.program is not None and etrecord is not None and (edge := self.edge(method)) is not None:
            plan = self.program.method(method)
            try:
                graph = rebuild(plan, edge, derive(plan, edge, etrecord.debug_handles(method)))
            except InconsistentError:
                graph = None
            if graph is not None:
                self.derived.add(method)
                return graph
        blocks = [block for block in self.dump.blocks if block.name == "Execute"]
        edge = self.edge(method) if etrecord is not None else None
        handles = etrecord.debug_handles(method) if etrecord is not None else {}
        backends = etrecord.backends(method) if etrecord is not None else {}
        return skeleton(method, self.program, blocks, edge, handles, backends)

    def edge(self, method: str) -> Graph | None:
        """The ETRecord's edge graph of a method, None if it has none."""
        etrecord = self.etrecord
        if etrecord is None or method not in etrecord.methods:
            return None
        if method not in self._edges:
            self._edges[method] = etrecord.edge_graph(method)
        return self._edges[method]

    def delegation(self, method: str) -> Delegation | None:
        """What is delegated of a method, None where the files do not tell."""
        if self.record is not None:
            return Delegation.from_counts(self.record.delegation[method])
        from etviz.graph.rebuild import is_complete

        graph = self.graphs()[method]
        if method in self.derived and is_complete(graph):
            return Delegation.from_counts(count_nodes(graph))
        return None

    def evaluator(self, method: str) -> Evaluator:
        """An evaluator of a method in its initial state: of the recorded graph, else of the ETRecord's edge graph."""
        from etviz.numerics.reference import Evaluator
        from etviz.numerics.weights import Weights

        limits = self._limits()
        if self.record is None:
            graph, etrecord = self.edge(method), self.etrecord
            if graph is None or etrecord is None:
                raise PairingError(f"The files hold no graph of the method {method}", "give etrecord= or record=")
            if method in self.derived:
                graph = self.graphs()[method]
            return Evaluator(graph, etrecord.weights(f"edge_dialect_exported_program/{method}"), limits)
        return Evaluator(self.record.graphs[method], Weights(self.record, self.record_path, self.etrecord), limits)

    def _limits(self) -> Limits:
        from etviz.numerics.limits import Limits

        return Limits(sum(Path(path).stat().st_size for path in self.named.values()))

    def has_float(self, method: str) -> bool:
        """True if the record keeps the float model that a method was quantized from."""
        return self.record is not None and method in self.record.references

    def float_evaluator(self, method: str) -> Evaluator:
        """The float model of a method, ready to be evaluated.

        Raises
        ------
        PairingError
            If there is none.
        """
        from etviz.numerics.reference import Evaluator
        from etviz.numerics.weights import Weights

        if self.record is None or method not in self.record.references:
            raise PairingError(f"The files hold no float model of the method {method}", "give record= with one")
        weights = Weights(self.record, self.record_path, self.etrecord)
        return Evaluator(self.record.references[method], weights, self._limits())

    def inputs(self, given: Any, method: str) -> list[list[Any]]:
        """Flat inputs that the executions may have had, in order; empty if they are in none of the files."""
        from etviz.numerics.weights import Weights
        from etviz.pipeline.lower import flatten

        if given is None and self.bundle is not None:
            given = _bundled_inputs(self.bundle, method) or None
        if given is None and self.etrecord is not None:
            given = self.etrecord.representative_inputs()
        if given is None and self.record is not None and "inputs" in self.record.extra:
            given = Weights(self.record, self.record_path, None).inputs()
        if given is None:
            return []
        several = isinstance(given, list) and bool(given) and all(isinstance(item, tuple) for item in given)
        return [flatten(item) for item in given] if several else [flatten(given)]

    def executions(self, method: str) -> list[tuple[int, RunBlock]]:
        """``(position, block)`` of each execution of a method.

        An ETDump does not name methods, so a block belongs to the method whose calls its events tell of.

        Raises
        ------
        ArtifactError
            If there is one method only and the ETDump tells of other calls.
        """
        blocks = [(at, block) for at, block in enumerate(self.dump.blocks) if block.name == "Execute"]
        calls, source, methods = self._calls(method)
        other = {at: misfit(block, calls) for at, block in blocks}
        if methods == 1 and (found := next(filter(None, other.values()), "")):
            raise ArtifactError(
                self.dump.path,
                f"the ETDump belongs to another program than {self.named[source]} ({found})",
                "give the files of one program",
            )
        return [(at, block) for at, block in blocks if not other[at]]

    def _calls(self, method: str) -> tuple[Calls, str, int]:
        """The calls of a method, the kind of file that tells of them, and how many methods that has."""
        if self.program is not None:
            return calls_of_program(self.program.method(method)), "pte", len(self.program.methods)
        if self.record is not None:
            return calls_of_graph(self.record.graphs[method]), "record", len(self.record.graphs)
        if self.etrecord is not None and method in self.etrecord.methods:
            return calls_of_etrecord(self.etrecord, method), "etrecord", len(self.etrecord.methods)
        return Calls(), "etdump", 0

    def restore(self, method: str) -> None:
        """Put back what the ETDump lost of a method's values, where program and debug buffer tell."""
        if self.dump.problems and self.program is not None and self.buffer is not None:
            self.dump = restore_lost_values(self.dump, self.program.method(method), self.buffer)

    def finish(self) -> None:
        """Wait for the check of the `.pte`.

        Raises
        ------
        ArtifactError
            If the record belongs to another program.
        """
        if self._checking is None or self.record is None:
            return
        if not self._checking.agrees(self.record.pte_checksum):
            raise ArtifactError(
                self.record_path,
                f"the record belongs to another program than {self.named['pte']} (their checksums differ)",
                "write the record again with etviz.record(), or give record= the right file",
                expected=self.record.pte_checksum,
            )


def _read_bundle(pte: PathLike) -> BundledProgram | None:
    """The bundled program, if the file is one and no plain program."""
    path = Path(pte)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return read_bundled_program(pte) if file.read(8)[4:8] == b"BP08" else None


def _bundled_inputs(bundle: BundledProgram, method: str) -> list[tuple[Any, ...]]:
    """Inputs of every test case of a method, as tensors and plain values."""
    import torch

    def value(item: Any) -> Any:
        if not isinstance(item, BundledTensor):
            return item
        return torch.from_numpy(item.data.copy()).view(getattr(torch, item.dtype))

    return [tuple(value(item) for item in case.inputs) for case in bundle.suites.get(method, ())]
