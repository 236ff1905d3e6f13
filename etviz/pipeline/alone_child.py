"""The child process of `alone.py`: lowers pieces of programs by themselves and runs them.

A backend may crash or hang while it lowers or runs; here that harms nobody. What to do is read from a JSON file,
tensors from a torch file with ``weights_only=True``; what came out is written in the same two forms.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from etviz.pipeline.worker import serve

ATTEMPTS: Final = 40
"""Programs that are lowered at most, to find out which inner values a backend gives as outputs."""
REFUSED: Final = 4
"""Status if the backend refuses the piece even with nothing added."""

Outputs = list[Any]


@dataclass(slots=True)
class Piece:
    """The piece, and how to lower and run it with some of its inner values as outputs."""

    graph: Any
    constants: dict[str, Any]
    inputs: list[Any]
    pte: Path
    marks: Any = None
    step: str = ""

    def attempt(self, extra: Sequence[str]) -> Outputs:
        """Outputs of the piece, then the values of `extra`; raises whatever upstream raises."""
        import torch
        from executorch.runtime import Runtime, Verification

        from etviz.executorch import lower_again, partition_marks
        from etviz.pipeline.edge_program import edge_program

        self.step = "lower"
        if self.marks is None:
            plain = edge_program(self.graph, self.constants, self.inputs)
            self.marks = partition_marks(plain, self.graph.backend_id)
        program = edge_program(self.graph, self.constants, self.inputs, extra, self.marks)
        content = lower_again(program, self.graph.backend_id, self.graph.compile_specs)
        self.step = "run"
        self.pte.write_bytes(content)
        method = Runtime.get().load_program(self.pte, verification=Verification.Minimal).load_method("forward")
        if method is None:
            raise RuntimeError("the runtime can't load it")
        given = [value for value in self.inputs if isinstance(value, torch.Tensor)]
        return [value.detach().clone() for value in method.execute(given)]


@dataclass(slots=True)
class Found:
    """What can be seen: the values of `names`, after the piece's own outputs; and why others can't."""

    names: list[str]
    outputs: Outputs
    left_out: dict[str, str] = field(default_factory=dict)


def widest(attempt: Callable[[Sequence[str]], Outputs], candidates: Sequence[str]) -> Found:
    """As many of the candidates as the backend gives at once.

    All of them, if it can; else halves of what is refused are tried again, so that one value that it can't give costs
    a few attempts and not all the others.
    """
    names = list(candidates)
    try:
        return Found(names, attempt(names))
    except Exception as error:
        if not names:
            raise
        reason = _reason(error)
    found = Found([], attempt([]))
    half = (len(names) + 1) // 2
    queue = [names] if len(names) == 1 else [names[:half], names[half:]]
    budget = ATTEMPTS
    while queue:
        group = queue.pop(0)
        if not budget or (len(group) == 1 == len(names)):
            found.left_out |= dict.fromkeys(group, reason)
            continue
        budget -= 1
        trial = [name for name in names if name in group or name in found.names]
        try:
            found.outputs = attempt(trial)
            found.names = trial
        except Exception as error:  # noqa: BLE001 - backends raise what they like
            reason = _reason(error)
            half = (len(group) + 1) // 2
            if len(group) == 1:
                found.left_out[group[0]] = reason
            else:
                queue[:0] = [group[:half], group[half:]]
    return found


def _reason(error: Exception) -> str:
    """The line of an error that says what happened; passes wrap it in how they were called."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = str(cause).strip().splitlines()
    return (lines[0] if lines else type(cause).__name__)[:300]


def same_bits(a: Any, b: Any) -> bool:
    """True if two tensors are equal bit for bit, shape and dtype included."""
    import torch

    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)))


def main(request_path: str) -> int:
    """Do one request; returns its status."""
    import torch

    from etviz.artifacts.ir_json import load_graph
    from etviz.executorch import quietly

    request: dict[str, Any] = json.loads(Path(request_path).read_text(encoding="utf-8"))
    tensors = torch.load(request["tensors"], weights_only=True)
    graph = load_graph(request["graph"], request["texts"])
    piece = Piece(graph, tensors["constants"], tensors["inputs"], Path(request["pte"]))
    result: dict[str, Any] = {"names": [], "left_out": {}, "problem": "", "step": ""}
    status = 0
    try:
        with quietly(), torch.no_grad():
            if request["module"]:
                importlib.import_module(request["module"])
            _report(1)
            found = widest(piece.attempt, request["candidates"])
            _report(2)
            own = len(graph.outputs)
            plain = None
            if found.names and not all(map(same_bits, found.outputs[:own], tensors["expected"])):
                plain = piece.attempt([])
            torch.save({"outputs": found.outputs, "plain": plain}, request["outputs"])
            result |= {"names": found.names, "left_out": found.left_out}
    except Exception as error:  # noqa: BLE001 - as above; the parent says it
        result |= {"problem": _reason(error), "step": piece.step}
        status = REFUSED
    Path(request["result"]).write_text(json.dumps(result), encoding="utf-8")
    _report(3)
    return status


def _report(step: int) -> None:
    sys.stdout.write(f"run {step}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve(main)
