"""Rewrites a method so that calls write every value once, as in the reference's graph."""

from __future__ import annotations

from dataclasses import replace

from etviz.artifacts.program.program import Instruction, Method, ProgramValue
from etviz.graph.language_operators import LANGUAGE_OPERATORS, LanguageOperator


def written_once(method: Method) -> Method:
    if not any(_known(instruction) for instruction in method.instructions):
        return method
    values, current = list(method.values), dict[int, int]()
    calls: list[Instruction] = []

    def now(value: int) -> int:
        held = method.values[value]
        if held.kind.endswith("tensor_list") and any(element in current for element in held.value):
            values.append(replace(held, value=tuple(current.get(element, element) for element in held.value)))
            return len(values) - 1
        return current.get(value, value)

    for call in method.instructions:
        args, inputs = tuple(map(now, call.args)), tuple(map(now, call.inputs))
        outputs, known = call.outputs, _known(call)
        if known is not None and known.writes:
            outputs = call.outputs[: known.results]
            for name in known.writes:
                old = call.args[known.names.index(name)]
                values.append(_anew(method.values[old]))
                current[old] = len(values) - 1
                outputs = (*outputs, current[old])
        calls.append(replace(call, args=args, inputs=inputs, outputs=outputs))
    left = tuple(current.get(value, value) for value in method.outputs)
    return replace(method, values=tuple(values), instructions=tuple(calls), outputs=left)


def _known(call: Instruction) -> LanguageOperator | None:
    return LANGUAGE_OPERATORS.get(f"{str(call.operator).partition('.')[0].replace('::', '.')}.default")


def _anew(value: ProgramValue) -> ProgramValue:
    spec = value.tensor
    return value if spec is None else replace(value, value=replace(spec, data_index=0, external=False, name=""))
