"""A program that can be called with tokens, and both sides of a call."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from etviz.artifacts.program.program import read_program
from etviz.calls.driver import of_function, of_module, of_program, room_of
from etviz.calls.logits import logits_of, vocabulary_of
from etviz.comparison.input_checks import why_not
from etviz.errors import EtvizError, UsageError
from etviz.evidence.subject import subject_of
from etviz.graph.uses import is_stateful
from etviz.loading.foreign import replay_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from etviz.artifacts.program.program import Program
    from etviz.calls.driver import Call, Driver, Make
    from etviz.evaluation.replay import Replay
    from etviz.evidence.subject import Subject
    from etviz.loading.paired import Paired


@dataclass(frozen=True, slots=True)
class Encoder:
    """The method whose outputs a decoder takes; `sources` are its flat inputs and `heard` its outputs, by prompt."""

    subject: Subject
    sources: Sequence[list[Any]]
    heard: Sequence[list[Any]]


@dataclass(slots=True)
class Session:
    """A program that can be called with tokens; `paired` with a run of one call, `timeout` in seconds.

    `driver` makes the calls of a prompt, by its number and its encoder's outputs; `drivers` has those of the runtime's.
    """

    subject: Subject
    make: Callable[[int, Sequence[Any]], Driver]
    drivers: list[Driver]
    paired: Paired
    replay: Replay
    timeout: float | None = None
    encoder: Encoder | None = None

    @property
    def driver(self) -> Driver:
        return self.drivers[0]

    def runtime(self, calls: Sequence[Call]) -> list[torch.Tensor]:
        runs = [tree_leaves(call.inputs) for call in calls]
        names = [call.method or self.subject.method for call in calls]
        methods = names if set(names) != {self.subject.method} else ()
        outputs = self.subject.execute(runs, self.timeout, methods=methods).outputs
        return [
            logits_of(logits) if call.ids else torch.empty(0, 0) for call, logits in zip(calls, outputs, strict=True)
        ]

    def other_drivers(self) -> dict[str, Driver]:
        read, drivers = read_program(self.subject.pte), {}
        for method in read.methods:
            if method.name == self.subject.method:
                continue
            with contextlib.suppress(EtvizError):
                graph = replace(self.subject, method=method.name).graph()
                driver = of_program(graph, method, self.driver.room)
                if not driver.stateless:
                    drivers[method.name] = driver
        return drivers

    def reset_method(self) -> str:
        methods = read_program(self.subject.pte).methods
        return next((method.name for method in methods if "reset" in method.name.lower() and not method.inputs), "")


def open_session(
    program: Any,
    ids: Sequence[Sequence[int]],
    steps: int,
    driver: Driver | Make | Sequence[Any] | None,
    folder: Path,
    method: str | None,
    strict: bool,
    timeout: float | None,
    lowering: dict[str, Any],
    encoder: str | None = None,
    sources: Sequence[Any] | None = None,
) -> Session:
    """`driver` may be a list, with one for each prompt; so is `sources`, the encoder's arguments."""
    given: list[Any] = list(driver) if isinstance(driver, (list, tuple)) else [driver] * len(ids)
    if len(given) != len(ids):
        raise UsageError(f"driver has {len(given)} functions for {len(ids)} prompts; give one, or one for each")
    example = None
    if isinstance(program, torch.nn.Module):
        if encoder is not None:
            raise UsageError("encoder: a module has one method; give a .pte with its record, which has the encoder too")
        longest = max(map(len, ids)) + steps
        maker = of_function(given[0]) if given[0] is not None else of_module(program, longest)
        example = maker.step(ids[0][:1] if not maker.stateless else ids[0], 0).inputs
        lowering = {**lowering, "strict": strict}
    elif isinstance(program, torch.export.ExportedProgram):
        example = program.example_inputs[0] if program.example_inputs else ()
    subject = subject_of(program, example, folder, encoder or method, **lowering)
    read, heard = read_program(subject.pte), None
    if encoder is not None:
        heard = _heard(subject, list(sources or ()), len(ids), timeout)
        subject = replace(subject, method=method or _decoder(read, encoder))
    graph, program_method = subject.graph(), read.method(subject.method)

    def make(number: int, outputs: Sequence[Any]) -> Driver:
        if given[number] is None:
            return of_program(graph, program_method, room_of(read), outputs)
        driver = of_function(given[number])
        plain: Callable[..., Sequence[Any]] = driver.make
        return replace(driver, make=lambda ids, at: plain(ids, at, *outputs))

    drivers = [make(number, heard.heard[number] if heard is not None else ()) for number in range(len(ids))]
    _check(vocabulary_of(graph), ids)
    chosen = drivers[0]
    first = chosen.step(ids[0] if chosen.stateless else ids[0][: chosen.chunk], 0)
    run = subject.run([tree_leaves(first.inputs)], folder / "first", timeout)
    paired = subject.pair(run)
    return Session(subject, make, drivers, paired, replay_of(paired), timeout, heard)


def _heard(subject: Subject, sources: Sequence[Any], count: int, timeout: float | None) -> Encoder:
    graph = subject.graph()
    if len(sources) != count:
        raise UsageError(f"sources has {len(sources)} items for {count} prompts; give one for each")
    if is_stateful(graph):
        raise UsageError(f"encoder: {subject.method} keeps a state, so what the decoder finds is more than its outputs")
    runs = [tree_leaves(source) for source in sources]
    for number, values in enumerate(runs):
        if problem := why_not(values, graph.user_inputs()):
            raise UsageError(f"source {number}: {problem.replace('the program', subject.method)}")
    return Encoder(subject, runs, subject.execute(runs, timeout).outputs)


def _decoder(program: Program, encoder: str) -> str:
    names = [method.name for method in program.methods if method.inputs and method.name != encoder]
    if len(names) != 1:
        others = ", ".join(names) or "none"
        raise UsageError(f"method: name the decoder; beside {encoder}, methods with inputs are: {others}")
    return names[0]


def _check(vocabulary: int | None, prompts: Sequence[Sequence[int]]) -> None:
    for number, ids in enumerate(prompts):
        for token in ids:
            if token < 0 or (vocabulary is not None and token >= vocabulary):
                known = f"the program's vocabulary has {vocabulary}" if vocabulary is not None else "ids begin with 0"
                raise UsageError(
                    f"prompt {number} has the token {token}, and {known}; the tokenizer is another model's"
                )
