"""Derives which edge value each runtime value is, from the `.pte` and the ETRecord alone.

Makers, readers and debug handles rule out possibilities until nothing changes. A value with one possibility is paired.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from etviz.artifacts.program.program import Instruction, Method, TensorSpec
from etviz.artifacts.program.xnnpack_payload import Origin
from etviz.graph.ir import Graph, Meta, Node, Ref, Tag
from etviz.pairing.branches import Loop, Region, controlled, regions
from etviz.pairing.edge_values import EdgeValues
from etviz.pairing.matched_constants import VIEW, Constants
from etviz.pairing.order import Order, instructions_by_name, takers
from etviz.upstream.operators import runtime_operator

Origins: TypeAlias = "Callable[[Instruction], Sequence[Origin]]"
"""The origin of each output of a delegate call; empty if unknown."""
_WRITE_BACK: Final = "aten::copy_"
_MOST_TRIALS: Final = 256
_WORK: Final = 1_000_000
_WORK_PER_CALL: Final = 100
"""Maximum comparisons per call; beyond, only certain values are paired."""
_SLICE: Final = "aten.slice_copy.Tensor"
_TAKING_PARTS: Final = frozenset(
    (_SLICE, "aten.select_copy.int", "aten.split_copy.Tensor", "aten.split_with_sizes_copy.default")
)
"""Operators that backends may all call a slice."""


@dataclass(slots=True)
class Derived:
    """Edge values of runtime values, and edge operators of calls.

    `values` maps ``(instruction, output)`` to its edge value, `written_back` a `copy_` to the buffer's new value.
    `operators` belong to kernels, `insides` to delegates. `delegated` operators can only run in delegates.
    """

    edge: EdgeValues
    values: dict[tuple[int, int], str] = field(default_factory=dict)
    operators: dict[int, Node] = field(default_factory=dict)
    insides: dict[int, list[Node]] = field(default_factory=dict)
    written_back: dict[int, str] = field(default_factory=dict)
    inputs: dict[int, list[str]] = field(default_factory=dict)
    delegated: frozenset[str] = frozenset()


def derive(
    method: Method,
    edge: Graph,
    handles: Mapping[int, tuple[int, ...]],
    constants: Constants | None = None,
    origins: Origins = lambda _: (),
) -> Derived:
    """`origins` reads a delegate's payload."""
    return _Search(method, edge, handles, constants or Constants(), origins).run()


@dataclass(slots=True)
class _Past:
    """All values that a delegate's value follows from, itself included, and their operators.

    `slices` take a part: handle and start, None if unknown.
    """

    values: set[str] = field(default_factory=set)
    handles: set[int] = field(default_factory=set)
    slices: set[tuple[int, int | None]] = field(default_factory=set)

    def fits(self, origin: Origin) -> bool:
        known = {handle for handle, _ in self.slices} - {handle for handle, begin in self.slices if begin is None}
        return origin.handles <= self.handles and all(part in self.slices for part in origin.slices if part[0] in known)


class _Search:
    def __init__(
        self,
        method: Method,
        edge: Graph,
        handles: Mapping[int, tuple[int, ...]],
        constants: Constants,
        origins: Origins,
    ) -> None:
        self.method, self.edge = method, EdgeValues(edge, constants.classes)
        self.handles, self._origins = handles, origins
        areas = regions(method)
        branched = {i for area in areas for i in area.everything}
        self.calls = [i for i in method.instructions if i.kind in ("kernel", "delegate") and i.index not in branched]
        self.outputs = {call.index: _flat(method, call.outputs) for call in self.calls}
        self.options: dict[int, set[str]] = {}
        self.slots: dict[int, list[tuple[int, str, Any]]] = {}
        self.domains: dict[int, set[str]] = {}
        self.bases: dict[int, int] = {}
        self.copies: dict[int, Node] = {}
        self.produced: set[int] = set()
        self.settled: set[str] = set()
        self._told: dict[int, Sequence[Origin]] = {}
        self._all = frozenset(self.edge.metas)
        self._values: dict[int, tuple[int, ...]] = {}
        self._visited: dict[int, list[Any] | None] = {}
        self._fits: dict[frozenset[str], dict[Any, set[str]]] = {}
        self.constant_names = {placeholder.name for placeholder in edge.inputs if placeholder.kind != "user"}
        self.domains |= {value: set(names) for value, names in constants.domains.items()}
        self._left = _WORK + _WORK_PER_CALL * len(self.calls)
        self._claimed = {call.index: self._operators(call) for call in self.calls if call.kind == "delegate"}
        self._begin()
        self._begin_branches(areas)

    @cached_property
    def _order(self) -> Order:
        return Order(self.edge.graph, self._claimed)

    def _begin(self) -> None:
        writers: dict[int, int] = {}
        for call in self.calls:
            for value in self.outputs[call.index]:
                writers[value] = writers.get(value, 0) + 1
        self.produced = {value for value, count in writers.items() if count == 1}
        users = [placeholder.name for placeholder in self.edge.graph.user_inputs()]
        if len(users) == len(self.method.inputs):
            self.domains |= {value: {name} for value, name in zip(self.method.inputs, users, strict=True)}
        for call in self.calls:
            if call.kind == "kernel":
                self._begin_kernel(call)
            else:
                self._begin_delegate(call)
        self._begin_views()
        outputs = [o.name if isinstance(o, Ref) else "" for o in self.edge.graph.outputs]
        if len(outputs) == len(self.method.outputs):
            for value, name in zip(self.method.outputs, outputs, strict=True):
                if name:
                    self._narrow(value, {name})

    def _begin_branches(self, areas: Sequence[Region | Loop]) -> None:
        calls = {i.index: i for i in self.method.instructions}
        for node, area in controlled(self.edge.operators.values(), areas):
            names = self.edge.given[node.name]
            if isinstance(area, Loop):
                copies = [self.edge.operators.get(leaf.name) for leaf in node.args[0]]
                if len(copies) == len(area.first):
                    self.copies |= {at: copy for at, copy in zip(area.first, copies, strict=True) if copy is not None}
                left = [i.outputs[0] for at in (*area.first, *area.results) if (i := calls.get(at)) and i.outputs]
            else:
                left = [i.outputs[0] for at in area.true if (i := calls.get(at)) and i.kind == "move"]
            if len(names) == len(left) == len(node.outputs):
                self.domains |= {value: {name} for value, name in zip(left, names, strict=True)}

    def _begin_kernel(self, call: Instruction) -> None:
        known = runtime_operator(str(call.operator))
        if str(call.operator).startswith("executorch_prim::et_view"):
            known = (VIEW, (("self", None), ("size", None)))
        if known is None:
            return
        target, arguments = known
        handles = set(self.handles.get(call.index, ()))
        nodes = self.edge.by_target.get(target, [])
        if handles:
            nodes = [self.edge.operators[name] for name in self._operators(call)]
            nodes = [node for node in nodes if node.target == target]
        if not self._spend(len(nodes)):
            return
        nodes = [n for n in nodes if self._fits_outputs(call, n)]
        self.slots[call.index] = [
            (value, name, default) for value, (name, default) in zip(call.args, arguments, strict=False)
        ]
        taken = [value for value, _, _ in self.slots[call.index]]
        self._values[call.index] = (*self.outputs[call.index], *_flat(self.method, taken))
        nodes = [n for n in nodes if self._takes_tensors(call, n)]
        # An operator of the same handle with another constant argument is that operator, changed.
        same = {n.name for n in nodes if self._fits_constants(call, n)}
        self.options[call.index] = same or {n.name for n in nodes if handles}
        for position, value in enumerate(self.outputs[call.index]):
            self._narrow(value, {self._output(n, position) for n in self.options[call.index]})

    def _operators(self, call: Instruction) -> set[str]:
        handles = set(self.handles.get(call.index, ()))
        return {node.name for handle in handles for node in self.edge.by_handle.get(handle, ())}

    def _begin_delegate(self, call: Instruction) -> None:
        names = {value for name in self._claimed[call.index] for value in self.edge.given[name]}
        for value in self.outputs[call.index]:
            self._narrow(value, {n for n in names if _fits(self._spec(value), self.edge.metas.get(n))})

    def _begin_views(self) -> None:
        written: dict[tuple[int, int], int] = {}
        for value in self.method.inputs:
            self._note_memory(written, value)
        names = frozenset(v for n in self.edge.operators.values() if n.target == VIEW for v in self.edge.given[n.name])
        names |= {placeholder.name for placeholder in self.edge.graph.inputs if placeholder.kind == "buffer"}
        known = {*self.produced, *self.method.inputs}
        for call in self.calls:
            for value in call.inputs:
                spec = self._spec(value)
                if value in known or spec is None or spec.memory is None or spec.data_index or spec.external:
                    continue
                known.add(value)
                self.domains[value] = self._fitting(spec, names)
                if self._left <= 0:
                    return
                if spec.memory in written:
                    self.bases[value] = written[spec.memory]
            for value in self.outputs[call.index]:
                self._note_memory(written, value)

    def _note_memory(self, written: dict[tuple[int, int], int], value: int) -> None:
        for element in self.method.tensors(value):
            spec = self._spec(element)
            if spec is not None and spec.memory is not None:
                written[spec.memory] = element

    def _visit_view(self, value: int, base: int) -> bool:
        domain, bases = self.domains.get(value), self.domains.get(base)
        if not domain or not bases or not self._spend(len(domain)):
            return False
        chains = {name: self._ancestors(name) for name in domain}
        changed = self._narrow(value, {name for name, chain in chains.items() if chain & bases})
        return self._narrow(base, set().union(*chains.values())) or changed

    def _ancestors(self, name: str) -> set[str]:
        names: set[str] = set()
        while (maker := self.edge.maker.get(name)) is not None and self.edge.operators[maker].target == VIEW:
            source = self.edge.operators[maker].kwargs.get("self", self.edge.operators[maker].kwargs.get("input"))
            if not isinstance(source, Ref):
                break
            name = source.name
            names.add(name)
        self._spend(len(names))
        return names

    def _spend(self, steps: int) -> bool:
        self._left -= steps
        return self._left > 0

    def _fitting(self, spec: TensorSpec | None, names: frozenset[str]) -> set[str]:
        key = (spec.dtype, spec.sizes, spec.dynamism) if spec is not None else None
        known = self._fits.setdefault(names, {})
        if key not in known:
            self._spend(len(names))
            known[key] = {name for name in names if _fits(spec, self.edge.metas.get(name))}
        return known[key]

    def _spec(self, value: int) -> TensorSpec | None:
        return self.method.values[value].tensor

    def _output(self, operator: str, position: int) -> str:
        names = self.edge.given[operator]
        return names[position] if position < len(names) else f"{operator}/{position}"

    def _fits_outputs(self, call: Instruction, node: Node) -> bool:
        names = self.edge.given[node.name]
        return all(
            _fits(self._spec(value), self.edge.metas.get(name))
            for value, name in zip(self.outputs[call.index], names, strict=False)
        )

    def _takes_tensors(self, call: Instruction, node: Node) -> bool:
        kinds = (
            (self.method.values[value].kind, node.kwargs.get(name, default))
            for value, name, default in self.slots[call.index]
        )
        return all(given is not None for kind, given in kinds if kind in ("tensor", "tensor_list"))

    def _fits_constants(self, call: Instruction, node: Node) -> bool:
        literals = ("int", "double", "bool", "int_list", "double_list", "bool_list")
        return all(
            _same_literal(self.method.literal(value), node.kwargs.get(name, default))
            for value, name, default in self.slots[call.index]
            if self.method.values[value].kind in literals
        )

    def run(self) -> Derived:
        changed = True
        while changed:
            changed = False
            for call in self.calls:
                changed |= self._visit_kernel(call) if call.kind == "kernel" else self._visit_delegate(call)
            for value, base in self.bases.items():
                changed |= self._visit_view(value, base)
            changed |= self._exclude()
            changed = changed or self._put_in_order() or self._look_into_delegates()
            changed &= self._left > 0
        return self._result()

    def _narrow(self, value: int, names: set[str]) -> bool:
        """Keep only `names`; a value without any possibility constrains nothing from then on and is not paired."""
        before = self.domains.get(value)
        if not names or (before is not None and not before):
            return False
        if before is not None and before <= names:
            return False
        self.domains[value] = names if before is None else before & names
        return True

    def _visit_kernel(self, call: Instruction) -> bool:
        options = self.options.get(call.index)
        if not options or _same(self._state(call), self._visited.get(call.index)):
            return False
        if not self._spend(len(options) * (1 + len(self.slots[call.index]))):
            return False
        kept = {n for n in options if self._consistent(call, n)}
        changed = kept != options
        self.options[call.index] = kept if changed else options
        for position, value in enumerate(self.outputs[call.index]):
            if value in self.produced:
                changed |= self._narrow(value, {self._output(n, position) for n in kept})
        for value, name, default in self.slots[call.index]:
            for element, taken in self._tensors(value, kept, name, default):
                if element in self.domains:
                    changed |= self._narrow(element, taken)
        self._visited[call.index] = self._state(call)
        return changed

    def _state(self, call: Instruction) -> list[Any] | None:
        domains = [self.domains.get(value) for value in self._values[call.index]]
        known = [value for value, domain in zip(self._values[call.index], domains, strict=True) if domain]
        return [self.options[call.index], *domains] if len(set(known)) == len(known) else None

    def _tensors(self, value: int, operators: Collection[str], name: str, default: Any) -> list[tuple[int, set[str]]]:
        nodes = [self.edge.operators[operator] for operator in operators]
        given = [node.kwargs.get(name, default) for node in nodes]
        kind = self.method.values[value].kind
        if kind == "tensor":
            taken = {g.name for g in given if isinstance(g, Ref)}
            views = [g.name for node, g in zip(nodes, given, strict=True) if node.target == VIEW and isinstance(g, Ref)]
            return [(value, taken.union(*map(self._ancestors, views)))]
        if kind in ("tensor_list", "optional_tensor_list"):
            return [
                (element, {g[i].name for g in given if isinstance(g, list) and i < len(g) and isinstance(g[i], Ref)})
                for i, element in enumerate(self.method.values[value].value)
                if element is not None
            ]
        return []

    def _consistent(self, call: Instruction, operator: str) -> bool:
        for position, value in enumerate(self.outputs[call.index]):
            domain = self.domains.get(value)
            if value in self.produced and domain and self._output(operator, position) not in domain:
                return False
        for value, name, default in self.slots[call.index]:
            for element, taken in self._tensors(value, (operator,), name, default):
                domain = self.domains.get(element)
                if domain and taken.isdisjoint(domain):
                    return False
        return True

    def _visit_delegate(self, call: Instruction) -> bool:
        handles = set(self.handles.get(call.index, ()))
        changed = False
        for value in call.inputs:
            domain = self.domains.get(value)
            if not domain or len(domain) < 2 or not self._spend(len(domain)):
                continue
            kept = {n for n in domain if any(handles.intersection(user.handles) for user in self.edge.users.get(n, ()))}
            changed |= self._narrow(value, kept)
        return changed

    def _exclude(self) -> bool:
        taken = {next(iter(self.domains[v])): v for v in self.produced if len(self.domains.get(v, ())) == 1}
        changed = False
        for value in self.produced:
            domain = self.domains.get(value)
            if domain and len(domain) > 1 and self._spend(len(domain)):
                kept = {n for n in domain if n not in taken}
                changed |= self._narrow(value, kept) if kept else False
        used = {next(iter(o)): i for i, o in self.options.items() if len(o) == 1}
        for index, options in self.options.items():
            if len(options) > 1 and self._spend(len(options)):
                kept = {n for n in options if used.get(n, index) == index}
                if kept and kept != options:
                    self.options[index], changed = kept, True
        return changed

    def _put_in_order(self) -> bool:
        delegates = [call for call in self.calls if call.kind == "delegate"]
        values = [value for call in delegates for value in (*self.outputs[call.index], *call.inputs)]
        if all(len(names) < 2 for names in (*self.options.values(), *(self.domains.get(v, ()) for v in values))):
            return False
        if not self._spend(len(self.edge.graph.nodes) + sum(map(len, self.options.values()))):
            return False
        taken = takers({index: names for index, names in self.options.items() if names})
        possible = instructions_by_name((*self.options.items(), *self._claimed.items()))
        possible = {name: [at for at in calls if at in taken.get(name, (at,))] for name, calls in possible.items()}
        spans = self._order.spans(possible, taken.keys())
        fits = self._order.fits
        where = {
            name: {i for i in indices if name not in spans or fits(i, spans[name])}
            for name, indices in possible.items()
        }
        changed = False
        for index, names in self.options.items():
            kept = {name for name in names if index in where[name]}
            if kept and kept != names:
                self.options[index], changed = kept, True
        for call in delegates:
            changed |= self._put_delegate_in_order(call, where)
        return changed

    def _put_delegate_in_order(self, call: Instruction, where: Mapping[str, set[int]]) -> bool:
        at, unknown, changed = call.index, {call.index, -1}, False
        for value in self.outputs[at]:
            domain = self.domains.get(value, set())
            kept = {
                name
                for name in domain
                if at in where.get(self.edge.maker.get(name, ""), unknown)
                and (name in self.edge.results or any(where.get(u.name, unknown) - {at} for u in self._readers(name)))
            }
            changed |= self._narrow(value, kept)
        for value in call.inputs:
            domain = self.domains.get(value, set())
            if len(domain) > 1 and self._spend(len(domain)):
                kept = {n for n in domain if any(at in where.get(u.name, unknown) for u in self._readers(n))}
                changed |= self._narrow(value, kept)
        return changed

    def _look_into_delegates(self) -> bool:
        changed = False
        for call in self.calls:
            values = [value for value in self.outputs[call.index] if self.domains.get(value)]
            if call.kind != "delegate" or all(len(self.domains.get(v, ())) < 2 for v in (*values, *call.inputs)):
                continue
            past: dict[str, _Past] = {}
            for name in set().union(*(self.domains[value] for value in values)):
                past[name] = self._past(call, name)
                if not self._spend(len(past[name].values)):
                    return changed
            for first, later in itertools.combinations(values, 2):
                names, others = self.domains[first], self.domains[later]
                changed |= self._narrow(first, {a for a in names if any(b not in past[a].values for b in others - {a})})
                changed |= self._narrow(later, {b for b in others if any(b not in past[a].values for a in names - {b})})
            changed |= self._follow_origins(call, past)
        return changed

    def _follow_origins(self, call: Instruction, past: Mapping[str, _Past]) -> bool:
        if call.index not in self._told:
            self._told[call.index] = self._origins(call)
        told, changed = self._told[call.index], False
        if any(not origin.handles <= set(self.handles.get(call.index, ())) for origin in told):
            return False  # they are counted otherwise
        for value, origin in zip(self.outputs[call.index], told, strict=False):
            given = [names for at in origin.inputs if (names := self.domains.get(call.inputs[at]))]
            domain = self.domains.get(value, set())
            kept = {n for n in domain if past[n].fits(origin) and not any(map(past[n].values.isdisjoint, given))}
            changed |= self._narrow(value, kept)
            reached = set[str]().union(*(past[name].values for name in self.domains.get(value, ())))
            for read in (call.inputs[at] for at in origin.inputs if reached):
                names = self.domains.get(read, set())
                changed |= self._narrow(read, {n for n in names if not reached.isdisjoint(self.edge.alike(n))})
        return changed

    def _past(self, call: Instruction, name: str) -> _Past:
        past, wanted = _Past(), [name]
        while wanted:
            name = wanted.pop()
            maker = self.edge.maker.get(name)
            if name not in past.values and maker in self._claimed[call.index]:
                node = self.edge.operators[maker]
                past.handles.update(node.handles)
                if node.target in _TAKING_PARTS:
                    begin = self._begin_of_slice(node)
                    past.slices.update((handle, begin) for handle in node.handles)
                wanted.extend(node.reads())
            past.values.add(name)
        return past

    def _begin_of_slice(self, node: Node) -> int | None:
        source, axis, begin = node.kwargs.get("self"), node.kwargs.get("dim", 0), node.kwargs.get("start")
        meta = self.edge.metas.get(source.name) if isinstance(source, Ref) else None
        if node.target != _SLICE or meta is None or not isinstance(axis, int) or not isinstance(begin or 0, int):
            return None
        size = meta.shape[axis] if -len(meta.shape) <= axis < len(meta.shape) else None
        if not isinstance(size, int):
            return None
        return min(max(0, begin + size if begin < 0 else begin), size) if begin else 0

    def _readers(self, name: str) -> list[Node]:
        return self.edge.users.get(name, [])

    def _certain(self, value: int) -> str | None:
        domain = self.domains.get(value, set())
        return min(domain) if self._is_one(domain) else None

    def _is_one(self, names: Collection[str]) -> bool:
        return len(names) == 1 or len(set(map(self.edge.same, names))) == 1

    def _result(self) -> Derived:
        derived = Derived(self.edge, operators=dict(self.copies))
        for call in sorted(self.calls, key=lambda call: call.kind == "kernel"):  # delegates say what is theirs
            certain = [self._certain(value) if value in self.produced else None for value in self.outputs[call.index]]
            if call.kind == "kernel":
                self._settle_kernel(derived, call, certain)
            else:
                self._settle_delegate(derived, call, certain)
        derived.delegated = frozenset().union(*self._claimed.values()).difference(*self.options.values())
        return derived

    def _settle_kernel(self, derived: Derived, call: Instruction, certain: list[str | None]) -> None:
        if call.operator == _WRITE_BACK and len(call.args) > 1:
            source = self._certain(call.args[1])
            if source in self.edge.graph.mutations.values():
                derived.written_back[call.index] = str(source)
        options = self.options.get(call.index, set())
        free = sorted(options - self.settled, key=self.edge.places.__getitem__)
        if free and self._is_one([self.edge.given[name][0] for name in options]):
            self.settled.add(free[0])
            derived.operators[call.index] = self.edge.operators[free[0]]
            certain = [*self.edge.given[free[0]][: len(certain)]]
        for position, name in enumerate(certain):
            if name is not None:
                derived.values[call.index, position] = name

    def _settle_delegate(self, derived: Derived, call: Instruction, certain: list[str | None]) -> None:
        """Accept a delegate's outputs only if the operators between them and its inputs are the claimed ones."""
        options = [self._possible(value) for value in call.inputs]
        names = {other for names in options for name in names for other in self.edge.alike(name)}
        fitting = []
        for trial in self._trials(call, certain):
            inside = self._inside(call, names, trial)
            given = self._given(inside, options) if inside is not None else None
            if inside is not None and given is not None:
                fitting.append((trial, inside, given))
        if len({tuple(map(self.edge.same, (*trial, *given))) for trial, _, given in fitting}) == 1:
            outputs, derived.insides[call.index], derived.inputs[call.index] = fitting[0]
            certain = list(outputs)
            self.settled.update(node.name for node in derived.insides[call.index])
        for position, name in enumerate(certain):
            if name is not None:
                derived.values[call.index, position] = name

    def _possible(self, value: int) -> set[str]:
        if domain := self.domains.get(value):
            return domain
        return self._fitting(self._spec(value), self._all)

    def _given(self, inside: Sequence[Node], options: Sequence[set[str]]) -> list[str] | None:
        made = {name for node in inside for name in (node.name, *self.edge.given[node.name])}
        read = dict.fromkeys(name for node in inside for name in node.reads() if name not in made)
        chosen: dict[int, str] = {}
        left = list(read)
        possible = {at: {o for name in names for o in self.edge.alike(name)} for at, names in enumerate(options)}
        while len(chosen) < len(options):
            at = min((at for at in possible if at not in chosen), key=lambda at: len(possible[at].intersection(left)))
            fitting = [name for name in left if name in possible[at]]
            if len(set(map(self.edge.same, fitting or possible[at]))) != 1:
                return None
            spare = (name for name in sorted(possible[at]) if name not in chosen.values())
            chosen[at] = fitting[0] if fitting else next(spare, min(possible[at]))
            if chosen[at] in left:
                left.remove(chosen[at])
        if any(name not in self.constant_names for name in left):
            return None
        return [chosen[at] for at in range(len(options))]

    def _trials(self, call: Instruction, certain: list[str | None]) -> list[tuple[str, ...]]:
        choices: list[tuple[str, ...]] = [()]
        for value, name in zip(self.outputs[call.index], certain, strict=True):
            options = [name] if name is not None else sorted(self.domains.get(value, ()))
            choices = [(*chosen, o) for chosen in choices for o in options if o not in chosen]
            if len(choices) > _MOST_TRIALS or not self._spend(len(choices) * len(self.edge.operators) // 10):
                return []
        return choices

    def _inside(self, call: Instruction, inputs: set[str], outputs: Sequence[str]) -> list[Node] | None:
        nodes = self.edge.closure(outputs, inputs)
        if nodes is None:
            return None
        claimed = sorted(self.handles.get(call.index, ()))
        items = [h for n in nodes for h in n.handles for _ in range(1 + self._used_items(n))]
        return nodes if sorted(items) == claimed else None

    def _used_items(self, node: Node) -> int:
        names = self.edge.given[node.name]
        if names == [node.name]:
            return 0
        return sum(self.edge.count(name) > 0 for name in names)


def _same(a: list[Any] | None, b: list[Any] | None) -> bool:
    return a is not None and b is not None and all(x is y for x, y in zip(a, b, strict=True))


def _flat(method: Method, values: Sequence[int]) -> tuple[int, ...]:
    return tuple(element for value in values for element in (method.tensors(value) or (value,)))


def _fits(spec: TensorSpec | None, meta: Meta | None) -> bool:
    if spec is None or meta is None:
        return True
    fits = len(spec.sizes) == len(meta.shape) if spec.dynamism != "static" else meta.takes(spec.sizes)
    return spec.dtype == meta.dtype and fits


def _same_literal(stored: Any, given: Any) -> bool:
    if isinstance(given, (list, tuple)):
        stored = list(stored) if isinstance(stored, (list, tuple)) else [stored]
        return len(stored) == len(given) and all(_same_literal(a, b) for a, b in zip(stored, given, strict=True))
    if given is None or isinstance(given, (Ref, Tag)) or not isinstance(given, (int, float)):
        return True
    if isinstance(stored, (list, tuple)):
        return len(stored) == 1 and _same_literal(stored[0], given)
    return not isinstance(stored, (int, float)) or stored == given or (stored != stored and given != given)
