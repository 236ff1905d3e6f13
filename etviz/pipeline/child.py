"""The process that `worker.py` starts.

Requests come as JSON, tensors as torch files, read with ``weights_only=True``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.program.payload import Payload, Specification
from etviz.errors import UsageError
from etviz.graph.ir import Graph
from etviz.pipeline.interpreters import ShownInside
from etviz.pipeline.service import run_program, serve, spared_memory
from etviz.upstream.executorch import quietly
from etviz.upstream.xnnpack import BACKEND

if TYPE_CHECKING:
    import torch

    from etviz.pipeline.piece_program import Outputs, PieceProgram

_NEEDED: Final = (
    "torch",
    "etviz.upstream.runtime",
    "executorch.kernels.quantized",  # its library registers the runtime's kernels too
)
_LATER: Final = (
    *("sympy", "torch._dynamo", "torchao.quantization", "torch._inductor.fx_passes.post_grad"),  # parts of what follows
    "etviz.pipeline.piece_program",
    "executorch.backends.xnnpack.xnnpack_preprocess",  # of all backends the likeliest
)


def main(connection: int, parent: int, prepares: int = 1) -> None:
    work = {"run": _run, "inside": _inside, "relower": _relower, "alterations": _alterations}
    serve(connection, parent, _NEEDED, work, _LATER if prepares else ())


def _run(request: dict[str, Any], step: Callable[[int], None]) -> dict[str, Any]:
    from etviz.upstream.runtime import Runtime, Verification

    with spared_memory() if request["foreign"] else contextlib.nullcontext():
        return run_program(Runtime, Verification, request, step)


def _inside(request: dict[str, Any], step: Callable[[int], None]) -> dict[str, Any]:
    import torch

    from etviz.pipeline.piece_program import reason_of

    given = _GivenPiece.read(request)
    step(1)
    try:
        with spared_memory(), quietly(), torch.no_grad():
            interpret, payload = pkgutil.resolve_name(request["interpreter"]), _payload(request["ran"])
            shown = interpret(given.graph, payload, request["candidates"], given.inputs, given.pte)
            step(2)
            plain = shown.plain
            if plain is None and not given.are_expected(shown.outputs):
                plain = interpret(given.graph, payload, [], given.inputs, given.pte).outputs
            torch.save({"outputs": shown.outputs, "plain": plain}, request["outputs"])
    except Exception as error:  # noqa: BLE001 - the file is the user's, and it can be lowered instead
        return {"problem": reason_of(error), "step": "run"}
    finally:
        step(3)
    told = {"left_out": shown.left_out, "parts": shown.parts, "precision": shown.precision}
    return {"problem": "", "names": shown.names} | told


def _relower(request: dict[str, Any], step: Callable[[int], None]) -> dict[str, Any]:
    import torch

    from etviz.pipeline.piece_program import reason_of

    given = _GivenPiece.read(request)
    attempt = given.attempt()
    try:
        with spared_memory(), quietly(), torch.no_grad():
            given.load_backend()
            step(1)
            shown = _shown(attempt, request["candidates"])
            step(2)
            plain = None
            if shown.names and not given.are_expected(shown.outputs):
                plain = attempt([])
            torch.save({"outputs": shown.outputs, "plain": plain}, request["outputs"])
    except Exception as error:  # noqa: BLE001 - backends raise what they like; the parent says it
        return {
            "problem": reason_of(error),
            "step": "lower" if isinstance(error, (UsageError, MemoryError)) else attempt.step,
        }
    finally:
        step(3)
    return {"problem": "", "names": shown.names, "left_out": shown.left_out}


def _shown(attempt: PieceProgram, candidates: Sequence[str]) -> ShownInside:
    from etviz.pipeline.piece_program import own_payload, show_inside, widest

    if candidates and attempt.graph.backend_id == BACKEND:
        try:
            graph, payload = own_payload(attempt)
            return show_inside(graph, payload, candidates, attempt.inputs, attempt.pte)
        except Exception:  # noqa: BLE001 - what it can't read, it can try
            traceback.print_exc()
    return widest(attempt, candidates)


def _alterations(request: dict[str, Any], step: Callable[[int], None]) -> dict[str, Any]:
    import torch

    from etviz.pipeline.piece_program import alterations

    given = _GivenPiece.read(request)
    try:
        with spared_memory(), quietly(), torch.no_grad():
            given.load_backend()
            return {"altered": alterations(given.attempt(), _payload(request["ran"]))}
    except Exception:  # noqa: BLE001 - the file is the user's, and the zoom stands without it
        traceback.print_exc()
        return {"altered": []}


@dataclass(frozen=True)
class _GivenPiece:
    graph: Graph
    constants: dict[str, torch.Tensor]
    inputs: list[Any]
    expected: list[torch.Tensor]
    pte: Path
    module: str

    @classmethod
    def read(cls, request: dict[str, Any]) -> _GivenPiece:
        import torch

        from etviz.graph.ir_json import load_graph

        graph = load_graph(*json.loads(Path(request["graph"]).read_text(encoding="utf-8")))
        tensors = torch.load(request["tensors"], weights_only=True)
        constants = Path(request["constants"])
        known = torch.load(constants, weights_only=True) if constants.exists() else {}
        return cls(graph, known, tensors["inputs"], tensors["expected"], Path(request["pte"]), request["module"])

    def load_backend(self) -> None:
        if self.module:
            importlib.import_module(self.module)

    def attempt(self) -> PieceProgram:
        from etviz.pipeline.piece_program import PieceProgram

        return PieceProgram(self.graph, self.constants, self.inputs, self.pte)

    def are_expected(self, outputs: Outputs) -> bool:
        from etviz.tensors.digest import same_bits

        return all(map(same_bits, outputs[: len(self.graph.outputs)], self.expected))


def _payload(ran: list[Any]) -> Payload:
    from etviz.artifacts.program.data_file import with_data_file
    from etviz.artifacts.program.payload import Payload
    from etviz.artifacts.program.program import read_program

    path, method, instruction, record, data = ran
    program = with_data_file(read_program(path), data) if data else read_program(path)
    payload = program.payload(method, instruction)
    if payload is None:
        raise UsageError(f"{path} does not hold what the delegate executes")
    return Payload(payload, program.named, _specification(record, method, instruction) if record else None)


def _specification(path: str, method: str, instruction: int) -> Specification | None:
    from etviz.artifacts.record.record_file import read_record

    record = read_record(path)
    graph = record.graphs.get(method)
    nodes = graph.nodes if graph is not None else []
    called = (node for node in nodes if node.target == "delegate" and node.instruction == instruction)
    return next((record.specification(method, node.subgraphs[0]) for node in called), None)
