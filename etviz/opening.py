"""`etviz.load`: from artifacts to an Inspection."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from etviz.artifacts.counts import count_nodes
from etviz.artifacts.debug_buffer import DebugBuffer
from etviz.artifacts.etdump import ETDump, read_etdump
from etviz.artifacts.etrecord import ETRecord
from etviz.artifacts.files import PathLike
from etviz.artifacts.ir import Graph
from etviz.artifacts.lost_values import restore_lost_values
from etviz.artifacts.program import read_program
from etviz.artifacts.record_file import Record, read_record
from etviz.errors import ArtifactError, PairingError, UsageError
from etviz.graph.delegation import Delegation
from etviz.graph.derive import derive
from etviz.graph.rebuild import InconsistentError, is_complete, rebuild
from etviz.graph.skeleton import skeleton
from etviz.inspection import Findings, Inspection
from etviz.numerics.comparison import compare_exact
from etviz.numerics.handles import compare_by_handles
from etviz.numerics.recall import KEPT_BYTES, Recall
from etviz.numerics.reference import Evaluator
from etviz.numerics.runtime_log import RuntimeLog
from etviz.numerics.weights import Weights
from etviz.pipeline.lower import flatten
from etviz.pipeline.record import sha256_of
from etviz.profile import instruction_latency, scale_factor


def load(
    etdump: PathLike,
    *,
    etrecord: PathLike | None = None,
    debug_buffer: PathLike | None = None,
    pte: PathLike | None = None,
    record: PathLike | None = None,
    inputs: Any = None,
    method: str | None = None,
    delegate_metadata_parser: Callable[[list[bytes]], Any] | None = None,
    source_time_scale: str = "ns",
) -> Inspection:
    """Read artifacts, as they come from a device or a runner, and compare them with their reference.

    What can't be shown without a missing piece is said in `Inspection.summary()`, not guessed.

    Parameters
    ----------
    etdump
        What the runtime recorded.
    etrecord
        The AOT graphs, weights and representative inputs.
    debug_buffer
        The tensors that the runtime logged; without it there is no gap.
    pte
        The program.
    record
        The record file for exact pairing; by default ``model.etviz`` beside the `.pte`, if it is there.
    inputs
        The inputs of the run: a tuple, or a list with a tuple for each execution. By default the ETRecord's.
    method
        Name of the method, if the program has several.
    delegate_metadata_parser
        Turns the metadata of delegate events into text, as for the upstream Inspector.
    source_time_scale
        Unit of the device's clock: ``ns``, ``us``, ``ms``, ``s`` or ``cycles``.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged, or does not belong to the others.
    UsageError
        If an argument makes no sense.
    PairingError
        If the reference can't be computed.
    """
    files = Files(etdump, etrecord, debug_buffer, pte, record)
    return Inspection(read(files, inputs, method, scale_factor(source_time_scale)))


def read(files: Files, inputs: Any, method: str | None, factor: float) -> Findings:
    """Compare what the files hold.

    Parameters
    ----------
    files
        The opened artifacts.
    inputs, method
        As for `load`.
    factor
        Milliseconds of one unit of the device's clock.
    """
    graphs = files.graphs()
    chosen = _choose(method, list(graphs))
    name = Path(files.named.get("pte", files.named["etdump"])).name
    findings = Findings(title=f"{name} ({chosen})", method=chosen, graphs=graphs, files=files.named)
    files.restore(chosen)
    executions = [(at, block) for at, block in enumerate(files.dump.blocks) if block.name == "Execute"]
    findings.latency = instruction_latency([block for _, block in executions], factor)
    findings.notes.extend(files.dump.problems)
    if files.record is not None:
        findings.delegation = Delegation.from_counts(files.record.delegation[chosen])
    elif chosen in files.derived and is_complete(graphs[chosen]):
        findings.delegation = Delegation.from_counts(count_nodes(graphs[chosen]))
    if not executions:
        findings.notes.append("The ETDump holds no execution, only the loading of the program.")
    elif files.buffer is None:
        findings.notes.append("There is no debug buffer, so no value can be compared; give debug_buffer=.")
    elif files.record is not None or files.edge(chosen) is not None:
        _compare(findings, files, chosen, executions, inputs)
    else:
        findings.notes.append(
            "There is no reference, so no value can be compared; give etrecord=, or record= with the weights in it."
        )
    files.finish()
    return findings


class Files:
    """The artifacts of one call of `load`, opened and checked against one another."""

    def __init__(
        self,
        etdump: PathLike,
        etrecord: PathLike | None,
        debug_buffer: PathLike | None,
        pte: PathLike | None,
        record: PathLike | None,
    ) -> None:
        if record is None and pte is not None:
            beside = Path(pte).with_suffix(".etviz")
            record = beside if beside.is_file() else None
        given = {"etdump": etdump, "etrecord": etrecord, "debug_buffer": debug_buffer, "pte": pte, "record": record}
        self.named = {kind: str(path) for kind, path in given.items() if path is not None}
        self.dump: ETDump = read_etdump(etdump)
        self.buffer = DebugBuffer(debug_buffer) if debug_buffer is not None else None
        self.etrecord = ETRecord(etrecord) if etrecord is not None else None
        self.program = read_program(pte) if pte is not None else None
        self.derived: set[str] = set()
        self._edges: dict[str, Graph] = {}
        self.record: Record | None = read_record(record) if record is not None else None
        self.record_path = str(record)
        self._hash: list[str] = []
        self._hashing: threading.Thread | None = None
        if pte is not None and self.record is not None:
            self._hashing = threading.Thread(target=lambda: self._hash.append(sha256_of(pte)), daemon=True)
            self._hashing.start()

    @functools.cache  # noqa: B019 - lives as long as one call of load
    def graphs(self) -> dict[str, Graph]:
        """The graphs of all methods that the files tell of."""
        if self.record is not None:
            return dict(self.record.graphs)
        methods = [m.name for m in self.program.methods] if self.program else []
        methods = methods or (self.etrecord.methods if self.etrecord else []) or ["forward"]
        return {method: self._skeleton(method) for method in methods}

    def _skeleton(self, method: str) -> Graph:
        """The graph that can be told of without a record: derived where that succeeds, else only the instructions."""
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

    def evaluator(self, method: str) -> Evaluator:
        """An evaluator of a method in its initial state: of the recorded graph, else of the ETRecord's edge graph."""
        if self.record is None:
            graph, etrecord = self.edge(method), self.etrecord
            if graph is None or etrecord is None:
                raise PairingError(f"The files hold no graph of the method {method}", "give etrecord= or record=")
            if method in self.derived:
                graph = self.graphs()[method]
            return Evaluator(graph, etrecord.weights(f"edge_dialect_exported_program/{method}"))
        return Evaluator(self.record.graphs[method], Weights(self.record, self.record_path, self.etrecord))

    def inputs(self, given: Any, executions: int) -> list[list[Any]] | None:
        """Flat inputs of each execution; None if they are in none of the files."""
        if given is None and self.etrecord is not None:
            given = self.etrecord.representative_inputs()
        if given is None and self.record is not None and "inputs" in self.record.extra:
            own = Weights(self.record, self.record_path, None).own
            given = [own[v["tensor"]] if "tensor" in v else v["value"] for v in self.record.extra["inputs"]]
            given = tuple(given)
        if given is None:
            return None
        several = isinstance(given, list) and bool(given) and all(isinstance(item, tuple) for item in given)
        if several and len(given) != executions:
            raise UsageError(f"inputs holds {len(given)} tuples, the ETDump holds {executions} executions")
        return [flatten(item) for item in given] if several else [flatten(given)] * executions

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
        if self._hashing is None or self.record is None:
            return
        self._hashing.join()
        if self._hash and self._hash[0] != self.record.pte_sha256:
            raise ArtifactError(
                self.record_path,
                f"the record belongs to another program than {self.named['pte']} (their SHA-256 differ)",
                "write the record again with etviz.record(), or give record= the right file",
                found=self._hash[0],
                expected=self.record.pte_sha256,
            )


def _choose(method: str | None, methods: Sequence[str]) -> str:
    if method is None:
        if not methods or "forward" in methods:
            return "forward"
        if len(methods) == 1:
            return methods[0]
        raise UsageError(f"the program has the methods {', '.join(methods)}; say which with method=")
    if methods and method not in methods:
        raise UsageError(f"the program has no method {method!r}; it has {', '.join(methods)}")
    return method


def _compare(findings: Findings, files: Files, method: str, executions: Sequence[tuple[int, Any]], given: Any) -> None:
    runs = files.inputs(given, len(executions))
    if runs is None:
        findings.notes.append(
            "The inputs of the run are not known, so there is no reference; give inputs=, "
            "or an ETRecord with representative inputs."
        )
        return
    evaluator = files.evaluator(method)
    budget = KEPT_BYTES
    for run, (at, block) in enumerate(tqdm(executions, desc="compare", leave=False, delay=1)):
        log = RuntimeLog(block, files.buffer)
        if files.record is not None or method in files.derived:
            pairing = "exact" if files.record is not None else "derived"
            comparison = compare_exact(evaluator, log, runs[run], run=run, budget=budget, pairing=pairing)
        else:
            handles = files.etrecord.debug_handles(method) if files.etrecord is not None else {}
            graph = findings.graphs[method]
            comparison = compare_by_handles(evaluator, log, runs[run], graph, handles, run=run, budget=budget)
        budget -= comparison.kept
        findings.runs.append((at, run, comparison))
    findings.recall = Recall(lambda: files.evaluator(method), runs)
