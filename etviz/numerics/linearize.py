"""The reference in float64 with a gradient, and how far each instruction's output is from what its inputs gave.

Three values go side by side through the graph: the reference, what the runtime had, and the point halfway between
them, where the derivatives are taken: with those, the difference of an operator's outputs follows from that of its
inputs up to the third order, while derivatives at the reference leave the second (midpoint rule). Where the two are
closer than `cell.NEAR`, the reference itself is taken, which saves evaluating the operator once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from etviz.artifacts.ir import OBSERVED, Graph, Node, Ref, map_arg, refs
from etviz.errors import EtvizError
from etviz.numerics.cell import Cell, detached, forget, item_of, passing, shift_of, together
from etviz.numerics.contribution import Contribution
from etviz.numerics.exact import Exact, State, leading_to, rounds
from etviz.numerics.reference import Logged, flat_values, last_uses
from etviz.numerics.widened import widen

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Linearization:
    """What a walk gave.

    Attributes
    ----------
    contributions
        By ``(instruction, output)``.
    outputs
        A cell for each output of the graph.
    missing
        Number of instructions that logged nothing.
    """

    contributions: dict[tuple[int, int], Contribution] = field(default_factory=dict)
    outputs: list[Cell] = field(default_factory=list)
    missing: int = 0


class Linearizer:
    """Walks one method; stateful executions follow one another on the same object.

    Parameters
    ----------
    graph
        The method's graph.
    exact
        Evaluates its operators.
    step
        Called after each node, and when a gradient comes back to a logged value.
    """

    def __init__(self, graph: Graph, exact: Exact, step: Callable[[], None] = lambda: None) -> None:
        self.graph = graph
        self.exact = exact
        self.step = step
        self.reference_state: State = {}
        self.runtime_state: State = {}
        self._found = Linearization()
        self._gradients = True

    def run(self, inputs: Sequence[Any], logged: Logged, *, gradients: bool = True) -> Linearization:
        """Walk one execution.

        Parameters
        ----------
        inputs
            Flat inputs.
        logged
            The outputs that the runtime logged for a node.
        gradients
            False only brings the mutable buffers up to date.

        Raises
        ------
        PairingError
            If an operator of the reference fails.
        """
        import torch

        self._found, self._gradients = Linearization(), gradients
        middle_state = dict(self.reference_state)
        with torch.no_grad(), self.exact.constants.compact():
            env = self._cells(self.graph, [Cell(x, x, x) for x in map(widen, inputs)])
            self._walk(self.graph, env, logged, middle_state)
            self._found.outputs = [self._cell(env, out) for out in self.graph.outputs]
            for target, name in self.graph.mutations.items():
                cell = self._cell(env, Ref(name))
                self.reference_state[target], self.runtime_state[target] = cell.reference, cell.runtime
        return self._found

    def _cells(self, graph: Graph, given: Sequence[Cell]) -> dict[str, Cell]:
        users = iter(given)
        weights = self.exact.inputs(graph, [None] * len(given), {})
        env: dict[str, Cell] = {}
        for item in graph.inputs:
            if item.kind == "user":
                env[item.name] = next(users, Cell(None, None, None))
            elif item.target in self.reference_state:
                env[item.name] = self._buffer(item.target)
            else:
                env[item.name] = Cell(*[weights[item.name]] * 3)
        return env

    def _buffer(self, target: str) -> Cell:
        """A mutable buffer: what the runtime has there is as far off as earlier executions left it."""
        reference, runtime = self.reference_state[target], self.runtime_state[target]
        cell = Cell(reference, runtime, reference)
        if self._gradients and runtime is not reference and runtime.shape == reference.shape:
            contribution = self._contribution(-1, len(self._found.contributions))
            contribution.measure(runtime, reference)
            cell.middle, cell.near = self._link(contribution, cell, near=True)
            cell.reach = contribution.bit
        return cell

    def _cell(self, env: dict[str, Cell], leaf: Any) -> Cell:
        """The cell of an argument, constants read."""
        cell = env[leaf.name] if isinstance(leaf, Ref) else Cell(leaf, leaf, leaf)
        value = self.exact.look_up({}, cell.reference)
        return cell if value is cell.reference else Cell(value, value, value)

    def _walk(self, graph: Graph, env: dict[str, Cell], logged: Logged, middle_state: State) -> None:
        last = last_uses(graph)
        for node in graph.nodes:
            if node.target == "cond":
                env[node.name] = self._branch(graph, node, env, logged, middle_state)
            elif node.target == "getitem":
                env[node.name] = item_of(self._cell(env, node.args[0]), int(node.args[1]))
            elif node.target == OBSERVED:
                env.update(self._observed(node, env, logged))
                env[node.name] = Cell(None, None, None)
            else:
                env[node.name] = self._call(graph, node, env, logged, middle_state)
            for name in last.get(node.name, ()):
                env.pop(name, None)
            self.step()

    def _branch(self, graph: Graph, node: Node, env: dict[str, Cell], logged: Logged, middle_state: State) -> Cell:
        """The branch that the reference takes."""
        predicate, operands = node.args
        taken = bool(self._cell(env, predicate).reference)
        branch = graph.subgraphs[node.subgraphs[0 if taken else 1]]
        inner = self._cells(branch, [self._cell(env, leaf) for leaf in operands])
        self._walk(branch, inner, logged, middle_state)
        return together([self._cell(inner, out) for out in branch.outputs])

    def _call(self, graph: Graph, node: Node, env: dict[str, Cell], logged: Logged, middle_state: State) -> Cell:
        """Evaluate an operator or a delegate three times at most."""
        import torch

        cells = {name: self._cell(env, Ref(name)) for name in refs((node.args, node.kwargs))}

        def evaluate(kind: str, state: State) -> Any:
            def value(leaf: Any) -> Any:
                return getattr(cells[leaf.name], kind) if isinstance(leaf, Ref) else self.exact.look_up({}, leaf)

            return self.exact.apply(graph, node, map_arg(node.args, value), map_arg(node.kwargs, value), state)

        stateful = node.target == "delegate" and bool(graph.subgraphs[node.subgraphs[0]].mutations)
        near = all(cell.near for cell in cells.values()) and not stateful
        with torch.set_grad_enabled(self._gradients):
            middle = evaluate("middle", middle_state)
        reference = detached(middle) if near else evaluate("reference", self.reference_state)
        local, problem = reference, ""
        if stateful or any(cell.runtime is not cell.reference for cell in cells.values()):
            try:
                local = evaluate("runtime", self.runtime_state)
            except EtvizError as error:
                local, problem = None, f"the operator fails on the runtime's inputs: {error}"
        computed = Cell(reference, local, middle, near)
        cell = self._finish(node, computed, logged(node), problem)
        self._depend(graph, node, cell, cells, passing(computed))
        return cell

    def _depend(self, graph: Graph, node: Node, cell: Cell, cells: dict[str, Cell], passes: list[bool]) -> None:
        """Add what the arguments depend on; an output of a delegate depends on those that lead to it.

        Nothing leads to an output that errors do not pass to.
        """
        before = 0
        for used in cells.values():
            before |= used.reach
            cell.rounded |= used.rounded
        if rounds(graph, node):
            cell.rounded |= before
        if any(passes):
            cell.reach |= before
        if node.target == "delegate":
            inner = leading_to(graph.subgraphs[node.subgraphs[0]])
            found = [{name for at in sources for name in refs(node.args[at])} for sources in inner]
        else:
            found = [set(cells)] * len(cell.parts)
        named = [names if go else set[str]() for names, go in zip(found, passes, strict=False)]
        cell.parts = tuple(_union(own, names, cells) for own, names in zip(cell.parts, named, strict=False))

    def _finish(self, node: Node, computed: Cell, logged: Any, problem: str) -> Cell:
        """Put what the runtime logged beside the computed values, and note what it differs by."""
        references, middles = flat_values(computed.reference), flat_values(computed.middle)
        locals_ = flat_values(computed.runtime) if computed.runtime is not None else [None] * len(references)
        if logged is None or len(logged) != len(references):
            self._found.missing += node.instruction >= 0
            logged = [None] * len(references)
        outs = []
        for output, (ref, loc, mid, run) in enumerate(zip(references, locals_, middles, logged, strict=True)):
            value, contribution = self._runtime_value(node, output, ref, loc, run, problem)
            out = Cell(ref, value, mid)
            out.middle, out.near = self._link(contribution, out, near=computed.near)
            if contribution is not None:
                out.reach = contribution.bit
            outs.append(out)
        return together(outs) if isinstance(computed.reference, (list, tuple)) else outs[0]

    def _observed(self, node: Node, env: dict[str, Cell], logged: Logged) -> dict[str, Cell]:
        """A delegate whose inside is not certain: its outputs take the place of the values that its arguments name."""
        names = [str(name) for name in refs(node.args)]
        runtime = logged(node) if names else None
        if runtime is None or len(runtime) != len(names):
            self._found.missing += 1
            return {}
        outs: dict[str, Cell] = {}
        for output, (name, run) in enumerate(zip(names, runtime, strict=True)):
            old = env[name]
            value, contribution = self._runtime_value(node, output, old.reference, old.runtime, run, "")
            cell = Cell(old.reference, value, old.middle, old.near, old.reach, old.rounded)
            if contribution is not None:
                cell.middle, cell.near = self._link(contribution, cell, near=old.near)
                cell.reach |= contribution.bit
            outs[name] = cell
        return outs

    def _runtime_value(
        self, node: Node, output: int, reference: Any, local: Any, logged: Any, problem: str
    ) -> tuple[Any, Contribution | None]:
        """What later operators get as this output at runtime, and what it adds to the error if it was logged."""
        import torch

        computed = local if local is not None else reference
        if not isinstance(logged, torch.Tensor) or not isinstance(reference, torch.Tensor):
            return computed, None
        if logged.shape != reference.shape:
            return computed, None
        value = logged.to(torch.float64) if reference.is_floating_point() else logged.to(reference.dtype)
        if not self._gradients:
            return value, None
        contribution = self._contribution(node.instruction, output)
        if not isinstance(local, torch.Tensor) or local.shape != value.shape:
            contribution.problem = problem or "its shape on the runtime's inputs differs"
        elif torch.equal(value, local):
            value = local
        else:
            contribution.measure(value, local)
        return value, contribution

    def _contribution(self, instruction: int, output: int) -> Contribution:
        contribution = Contribution(instruction, output, 1 << len(self._found.contributions))
        self._found.contributions[instruction, output] = contribution
        return contribution

    def _link(self, contribution: Contribution | None, cell: Cell, *, near: bool) -> tuple[Any, bool]:
        """The point between reference and runtime, through which the gradient flows on; and if it is the reference.

        `near` says if ``cell.middle`` is the reference's value. The result is a tensor of its own: inside of a delegate
        one output may be computed from another, and this one's gradient must not count for both.
        """
        import torch

        middle = cell.middle
        if not self._gradients:
            return middle, True
        if not isinstance(middle, torch.Tensor) or not middle.is_floating_point():
            return cell.reference, True
        shift = shift_of(cell.reference, cell.runtime)
        if shift is not None or not near:
            target = cell.reference if shift is None else cell.reference + shift
            with torch.enable_grad():
                middle = middle + torch.nan_to_num(target - middle.detach(), 0.0, 0.0, 0.0)
        if contribution is not None:
            if not middle.requires_grad:
                middle = middle.detach().requires_grad_()
                middle.register_post_accumulate_grad_hook(forget)
            with torch.enable_grad():
                middle = middle.view_as(middle)
            middle.register_hook(partial(_collect, self.step, contribution))
        return middle, shift is None


def _collect(
    step: Callable[[], None], contribution: Contribution, gradient: torch.Tensor | None
) -> torch.Tensor | None:
    """Hook of the backward pass; `step` may raise here, which ends it."""
    step()
    return contribution.collect(gradient)


def _union(own: int, names: set[str], cells: dict[str, Cell]) -> int:
    for name in names:
        own |= cells[name].reach
    return own
