"""An Inspection whose every text is markup: operators, modules, source files, stack traces, file name, title."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import etviz
from etviz.artifacts.record.record_file import read_record, write_record
from etviz.graph.ir import Graph
from tests.programs import FILES, Executed

INJECTED = "document.title='hacked'"
IMAGE = f"<img src=x onerror={INJECTED}>"
SCRIPT = f"</script><script>{INJECTED}</script>"
MARKUP = f"'\"&amp;{SCRIPT}<!--<script>{IMAGE}</style><style>*{{display:none}}</style></title>"
STACK = f'File "/home/<script>{INJECTED}</script>/{IMAGE}.py", line 7, in {MARKUP}\n    return x  # {MARKUP}\n'


def poisoned_names(program: Executed, folder: Path) -> etviz.Inspection:
    """Load `program` with a record that someone filled with markup, from a file whose name is markup."""
    return rewritten(program, folder, _poison, f"{IMAGE}'&.pte")


def rewritten(
    program: Executed, folder: Path, change: Callable[[Graph], None], name: str = FILES["pte"]
) -> etviz.Inspection:
    """Load `program` with a record whose graphs were changed, from a `.pte` of that name."""
    paths = {kind: folder / file for kind, file in FILES.items()} | {"pte": folder / name}
    for kind, path in paths.items():
        shutil.copy(program.path(kind), path)
    record = read_record(paths["record"])
    graphs = copy.deepcopy(record.graphs)  # whoever reads this record has the same graphs
    for graph in graphs.values():
        change(graph)
    write_record(replace(record, graphs=graphs), paths["record"])
    return etviz.load(
        paths["etdump"],
        etrecord=paths["etrecord"],
        debug_buffer=paths["debug_buffer"],
        pte=paths["pte"],
        record=paths["record"],
    )


def _poison(graph: Graph) -> None:
    for node in graph.nodes:
        node.kernel = node.kernel and node.kernel + MARKUP
        node.module, node.origin, node.stack = f"model.{MARKUP}", f"conv {MARKUP}", STACK
    if graph.backend_id:
        graph.backend_id += MARKUP
    for inner in graph.subgraphs.values():
        _poison(inner)
