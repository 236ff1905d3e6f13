"""Reads the instructions of a program's method, and tells what each reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from etviz.artifacts.methods import Instruction, ProgramValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etviz.artifacts.flatbuffer import Tables

# A loop's body adds a row to its result with this operator: it writes its first argument.
_APPEND: Final = "executorch_prim::et_copy_index.tensor"
_KINDS: Final = ("none", "kernel", "delegate", "move", "jump", "free")


class _Stored(NamedTuple):
    """An instruction's content as the file has it."""

    number: int = -1
    args: tuple[int, ...] = ()


def read_instructions(
    chains: Tables,
    values: Sequence[ProgramValue],
    inputs: Sequence[int],
    operators: Sequence[str],
    delegates: int,
) -> tuple[Instruction, ...]:
    """Read the instructions of all chains.

    Parameters
    ----------
    chains
        The Chain tables of one method.
    values, inputs, operators
        The method's values, input ids and operator names.
    delegates
        How many delegates the method has.
    """
    vectors = chains.vectors(2)
    tables = vectors.tables()
    kinds = tables.scalar(0, "<u1")
    stored = _read_stored(tables, kinds)
    written = {row for row, value in enumerate(values) if _initialized(value)} | set(inputs)
    result: list[Instruction] = []
    chain = np.repeat(np.arange(len(chains)), vectors.length).tolist()
    index = (np.arange(len(tables)) - np.repeat(vectors.ends() - vectors.length, vectors.length)).tolist()
    for row, (number, item) in enumerate(zip(kinds.tolist(), stored, strict=True)):
        kind = _KINDS[number] if number < len(_KINDS) else f"unknown({number})"
        numbers = {"kernel": len(operators), "delegate": delegates}.get(kind)
        if not _exists(item, len(values), numbers):
            problem = "an instruction names something that does not exist"
            raise tables.buffer.damaged(problem, int(tables.at[row]))
        operator = operators[item.number] if kind == "kernel" else None
        read, wrote = _flow(kind, operator, item.args, values, written)
        written.update(wrote)
        written.update(item for value in wrote for item in _elements(values[value]))
        result.append(
            Instruction(
                chain=chain[row],
                index=index[row],
                kind=kind,
                operator=operator,
                args=item.args,
                inputs=read,
                outputs=wrote,
                delegate=item.number if kind == "delegate" else None,
                target=item.number if kind == "jump" else None,
            )
        )
    return tuple(result)


def _exists(item: _Stored, values: int, numbers: int | None) -> bool:
    """Tell whether an instruction only names values, and an operator or delegate, that there are."""
    named = all(0 <= value < values for value in item.args)
    return named and (numbers is None or 0 <= item.number < numbers)


def _read_stored(tables: Tables, kinds: np.ndarray) -> list[_Stored]:
    """Read the content of every instruction: its table's number, and the value ids."""
    stored = [_Stored()] * len(tables)
    contents = tables.table(1)
    for number in np.unique(kinds).tolist():
        rows = np.flatnonzero(kinds == number)
        part = contents.take(rows)
        first = part.scalar(0, "<i4").tolist()
        kind = _KINDS[number] if number < len(_KINDS) else ""
        if kind in ("kernel", "delegate"):
            items = [_Stored(*pair) for pair in zip(first, part.vectors(1, "<i4").tuples(), strict=True)]
        elif kind == "move":
            second = part.scalar(1, "<i4").tolist()
            items = [_Stored(-1, pair) for pair in zip(first, second, strict=True)]
        elif kind == "jump":
            target = part.scalar(1, "<i4").tolist()
            items = [_Stored(to, (condition,)) for condition, to in zip(first, target, strict=True)]
        elif kind == "free":
            items = [_Stored(-1, (value,)) for value in first]
        else:
            continue
        for row, item in zip(rows.tolist(), items, strict=True):
            stored[row] = item
    return stored


def _elements(value: ProgramValue) -> tuple[int, ...]:
    """Ids of the tensors of a list: an operator that writes the list writes these."""
    return value.value if value.kind == "tensor_list" else ()


def _initialized(value: ProgramValue) -> bool:
    """Tell whether a value means something before the first instruction."""
    tensor = value.tensor
    return tensor is None or tensor.data_index > 0 or tensor.external


def _flow(
    kind: str,
    operator: str | None,
    args: tuple[int, ...],
    values: Sequence[ProgramValue],
    written: set[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split arguments into what is read and what is written.

    A delegate's outputs are the last arguments that nothing has written before.
    """
    if operator == _APPEND:
        return args, args[:1]
    if kind == "kernel":
        return _kernel_flow(args, values)
    if kind == "delegate":
        count = next((n for n, value in enumerate(reversed(args)) if value in written), len(args))
        return args[: len(args) - count], args[len(args) - count :]
    if kind == "move":
        return args[:1], args[1:]
    return args, ()


def _kernel_flow(args: tuple[int, ...], values: Sequence[ProgramValue]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split a kernel call's arguments.

    The emitter stores the result after the operator's own arguments: the `out` argument again, a list of
    all of several `out` arguments, or, for an operator on symbolic numbers, a value of its own.
    """
    if not args:
        return (), ()
    *own, result = args
    if own and own[-1] == result:
        return tuple(own[:-1]), (result,)
    value = values[result]
    if value.kind == "tensor_list":
        parts = value.value
        if parts and tuple(own[-len(parts) :]) == parts:
            return tuple(own[: -len(parts)]), parts
        if own and values[own[-1]].kind == "tensor_list" and values[own[-1]].value == parts:
            return tuple(own[:-1]), (own[-1],)
    return tuple(own), (result,)
