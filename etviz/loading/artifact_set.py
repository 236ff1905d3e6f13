"""The artifacts of one executed program: opened and compared with one another.

Imports for evaluation are local, so that `etviz info` starts at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import ETDump, read_etdump
from etviz.artifacts.files import open_artifact, path_of
from etviz.artifacts.program.bundled_program import BundledProgram, read_bundled_program
from etviz.artifacts.program.data_file import with_data_file
from etviz.artifacts.program.program import Program, read_program
from etviz.artifacts.record.checksum import Checking, Verifying
from etviz.artifacts.record.etrecord import ETRecord
from etviz.artifacts.record.record_file import Record, read_record
from etviz.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etviz.artifacts.files import PathLike
    from etviz.graph.ir import Graph


OTHER_MODEL: Final = "; to compare the run with another program, give that program's model as reference="


@dataclass(frozen=True, slots=True)
class ArtifactSet:
    """The artifacts of one call of `load`.

    `named` has paths by kind: ``etdump, etrecord, debug_buffer, pte, record, data``. `program` may be part of the
    `bundle`. `checking` and `verifying` are checksums of the `.pte` and in the ETRecord, taken beside other work.
    `size` is bytes.
    """

    named: Mapping[str, str]
    dump: ETDump
    buffer: DebugBuffer | None = None
    etrecord: ETRecord | None = None
    program: Program | None = None
    record: Record | None = None
    bundle: BundledProgram | None = None
    checking: Checking | None = None
    verifying: Verifying | None = None
    size: int = 0

    @classmethod
    def open(
        cls,
        etdump: PathLike | ETDump,
        *,
        etrecord: PathLike | None = None,
        debug_buffer: PathLike | None = None,
        pte: PathLike | None = None,
        record: PathLike | None = None,
        data: PathLike | None = None,
        checked: bool = True,
    ) -> ArtifactSet:
        """`ArtifactError` if a file is missing, damaged, or does not belong to the others.

        Without `checked`, the `.pte` is not read whole, and `finish` has nothing to wait for.
        """
        given = {"the ETRecord": etrecord, "the debug buffer": debug_buffer, "the record": record}
        for what, path in (given | {"the data file": data}).items():
            if path is not None:
                path_of(path, what)
        if pte is not None:
            pte = path_of(pte, "the program")
        if record is None and pte is not None:
            record = _record_beside(Path(pte))
        bundle = _read_bundle(pte) if pte is not None else None
        checking = None
        if checked and pte is not None and record is not None:
            checking = Checking(bytes(bundle.program_bytes) if bundle else pte, {"pte": pte, "record": record})
        recorded = read_record(record) if record is not None else None
        dump = etdump if isinstance(etdump, ETDump) else read_etdump(etdump)
        named: dict[str, Any] = {"etdump": dump.path, "etrecord": etrecord, "debug_buffer": debug_buffer, "pte": pte}
        named |= {"record": record, "data": data}
        program = bundle.program() if bundle else read_program(pte) if pte is not None else None
        if data is not None:
            if program is None:
                raise UsageError("data= is part of a program; give that too (pte=)")
            program = with_data_file(program, path_of(data, "the data file"))
        buffer = DebugBuffer(debug_buffer) if debug_buffer is not None else None
        if buffer is not None:
            buffer.require_whole(dump.tensor_refs())
            for block in dump.blocks:
                buffer.require_apart(block.tensor_refs())
        opened = ETRecord(etrecord) if etrecord is not None else None
        artifacts = cls(
            named={kind: str(path) for kind, path in named.items() if path is not None},
            dump=dump,
            buffer=buffer,
            etrecord=opened,
            program=program,
            record=recorded,
            bundle=bundle,
            checking=checking,
            verifying=Verifying(opened) if checked and opened is not None else None,
            size=sum(_size(path) for path in named.values() if path is not None),
        )
        artifacts._check_etrecord()
        return artifacts

    def _check_etrecord(self) -> None:
        """Refuse an ETRecord whose delegate calls or debug handles stand at other instructions than the `.pte`'s.

        Upstream leaves out those inside branches and loops.
        """
        etrecord, program = self.etrecord, self.program
        if etrecord is None or program is None or not etrecord.has_member("delegate_map"):
            return
        for method in program.methods:
            if method.name not in etrecord.methods:
                continue
            calls = {i.index for i in method.instructions if i.kind in ("kernel", "delegate")}
            delegates = {i.index: method.backend(i) for i in method.instructions if i.kind == "delegate"}
            recorded, handled = etrecord.backends(method.name), set(etrecord.debug_handles(method.name))
            outside = {at: backend for at, backend in delegates.items() if at not in method.nested}
            if delegates != delegates | recorded or recorded != outside | recorded or not handled <= calls:
                raise ArtifactError(
                    etrecord.path,
                    f"the ETRecord belongs to another program than {self.named['pte']} (their calls differ)",
                    f"give the ETRecord that was written together with the .pte{OTHER_MODEL}",
                    where=method.name,
                    found=recorded,
                    expected=delegates,
                )

    @property
    def methods(self) -> list[str]:
        if self.record is not None:
            return list(self.record.graphs)
        methods = [m.name for m in self.program.methods] if self.program else []
        return methods or (self.etrecord.methods if self.etrecord else []) or ["forward"]

    def method(self, name: str | None) -> str:
        """By default ``forward``, or the only one; `UsageError` for an unknown method, or a choice of several."""
        methods = self.methods
        if name is None:
            if not methods or "forward" in methods:
                return "forward"
            if len(methods) == 1:
                return methods[0]
            raise UsageError(f"the program has the methods {', '.join(methods)}; say which with method=")
        if methods and name not in methods:
            raise UsageError(f"the program has no method {name!r}; it has {', '.join(methods)}")
        return name

    def graph_of(self, method: str) -> Graph | None:
        if self.record is not None:
            return self.record.graphs.get(method)
        known = self.etrecord is not None and method in self.etrecord.methods
        return self.etrecord.edge_graph(method) if known and self.etrecord is not None else None

    def inputs(self, given: Any, method: str, graph: Graph | None = None) -> list[list[Any]]:
        """Flat inputs that the executions may have had, in order.

        Of several methods, the ETRecord may tell another one's, so they have to fit the `graph`.
        """
        from etviz.artifacts.inputs import is_file_name, read_inputs
        from etviz.artifacts.record.weights import Weights
        from etviz.comparison.input_checks import fits

        if given is not None:
            graph = graph or (self.record.graphs.get(method) if self.record is not None else None)
            if is_file_name(given):
                plan = self.program.method(method) if self.program is not None else None
                given = read_inputs(given, plan, graph)
            return _flat(given)
        if self.bundle is not None and (cases := self.bundle.suites.get(method)):
            return _flat([case.input_values() for case in cases])
        runs: list[list[Any]] = []
        if self.etrecord is not None:
            known = self.etrecord.representative_inputs()
            runs = [values for values in _flat(known) if graph is None or fits(graph, values)]
            if not runs and (known is not None or len(self.methods) > 1):
                example = _flat(self.etrecord.example_inputs(method))
                runs = [values for values in example if graph is None or fits(graph, values)] or _flat(known)
        if not runs and self.record is not None and "inputs" in self.record.extra:
            runs = _flat(Weights(self.record, self.named["record"], None).inputs())
        return runs

    def finish(self) -> None:
        """`ArtifactError` if the record belongs to another program."""
        if self.verifying is not None:
            self.verifying.finish()
        if self.checking is None or self.record is None:
            return
        if not self.checking.agrees(self.record.pte_checksum):
            raise ArtifactError(
                self.named["record"],
                f"the record belongs to another program than {self.named['pte']} (their checksums differ)",
                "write the record again with etviz.record(), or give record= the right file",
                expected=self.record.pte_checksum,
            )


def _size(path: PathLike) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # what stands for a file that nobody wrote, or one that is gone again
        return 0


def _record_beside(pte: Path) -> Path | None:
    try:
        beside = pte.with_suffix(".etviz")
        return beside if beside.is_file() else None
    except (OSError, ValueError):  # the folder can't be looked into; who opens the program says so
        return None


def _flat(given: Any) -> list[list[Any]]:
    from torch.utils._pytree import tree_leaves

    if given is None:
        return []
    several = isinstance(given, list) and bool(given) and all(isinstance(values, tuple) for values in given)
    return [tree_leaves(values) for values in given] if several else [tree_leaves(given)]


def _read_bundle(pte: PathLike) -> BundledProgram | None:
    path = Path(pte)
    if not path.is_file():
        return None
    with open_artifact(path, "an ExecuTorch program", "give the .pte") as file:
        return read_bundled_program(pte) if file.read(8)[4:8] == b"BP08" else None
