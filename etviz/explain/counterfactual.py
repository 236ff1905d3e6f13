"""The outputs of a program if some instructions had computed their inputs exactly.

An instruction with unchanged inputs keeps the runtime's value. Any other is evaluated on its changed inputs, plus its
introduced error (its runtime value minus the same operator on the runtime's inputs). A final output keeps what
values without a log introduced. This holds for errors of any size, if an instruction's introduced error does not depend
on its inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from etviz.errors import EtvizError, UsageError
from etviz.evaluation.evaluator import Evaluator, Scope
from etviz.evaluation.interludes import Interlude
from etviz.evaluation.limits import Limits
from etviz.evaluation.replay import Replay, question
from etviz.evaluation.threads import threads_for
from etviz.evaluation.values import Value, flat_values
from etviz.graph.ir import LOOPS, OBSERVED, Graph, Node, refs

if TYPE_CHECKING:
    from typing_extensions import Self


Output = tuple[int, int]


@question
def counterfactual(
    replay: Replay,
    exact: Mapping[int, Collection[Output]],
    instead: Mapping[int, Mapping[int, Sequence[Any]]] | None = None,
    until: int = 0,
) -> dict[int, list[Any]]:
    """The final outputs of some executions if the values `exact` (by execution) had been exact.

    `instead` replaces outputs of delegate calls, see `outputs_inside`. `until`: in a program with state, the last
    execution to return: buffers change later ones. A `UsageError` if later values can't be evaluated because a
    delegate's inside is not known.
    """
    template = replay.fresh()
    walker = _Counterfactual(template.graph, template.constants, template.limits)
    walker.turns = template.turns
    with threads_for(walker.graph):
        outputs: dict[int, list[Any]] = {}
        stateful = walker.keeps_state
        for run in range(max(until, *exact) + 1) if stateful else sorted(exact):
            execution = replay.executions[run]
            walker.exact = frozenset(exact.get(run, ()))
            walker.instead = (instead or {}).get(run, {})
            computed = walker.run(execution.inputs, logged=execution.logged)
            if run in exact or (stateful and run > min(exact)):
                seen = execution.log.outputs()
                lanes = zip(walker.outputs, computed, seen if len(seen) == len(computed) else computed, strict=True)
                outputs[run] = [_with_rest(*values) for values in lanes]
    return outputs


@question
def outputs_inside(inner: Replay, outputs: Sequence[Any], exact: Collection[Output]) -> list[Any]:
    """The outputs of a zoomed delegate call if some values inside it had been exact; unlogged `outputs` are None."""
    before, after = (counterfactual(inner, {0: chosen})[0] for chosen in ((), exact))
    parts = zip(outputs, before, after, strict=True)
    return [after if out is None else _shifted(after, before, out) for out, before, after in parts]


class _Counterfactual(Evaluator):
    def __init__(self, graph: Graph, constants: Mapping[str, torch.Tensor], limits: Limits) -> None:
        super().__init__(graph, constants, limits)
        self.exact: frozenset[Output] = frozenset()
        self.instead: Mapping[int, Sequence[Any]] = {}
        self.outputs: list[Any] = []

    def beside(self, call: Interlude) -> Self:
        other = super().beside(call)
        other.exact, other.instead = frozenset(), {}
        return other

    def end_second_lane(self, local: Mapping[str, Any]) -> None:
        super().end_second_lane(local)
        self.outputs = [self.look_up(local, out) for out in self.graph.outputs]

    def step(self, graph: Graph, node: Node, scope: Scope) -> Value:
        env, local, logged = scope.env, scope.local, scope.logged
        if local is None or logged is None:
            return super().step(graph, node, scope)
        if node.target == "cond":
            return _other_branch(super().step(graph, node, scope))
        if node.target in LOOPS:
            return super().step(graph, node, scope)
        moved = any(local[name] is not env[name] for name in node.reads())
        seen = logged(node)
        chosen = frozenset(output for instruction, output in self.exact if instruction == node.instruction)
        if node.target == OBSERVED:
            return self._observed(node, env, local, seen, chosen)
        computed = self._on(graph, node, env)
        runtime = _logged(computed, seen)
        replaced = _logged(computed, self.instead.get(node.instruction))
        if not moved and not chosen:
            return Value(runtime, runtime if replaced is computed else replaced, None)
        changed = self._on(graph, node, local) if moved else computed
        return Value(
            runtime, _with_error(changed, computed, runtime if replaced is computed else replaced, chosen), None
        )

    def _observed(
        self,
        node: Node,
        env: dict[str, Any],
        local: dict[str, Any],
        seen: Sequence[Any] | None,
        chosen: Collection[int],
    ) -> Value:
        names = refs(node.args)
        if chosen and not (names and seen):
            raise UsageError(
                f"the operators of instruction {node.instruction} are not known, so its correct output can't be "
                "computed; load the record that was written with the .pte (record=)"
            )
        for output, (name, runtime) in enumerate(zip(names, seen or (), strict=False)):
            if runtime is None:
                continue
            computed, changed = env[name], local[name]
            shifted = runtime if changed is computed else _shifted(changed, computed, runtime)
            env[name], local[name] = runtime, changed if output in chosen else shifted
        return Value(None, None, None)

    def _on(self, graph: Graph, node: Node, env: Mapping[str, Any]) -> Any:
        args, kwargs = self.arguments(env, node)
        try:
            return self.apply(graph, node, args, kwargs)
        except EtvizError:
            raise
        except Exception as error:
            raise UsageError(f"{node.name} ({node.target}) can't be evaluated on these values: {error}") from error


def _with_rest(changed: Any, computed: Any, runtime: Any) -> Any:
    shapes = [value.shape for value in (computed, runtime) if isinstance(value, torch.Tensor)]
    return runtime if len(set(shapes)) > 1 else _shifted(changed, computed, runtime)


def _other_branch(value: Value) -> Value:
    return replace(value, local=value.reference) if value.local is None else value


def _logged(computed: Any, seen: Sequence[Any] | None) -> Any:
    flat = flat_values(computed)
    if seen is None or len(seen) != len(flat):
        return computed
    merged = [b if b is not None else a for a, b in zip(flat, seen, strict=True)]
    return merged if isinstance(computed, (list, tuple)) else merged[0]


def _with_error(changed: Any, computed: Any, runtime: Any, exact: Collection[int]) -> Any:
    lanes = (flat_values(value) for value in (changed, computed, runtime))
    parts = [a if at in exact else _shifted(a, b, c) for at, (a, b, c) in enumerate(zip(*lanes, strict=False))]
    return parts if isinstance(changed, (list, tuple)) else parts[0]


def _shifted(changed: Any, computed: Any, runtime: Any) -> Any:
    if runtime is computed or not all(isinstance(value, torch.Tensor) for value in (changed, computed, runtime)):
        return changed
    if not changed.shape == computed.shape == runtime.shape:
        return changed
    if not changed.is_floating_point():
        return _shifted_integers(changed, computed, runtime)
    difference = runtime - computed
    shifted = torch.where(torch.isfinite(difference), changed + difference, changed)
    # NaN or Inf that the operator itself made stays; what it only passed on follows its inputs.
    return torch.where(torch.isfinite(computed) & ~torch.isfinite(runtime), runtime, shifted).to(changed.dtype)


def _shifted_integers(changed: torch.Tensor, computed: torch.Tensor, runtime: torch.Tensor) -> torch.Tensor:
    if changed.dtype == torch.bool:
        return changed ^ (computed ^ runtime)
    if changed.is_complex():
        return changed + (runtime - computed)
    limits = torch.iinfo(changed.dtype)
    return (changed.long() + (runtime.long() - computed.long())).clamp(limits.min, limits.max).to(changed.dtype)
