"""A program that can be called with tokens, and both sides of a call."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from etviz.artifacts.program.program import read_program
from etviz.calls.driver import of_function, of_module, of_program, room_of
from etviz.calls.logits import logits_of, vocabulary_of
from etviz.errors import EtvizError, UsageError
from etviz.evidence.subject import subject_of
from etviz.loading.foreign import replay_of
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etviz.calls.driver import Call, Driver, Make
    from etviz.evaluation.replay import Replay
    from etviz.evidence.subject import Subject
    from etviz.loading.paired import Paired


@dataclass(slots=True)
class Session:
    """A program that can be called with tokens; `paired` with a run of one call, `timeout` in seconds."""

    subject: Subject
    driver: Driver
    paired: Paired
    replay: Replay
    timeout: float | None = None

    def runtime(self, calls: Sequence[Call]) -> list[torch.Tensor]:
        """From the initial state."""
        runs = [flatten(call.inputs) for call in calls]
        subject = self.subject
        given: dict[str, Any] = {"data": subject.files.get("data"), "python": subject.python, "timeout": self.timeout}
        names = [call.method or subject.method for call in calls]
        if set(names) != {subject.method}:
            given["methods"] = names
        outputs = execute(subject.pte, runs, method=subject.method, **given).outputs
        return [logits_of(found) if call.ids else torch.empty(0, 0) for call, found in zip(calls, outputs, strict=True)]

    def other_drivers(self) -> dict[str, Driver]:
        read, found = read_program(self.subject.pte), {}
        for method in read.methods:
            if method.name == self.subject.method:
                continue
            with contextlib.suppress(EtvizError):
                graph = replace(self.subject, method=method.name).graph()
                driver = of_program(graph, method, self.driver.room)
                if not driver.stateless:
                    found[method.name] = driver
        return found

    def reset_method(self) -> str:
        """The method has no inputs and a name with "reset"; empty without one."""
        methods = read_program(self.subject.pte).methods
        return next((item.name for item in methods if "reset" in item.name.lower() and not item.inputs), "")


def open_session(
    program: Any,
    ids: Sequence[Sequence[int]],
    steps: int,
    driver: Driver | Make | None,
    folder: Path,
    method: str | None,
    strict: bool,
    timeout: float | None,
    lowering: dict[str, Any],
) -> Session:
    chosen = None if driver is None else of_function(driver)
    example = None
    if isinstance(program, torch.nn.Module):
        longest = max(map(len, ids)) + steps
        maker = chosen or of_module(program, longest)
        example = maker.step(ids[0][:1] if not maker.stateless else ids[0], 0).inputs
        lowering = {**lowering, "strict": strict}
    elif isinstance(program, torch.export.ExportedProgram):
        example = program.example_inputs[0] if program.example_inputs else ()
    subject = subject_of(program, example, folder, method, **lowering)
    if chosen is None:
        read = read_program(subject.pte)
        chosen = of_program(subject.graph(), read.method(subject.method), room_of(read))
    _check(vocabulary_of(subject.graph()), ids)
    first = chosen.step(ids[0] if chosen.stateless else ids[0][: chosen.chunk], 0)
    run = subject.run([flatten(first.inputs)], folder / "first", timeout)
    paired = subject.pair(run)
    return Session(subject, chosen, paired, replay_of(paired), timeout)


def _check(vocabulary: int | None, prompts: Sequence[Sequence[int]]) -> None:
    for number, ids in enumerate(prompts):
        for token in ids:
            if token < 0 or (vocabulary is not None and token >= vocabulary):
                known = f"the program's vocabulary has {vocabulary}" if vocabulary is not None else "ids begin with 0"
                raise UsageError(
                    f"prompt {number} has the token {token}, and {known}; the tokenizer is another model's"
                )
