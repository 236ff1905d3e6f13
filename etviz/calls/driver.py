"""A driver: how a program is called with token ids."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import UsageError
from etviz.graph.uses import is_stateful

if TYPE_CHECKING:
    import torch

    from etviz.artifacts.program.program import Method, Program
    from etviz.graph.ir import Graph, Input

Make = Callable[[Sequence[int], int], Sequence[Any]]

_TOKENS: Final = ("tokens", "token", "input_ids", "ids", "decoder_input_ids")
_OPTIONS: Final = ("attn_options", "options")
_ROOMS: Final = ("get_max_context_len", "get_max_seq_len")
_ENDS: Final = ("get_eos_ids", "get_eos_id")
_INTEGERS: Final = ("int64", "int32")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a program.

    Attributes
    ----------
    ids
        The token ids that it feeds.
    position
        Position of the first of them in the sequence.
    method
        Empty for that of the driver.
    """

    inputs: tuple[Any, ...]
    ids: tuple[int, ...]
    position: int
    method: str = ""


@dataclass(frozen=True, slots=True)
class Driver:
    """How a program is called.

    Attributes
    ----------
    make
        Makes the arguments of a call.
    chunk
        Maximum number of ids of a call.
    room
        Maximum number of positions; None where the program does not say it.
    stateless
        True if each call takes the whole sequence.
    rows
        Number of sequences that a call takes side by side; all are given the same ids.
    """

    make: Make
    chunk: int = 1
    room: int | None = None
    stateless: bool = False
    rows: int = 1

    def call(self, ids: Sequence[int], position: int) -> Call:
        """The call that feeds some ids.

        `UsageError` if they exceed the room, or `make` fails or returns no sequence.
        """
        end = position + len(ids)
        if self.room is not None and end > self.room:
            raise UsageError(f"the sequence needs {end} positions, and the program has room for {self.room}")
        try:
            inputs = self.make(list(ids), position)
        except Exception as error:
            given = f"(ids={list(ids)[:4]}{'…' if len(ids) > len(ids[:4]) else ''}, position={position})"
            raise UsageError(f"driver: it fails on {given}: {type(error).__name__}: {error}") from error
        if not isinstance(inputs, (tuple, list)):
            raise UsageError(f"driver: it must return a tuple of the arguments, found {type(inputs).__name__}")
        return Call(tuple(inputs), tuple(ids), position)

    def prefill(self, ids: Sequence[int], chunk: int | None = None) -> Iterator[Call]:
        """The calls that feed a prompt, `chunk` ids at a time (the most that the program takes if None).

        Raises `UsageError` as `call`, and if `chunk` is not between 1 and the program's.
        """
        size = self.chunk if chunk is None else chunk
        if not 1 <= size <= self.chunk:
            raise UsageError(f"prefill={size}: a call of this program takes 1 to {self.chunk} tokens")
        for start in range(0, len(ids), size):
            yield self.step(ids[: start + size], start)

    def step(self, ids: Sequence[int], position: int) -> Call:
        """The ids from a position on; all where no state is kept."""
        return self.call(ids, 0) if self.stateless else self.call(ids[position:], position)


def of_function(make: Driver | Make, chunk: int | None = None) -> Driver:
    if isinstance(make, Driver):
        return make
    if not callable(make):
        raise UsageError(f"driver must be a function (ids, position) -> arguments, found {type(make).__name__}")
    return Driver(make, chunk or 1)


def of_module(model: torch.nn.Module, longest: int) -> Driver:
    """The driver of a model that is not lowered yet, by the names of its parameters; `UsageError` for other names.

    With a position, it feeds one token a call; else each call takes the whole sequence, filled up to `longest`.
    """
    import torch

    parameters = [
        parameter
        for parameter in inspect.signature(model.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    names = [parameter.name for parameter in parameters]
    said = f"{type(model).__name__}.forward({', '.join(names)})"
    paste = _paste(
        ["torch.tensor([ids])", *("torch.tensor([position])" if _names_position(n) else n for n in names[1:])]
    )
    if not names or names[0] not in _TOKENS:
        raise UsageError(f"{said}: no driver is known for these parameters; {paste}")
    if len(names) == 1:
        return Driver(
            lambda ids, _: (torch.tensor([[*ids, *[0] * (longest - len(ids))]]),), longest, longest, stateless=True
        )
    nested = names[1] in _OPTIONS
    if not nested and not _names_position(names[1]):
        raise UsageError(f"{said}: no driver is known for these parameters; {paste}")
    if unknown := [parameter.name for parameter in parameters[2:] if parameter.default is parameter.empty]:
        raise UsageError(f"{said}: what {', '.join(unknown)} take is not known; {paste}")

    def make(ids: Sequence[int], position: int) -> tuple[Any, ...]:
        at = torch.tensor([position])
        return torch.tensor([list(ids)]), {"input_pos": at} if nested else at

    return Driver(make)


def room_of(program: Program) -> int | None:
    return next(
        (numbers[0] for name in _ROOMS if len(numbers := _numbers(program, name)) == 1 and numbers[0] > 0), None
    )


def ends_of(program: Program) -> list[int]:
    return [token for name in _ENDS for token in _numbers(program, name)]


def _numbers(program: Program, name: str) -> list[int]:
    methods = [method for method in program.methods if method.name == name]
    values = [method.values[at].value for method in methods for at in method.outputs]
    return [value for value in values if isinstance(value, int) and not isinstance(value, bool)]


def of_program(
    graph: Graph, method: Method | None, room: int | None = None, heard: Sequence[torch.Tensor] = ()
) -> Driver:
    """The driver of a lowered program, by its inputs; `UsageError` for unknown ones.

    The tokens are the integer tensor of shape [sequences, n]; the position is the other integer input: a number, a
    tensor with one element, or one with an element for each token. `method` knows the bounds of dynamic shapes. `heard`
    are an encoder's outputs, which go to the floating inputs of their types and shapes, in order.
    """
    inputs = graph.user_inputs()
    tokens = [placeholder for placeholder in inputs if _is_integer(placeholder) and len(_shape(placeholder)) == 2]
    given = _places(inputs, heard)
    others = [item for place, item in enumerate(inputs) if item not in tokens and place not in given]
    fits = len(tokens) == 1 and len(others) <= 1 and all(map(_is_position, others)) and bool(heard) == bool(given)
    if not fits:
        said = ", ".join(f"{_type(placeholder)} {list(placeholder.shape)}" for placeholder in heard)
        said = f", its encoder gives ({said})" if heard else ""
        raise UsageError(
            f"the program takes ({', '.join(map(_described, inputs))}){said}: no driver is known; "
            f"{_paste([_argument(placeholder) for placeholder in inputs])}"
        )
    at, whole = inputs.index(tokens[0]), len(inputs)
    rows, length = _shape(tokens[0])
    rows = rows if isinstance(rows, int) else 2
    bound = _bound(method, at) if isinstance(length, str) else length
    chunk = bound or 1
    stateless = not others and not is_stateful(graph)
    room = room or (chunk if stateless else None)
    each = bool(others) and _shape(others[0]) == (length,) and length != 1
    scalar = bool(others) and others[0].meta is not None and not others[0].meta.shape
    plain = bool(others) and others[0].meta is None
    dtypes = [placeholder.meta.dtype if placeholder.meta is not None else "int64" for placeholder in inputs]

    def make(ids: Sequence[int], position: int) -> list[Any]:
        import torch

        padded = [*ids, *[0] * (chunk - len(ids))] if isinstance(length, int) else list(ids)
        values: list[Any] = [None] * whole
        values[at] = torch.tensor([padded] * rows, dtype=getattr(torch, dtypes[at]))
        for place, value in given.items():
            values[place] = value
        if others:
            start = list(range(position, position + len(padded))) if each else position if scalar else [position]
            other = inputs.index(others[0])
            values[other] = position if plain else torch.tensor(start, dtype=getattr(torch, dtypes[other]))
        return values

    return Driver(make, chunk, room, stateless, rows)


def _places(inputs: Sequence[Input], heard: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    chosen: dict[int, torch.Tensor] = {}
    for value in heard:
        fitting = (place for place, item in enumerate(inputs) if place not in chosen and _takes(item, value))
        chosen |= {place: value for place in [next(fitting, None)] if place is not None}
    return chosen


def _takes(placeholder: Input, value: torch.Tensor) -> bool:
    meta = placeholder.meta
    if meta is None or _is_integer(placeholder):
        return False
    return meta.dtype == _type(value) and meta.takes(value.shape)


def _type(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _names_position(name: str) -> bool:
    return "pos" in name.lower()


def _shape(placeholder: Input) -> tuple[int | str, ...]:
    return placeholder.meta.shape if placeholder.meta is not None else ()


def _is_integer(placeholder: Input) -> bool:
    return placeholder.meta is not None and placeholder.meta.dtype in _INTEGERS


def _is_position(placeholder: Input) -> bool:
    return placeholder.meta is None or (_is_integer(placeholder) and len(_shape(placeholder)) < 2)


def _paste(arguments: Sequence[str]) -> str:
    return f"give a driver, for example\n    driver=lambda ids, position: ({', '.join(arguments)},)"


def _argument(placeholder: Input) -> str:
    shape = _shape(placeholder)
    if placeholder.meta is None:
        return "position"
    value = "[ids]" if len(shape) == 2 else "[position]" if shape else "position"
    zeros = [n if isinstance(n, int) else 1 for n in shape]
    made = f"tensor({value}" if _is_integer(placeholder) else f"zeros({zeros}"
    return f"torch.{made}, dtype=torch.{placeholder.meta.dtype})"


def _described(placeholder: Input) -> str:
    meta = placeholder.meta
    return f"{placeholder.name}: {'int' if meta is None else f'{meta.dtype} {list(meta.shape)}'}"


def _bound(method: Method | None, at: int) -> int | None:
    spec = method.values[method.inputs[at]].tensor if method is not None else None
    return spec.sizes[1] if spec is not None and len(spec.sizes) == 2 and spec.dynamism != "dynamic_unbound" else None
