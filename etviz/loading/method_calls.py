"""Calls of several methods in order, as `inputs=` may name them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.etdump.runtime_log import RuntimeLog
from etviz.errors import UsageError
from etviz.evaluation.interludes import Exchange, Interlude, Turn
from etviz.evaluation.replay import Execution
from etviz.graph.state_threading import seen_later
from etviz.loading.paired import pair, why_not_of
from etviz.tensors.sums import sums_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from etviz.artifacts.etdump.etdump import RunBlock
    from etviz.graph.ir import Graph
    from etviz.loading.paired import Paired

Call = tuple[str, list[Any]]
_PAIR: Final = 2
_OFF: Final = "The input {} is {}, which comes in with an error of up to {:.3g}; that call is compared with its method."


def named_calls(given: Any) -> list[Call] | None:
    """From a list of pairs, ``("decode", (token, position))``; None for other inputs.

    `UsageError` if some items are calls and others are not.
    """
    from torch.utils._pytree import tree_leaves

    if not isinstance(given, list) or not any(map(_is_call, given)):
        return None
    for at, call in enumerate(given):
        if not _is_call(call):
            raise UsageError(
                f"inputs[{at}] must be a pair of a method's name and a tuple of its arguments, as inputs[0] is; found "
                f"{type(call).__name__}"
            )
    return [(name, tree_leaves(tuple(values))) for name, values in given]


def _is_call(call: Any) -> bool:
    return (
        isinstance(call, tuple)
        and len(call) == _PAIR
        and isinstance(call[0], str)
        and isinstance(call[1], (tuple, list))
    )


def with_calls(paired: Paired, calls: Sequence[Call]) -> tuple[Paired, list[tuple[Any, ...]]]:
    """A method with what other calls change before each of its executions; and its inputs.

    `UsageError` if `calls` are not one for each execution in the ETDump.
    """
    artifacts = paired.artifacts
    blocks = [(at, block) for at, block in enumerate(artifacts.dump.blocks) if block.name == "Execute"]
    if len(calls) != len(blocks):
        text = f"inputs names {len(calls)} calls, the ETDump holds {len(blocks)} executions"
        raise UsageError(f"{text}: name a call for each, in their order")
    named = {name for name, _ in calls}
    if unknown := sorted(named.difference(artifacts.methods)):
        raise UsageError(f"inputs names the method {unknown[0]!r}; the program has {', '.join(artifacts.methods)}")
    for number, ((name, _), (_, block)) in enumerate(zip(calls, blocks, strict=True)):
        if difference := why_not_of(artifacts, name, block):
            raise UsageError(
                f"inputs[{number}] names {name}, but execution {number} is of another method ({difference})"
            )
    methods = {name: paired if name == paired.method else pair(artifacts, name) for name in named}
    methods = {name: replace(method.with_forgotten_state(), alike=()) for name, method in methods.items()}
    main = methods.get(paired.method, paired)
    exchanges = _exchanges(calls, blocks, methods)
    turns: dict[int, Turn] = {}
    before: list[Interlude] = []
    mine: list[int] = []
    evaluators = {name: method.evaluator() for name, method in methods.items() if name != paired.method}
    states = {name: _names(main, methods[name]) for name in evaluators}
    for number, ((name, values), (_, block)) in enumerate(zip(calls, blocks, strict=True)):
        if name == paired.method:
            turns[len(mine)] = Turn(tuple(before), exchanges[number])
            mine.append(number)
            before.clear()
            continue
        log = RuntimeLog(block, artifacts.buffer, seen_later(methods[name].graph))
        logged = Execution(values, log).logged
        before.append(Interlude(name, evaluators[name], values, logged, states[name], exchanges[number]))
    main = replace(main, executions=tuple(blocks[number] for number in mine), turns=turns)
    return main, [tuple(calls[number][1]) for number in mine]


def off_inputs(paired: Paired, replayed: Sequence[Execution]) -> Iterator[str]:
    """A sentence for the first time that another method's output comes in with an error."""
    evaluator, said = paired.evaluator(), set[str]()
    if not any(turn.exchange.takes for turn in paired.turns.values()):
        return
    for number, execution in enumerate(replayed):
        evaluator.run(execution.inputs, lambda node, value: None, execution.logged)
        for name, key in paired.turns[number].exchange.takes.items():
            sums = sums_of(evaluator.state[key], evaluator.runtime_state.get(key, evaluator.state[key]))
            if key not in said and sums.close < sums.elements:
                said.add(key)
                yield _OFF.format(name, key, sums.max_d)


def _names(main: Paired, other: Paired) -> dict[str, str]:
    shared = set(main.shared_state())
    mine = {_tail(placeholder.target): placeholder.target for placeholder in main.graph.inputs if placeholder.target}
    names = {}
    for buffer in other.graph.inputs:
        if buffer.target and (buffer.target in other.graph.mutations or _tail(buffer.target) in shared):
            tail = _tail(buffer.target)
            names[buffer.target] = mine[tail] if tail in shared and tail in mine else f"{other.method}:{buffer.target}"
    return names


def _tail(target: str) -> str:
    return target.rpartition("/")[2]


def _exchanges(
    calls: Sequence[Call], blocks: Sequence[tuple[int, RunBlock]], methods: Mapping[str, Paired]
) -> list[Exchange]:
    exchanges = [Exchange() for _ in calls]
    outputs: list[list[Any]] = []
    for number, ((name, values), (_, block)) in enumerate(zip(calls, blocks, strict=True)):
        graph: Graph = methods[name].graph
        for placeholder, value in zip(graph.user_inputs(), values, strict=False):
            source = _source(value, outputs)
            if source is not None:
                earlier, output = source
                exchanges[number].takes[placeholder.name] = exchanges[earlier].gives.setdefault(
                    output, f"output {output} of {calls[earlier][0]} in call {earlier}"
                )
        outputs.append(RuntimeLog(block, methods[name].artifacts.buffer, {}).outputs())
    return exchanges


def _source(value: Any, outputs: Sequence[Sequence[Any]]) -> tuple[int, int] | None:
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return None
    if bool((value == value.flatten()[0]).all()):
        return None
    for number in range(len(outputs) - 1, -1, -1):
        for output, other in enumerate(outputs[number]):
            if isinstance(other, torch.Tensor) and other.dtype == value.dtype and torch.equal(other, value):
                return number, output
    return None
