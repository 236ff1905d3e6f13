"""One method of a set of artifacts: its graph, its instructions and its executions."""

from __future__ import annotations

import contextlib
import operator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from etviz.artifacts import known_files
from etviz.artifacts.etdump.lost_values import restore_lost_values
from etviz.artifacts.program.xnnpack_payload import layers, origins
from etviz.artifacts.recent import Recent
from etviz.artifacts.record.record_file import LISTINGS, REFUSALS
from etviz.errors import ArtifactError, PairingError
from etviz.graph.delegation import Delegation, count_nodes
from etviz.graph.listing import format_delegated_graph
from etviz.graph.lowered import as_lowered
from etviz.graph.quantize_ops import is_conversion
from etviz.loading.artifact_set import OTHER_MODEL
from etviz.pairing.derive import derive
from etviz.pairing.handles import agreement, other_layers, other_sizes
from etviz.pairing.matched_constants import match_constants
from etviz.pairing.rebuild import InconsistentError, is_complete, rebuild
from etviz.pairing.same_program import (
    Calls,
    calls_of_etrecord,
    calls_of_graph,
    calls_of_program,
    contradiction,
    misfit,
    outline,
    skipped,
)
from etviz.pairing.skeleton import skeleton
from etviz.pairing.written_once import written_once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from etviz.artifacts.etdump.etdump import ETDump, RunBlock
    from etviz.artifacts.program.program import Program
    from etviz.artifacts.record.etrecord import ETRecord
    from etviz.comparison.constants import ComparingConstants
    from etviz.evaluation.evaluator import Evaluator
    from etviz.evaluation.interludes import Turns
    from etviz.evaluation.interpreter import Prepared
    from etviz.evaluation.limits import Limits
    from etviz.evaluation.own_operators import OwnFunctions
    from etviz.graph.ir import Graph
    from etviz.loading.artifact_set import ArtifactSet

EXACT, DERIVED, HANDLES = "exact", "derived", "handles"
"""Instructions are recorded, derived from `.pte` and ETRecord, or known only by debug handle."""


_DERIVED_GRAPHS: Final = Recent["tuple[Graph, Graph]"](4)
"""By method and files."""


@dataclass(frozen=True, slots=True)
class Paired:
    """One method, paired with its instructions.

    `artifacts` have restored values back; `edge` is the ETRecord's graph; `executions` are ``(position in the ETDump,
    block)``. `alike` are other methods whose executions these may be, as far as their events tell. `constants` are the
    reference's, None if they are read where they lie. `own_operators` are the user's functions. `forgotten` mutable
    buffers, by target, only the runtime begins with as zeros. `prepared` is shared by all evaluators.
    """

    artifacts: ArtifactSet
    method: str
    graph: Graph
    edge: Graph | None
    pairing: str
    executions: tuple[tuple[int, RunBlock], ...]
    constants: Mapping[str, torch.Tensor] | None = None
    own_operators: OwnFunctions | None = None
    forgotten: Mapping[str, torch.Tensor] = field(default_factory=dict)
    alike: tuple[str, ...] = ()
    prepared: Prepared | None = None
    turns: Turns = field(default_factory=dict)

    @property
    def foreign_executions(self) -> list[int]:
        ours = {at for at, _ in self.executions}
        return [at for at, block in enumerate(self.artifacts.dump.blocks) if block.name == "Execute" and at not in ours]

    @property
    def doubt(self) -> str:
        if not self.alike:
            return ""
        how = "give the program (pte=), or write" if self.artifacts.program is None else "write"
        methods = f"{self.method} or of {', '.join(self.alike)}"
        return (
            f"these are executions of {methods}, whose calls are alike, and an ETDump does not name methods: {how} an "
            "ETDump for each method"
        )

    def other_sizes(self) -> str:
        """Sizes that the ETRecord contradicts, unless a pass changed them later."""
        etrecord, program = self.artifacts.etrecord, self.artifacts.program
        if self.edge is None or etrecord is None:
            return ""
        edge, handles = self.edge, etrecord.debug_handles(self.method)
        kernels = (other_sizes(edge, handles, block) for _, block in self.executions)
        inside = layers(program, program.method(self.method)) if program is not None else ()
        return next(filter(None, kernels), "") or other_layers(edge, inside)

    def shared_state(self) -> list[str]:
        """Buffers that another method has at the same place too.

        Upstream plans shared buffers into a memory of their own and tells them apart by name. The program keeps the
        places, and most often not the names.
        """
        program = self.artifacts.program
        if program is None or len(program.methods) < 2:
            return []
        method, others = program.method(self.method), [item for item in program.methods if item.name != self.method]
        elsewhere = {place: name for other in others for place, name in other.state.items()}
        named = [name for place, name in method.state.items() if elsewhere.get(place) == name]
        if named or not any(method.shared & other.shared for other in others):
            return named
        names = {item.target.rpartition("/")[2] for item in self.graph.inputs if item.kind != "user"}
        graphs = (self.artifacts.graph_of(other.name) for other in others)
        mutated = {
            target.rpartition("/")[2] for graph in (self.graph, *filter(None, graphs)) for target in graph.mutations
        }
        return sorted(names & mutated)

    @property
    def has_reference(self) -> bool:
        return self.pairing != HANDLES or self.edge is not None

    @property
    def delegation(self) -> Delegation | None:
        if self.artifacts.record is not None:
            return Delegation.from_counts(self.artifacts.record.delegation[self.method])
        if self.pairing == DERIVED and is_complete(self.graph):
            return Delegation.from_counts(count_nodes(self.graph))
        return None

    def listing(self) -> str:
        """The delegated graph as upstream prints it; empty if the files do not tell its names."""
        from etviz.evaluation.operator_rules import as_written

        record, graph, edge = self.artifacts.record, self.graph, self.edge
        if record is not None:
            if text := record.extra.get(LISTINGS, {}).get(self.method, ""):
                return text
            graph, edge, pairing = _graph(replace(self.artifacts, record=None), self.method, ())
            if pairing != DERIVED or not is_complete(graph):
                return ""
        return format_delegated_graph(as_lowered(graph, edge, as_written))

    @property
    def refusals(self) -> dict[str, str]:
        record = self.artifacts.record
        told = record.extra.get(REFUSALS) if record is not None else None
        return {str(name): str(why) for name, why in told.items()} if isinstance(told, dict) else {}

    def evaluator(self) -> Evaluator:
        from etviz.evaluation.evaluator import Evaluator

        graph, weights = self.reference()
        evaluator = Evaluator(graph, weights, self._limits(), self.prepared)
        evaluator.runtime_state, evaluator.turns = dict(self.forgotten), self.turns
        return evaluator

    def reference(self) -> tuple[Graph, Mapping[str, torch.Tensor]]:
        from etviz.artifacts.record.weights import Weights

        record, etrecord, held = self.artifacts.record, self.artifacts.etrecord, self.constants
        if record is not None:
            path = self.artifacts.named["record"]
            return self.graph, Weights(record, path, etrecord) if held is None else held
        if self.edge is None or etrecord is None:
            raise PairingError(f"The files hold no graph of the method {self.method}", "give etrecord= or record=")
        graph = self.graph if self.pairing == DERIVED else self.edge
        return graph, etrecord.edge_weights(self.method) if held is None else held

    def with_forgotten_state(self) -> Paired:
        """Upstream keeps initial values of mutable buffers only if asked to."""
        import torch

        program = self.artifacts.program
        if program is None or self.pairing == HANDLES or not self.graph.mutations:
            return self
        if any(
            spec.memory and spec.data_index for value in program.method(self.method).values if (spec := value.tensor)
        ):
            return self
        initial = self.initial_state(self.evaluator())
        return replace(self, forgotten={name: torch.zeros_like(value) for name, value in initial.items()})

    def initial_state(self, evaluator: Evaluator) -> dict[str, torch.Tensor]:
        known = evaluator.constants
        initial = {target: known[target] for target in evaluator.graph.mutations if target in known}
        return {target: value for target, value in initial.items() if value.any()}

    def comparing_constants(self) -> ComparingConstants | None:
        """None without both constants, or if these very files were found to have the same ones."""
        artifacts = self.artifacts
        if artifacts.program is None or self.pairing == HANDLES or not self.has_reference:
            return None
        files = {
            kind: artifacts.named[kind] for kind in ("pte", "etrecord", "record", "data") if kind in artifacts.named
        }
        claim = "constants by argument, grids, steps of weights, biases of quantized layers and their order"
        state = known_files.alike(files, f"{claim} of {self.method}")
        if state and known_files.is_noted(state):
            return None
        from etviz.comparison.constants import ComparingConstants

        same = partial(known_files.note, state) if state else None
        return ComparingConstants(artifacts.program, self.method, self.graph, self.evaluator().constants, same)

    @property
    def has_float(self) -> bool:
        record = self.artifacts.record
        return (record is not None and self.method in record.references) or bool(self._float_program())

    def float_evaluator(self) -> Evaluator:
        from etviz.artifacts.record.weights import Weights
        from etviz.evaluation.evaluator import Evaluator

        record, etrecord = self.artifacts.record, self.artifacts.etrecord
        if record is not None and self.method in record.references:
            weights = Weights(record, self.artifacts.named["record"], etrecord)
            return Evaluator(record.references[self.method], weights, self._limits())
        name = self._float_program()
        if etrecord is None or not name:
            raise PairingError(f"The files hold no float model of the method {self.method}", "give record= with one")
        return Evaluator(etrecord.graph(name), etrecord.weights(name), self._limits())

    def _float_program(self) -> str:
        etrecord = self.artifacts.etrecord
        if etrecord is None or self.method not in etrecord.methods:
            return ""
        further = [name for name in etrecord.further if name.rpartition("/")[2] == self.method]
        if not further or not _quantizes(etrecord.edge_graph(self.method)):
            return ""
        inputs = len(self.graph.user_inputs())
        graphs = {name: etrecord.graph(name) for name in further}
        names = [n for n, graph in graphs.items() if not _quantizes(graph) and len(graph.user_inputs()) == inputs]
        return names[0] if len(names) == 1 else ""

    @property
    def stages(self) -> dict[str, Callable[[], Evaluator]]:
        """The forms that the ETRecord holds, in the order of lowering.

        The exported program does not tell which method it is, so it is left out where there are several.
        """
        from etviz.evaluation.evaluator import Evaluator

        etrecord = self.artifacts.etrecord
        if etrecord is None:
            return {}

        def make(program: str) -> Evaluator:
            return Evaluator(etrecord.graph(program), etrecord.weights(program), self._limits())

        makers = {}
        for program in etrecord.programs:
            module, _, method = program.rpartition("/")
            if method == self.method or (len(etrecord.methods) == 1 and not module):
                name = {"edge_dialect_exported_program": "edge", "exported_program": "exported"}
                makers[name.get(module or program, program)] = partial(make, program)
        return makers

    def _limits(self) -> Limits:
        from etviz.evaluation.limits import Limits

        size = self.artifacts.size
        if self.own_operators is None:
            return Limits(size)
        from etviz.evaluation.own_operators import OwnOperators

        return OwnOperators(self.own_operators, size)


def _quantizes(graph: Graph) -> bool:
    return any(map(is_conversion, graph.walk()))


def pair(artifacts: ArtifactSet, method: str) -> Paired:
    dump = _restored(artifacts, method)
    executions, alike = _executions(artifacts, dump, method)
    graph, edge, pairing = _graph(artifacts, method, [block for _, block in executions])
    return Paired(replace(artifacts, dump=dump), method, graph, edge, pairing, tuple(executions), alike=alike)


def _graph(artifacts: ArtifactSet, method: str, blocks: Sequence[RunBlock]) -> tuple[Graph, Graph | None, str]:
    etrecord, program = artifacts.etrecord, artifacts.program
    if artifacts.record is not None:
        return artifacts.record.graphs[method], None, EXACT
    if etrecord is None or method not in etrecord.methods:
        return skeleton(method, program, blocks, None, {}, {}), None, HANDLES
    if program is not None:
        read, key = partial(_derived, etrecord, program, method), (method, etrecord.identity, program.identity)
        with contextlib.suppress(InconsistentError):
            return *(_DERIVED_GRAPHS.get(key, read) if all(key) else read()), DERIVED
    edge, handles = etrecord.edge_graph(method), etrecord.debug_handles(method)
    return skeleton(method, program, blocks, edge, handles, etrecord.backends(method)), edge, HANDLES


def _derived(etrecord: ETRecord, program: Program, method: str) -> tuple[Graph, Graph]:
    edge, plan = etrecord.edge_graph(method), written_once(program.method(method))
    constants = match_constants(program, plan, edge, etrecord.edge_weights(method))
    derived = derive(plan, edge, etrecord.debug_handles(method), constants, partial(origins, program, plan))
    return rebuild(plan, edge, derived), edge


def _restored(artifacts: ArtifactSet, method: str) -> ETDump:
    dump, program, buffer = artifacts.dump, artifacts.program, artifacts.buffer
    if dump.problems and program is not None and buffer is not None:
        return restore_lost_values(dump, program.method(method), buffer)
    return dump


def why_not_of(artifacts: ArtifactSet, method: str, block: RunBlock) -> str:
    """Empty if the events do not rule the method out."""
    return _differences([(0, block)], _calls(artifacts, method)[0], values=not artifacts.dump.made)[0]


def timed_executions(paired: Paired, dump: ETDump) -> list[RunBlock]:
    return [block for _, block in _executions(paired.artifacts, dump, paired.method)[0]]


def _executions(
    artifacts: ArtifactSet, dump: ETDump, method: str
) -> tuple[list[tuple[int, RunBlock]], tuple[str, ...]]:
    blocks = [(at, block) for at, block in enumerate(dump.blocks) if block.name == "Execute"]
    calls, source, methods = _calls(artifacts, method)
    differences = _differences(blocks, calls, values=not dump.made)
    if methods == 1 and (difference := next(filter(None, differences.values()), "")):
        raise ArtifactError(
            dump.path,
            f"the ETDump belongs to another program than {artifacts.named[source]} ({difference})",
            f"give the files of one program{OTHER_MODEL}",
        )
    fitting = {at: block for at, block in blocks if not differences[at]}
    alike = []
    for other in artifacts.methods if methods > 1 else ():
        if other == method:
            continue
        differences = _differences(list(fitting.items()), _calls(artifacts, other)[0], values=not dump.made)
        shared = [at for at, difference in differences.items() if not difference]
        if source == "etrecord":
            mine, theirs = (_agreements(artifacts, name, [fitting[at] for at in shared]) for name in (method, other))
            more = dict(zip(shared, map(operator.sub, mine, theirs), strict=True))
            fitting = {at: block for at, block in fitting.items() if more.get(at, 0) >= 0}
            shared = [at for at in shared if more[at] == 0]
        if shared:
            alike.append(other)
    return list(fitting.items()), tuple(alike)


def _differences(blocks: Sequence[tuple[int, RunBlock]], calls: Calls, *, values: bool) -> dict[int, str]:
    differences: dict[int, str] = {}
    known, difference = None, ""
    for at, block in blocks:
        if (outlined := outline(block)) != known:
            known, difference = outlined, misfit(block, calls)
            if values and not difference:
                difference = skipped(block, calls) or contradiction(block, calls)
        differences[at] = difference
    return differences


def _agreements(artifacts: ArtifactSet, method: str, blocks: Sequence[RunBlock]) -> list[int]:
    etrecord = artifacts.etrecord
    if etrecord is None or method not in etrecord.methods or not blocks:
        return [0] * len(blocks)
    edge, handles = etrecord.edge_graph(method), etrecord.debug_handles(method)
    return [agreement(edge, handles, block) for block in blocks]


def _calls(artifacts: ArtifactSet, method: str) -> tuple[Calls, str, int]:
    program, record, etrecord = artifacts.program, artifacts.record, artifacts.etrecord
    if program is not None:
        return calls_of_program(program.method(method)), "pte", len(program.methods)
    if record is not None:
        return calls_of_graph(record.graphs[method]), "record", len(record.graphs)
    if etrecord is not None and method in etrecord.methods:
        return calls_of_etrecord(etrecord, method), "etrecord", len(etrecord.methods)
    return Calls(), "etdump", 0
