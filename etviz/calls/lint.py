"""`lint_calls`: recorded calls compared with a driver's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils import _pytree as pytree

from etviz.artifacts.call_file import CallLog, RecordedCall, read_calls
from etviz.artifacts.program.program import read_program
from etviz.artifacts.scratch import Scratch
from etviz.calls.driver import of_function, of_program, room_of
from etviz.calls.logits import vocabulary_of
from etviz.errors import UsageError, checked
from etviz.evidence.subject import subject_of
from etviz.graph.ir import Ref
from etviz.graph.quantize_ops import grid_of, is_quantize

if TYPE_CHECKING:
    import pandas as pd

    from etviz.calls.driver import Driver, Make
    from etviz.graph.ir import Graph

COLUMNS: Final = ("call", "what", "found", "expected", "level")
ERROR, NOTE = "error", "note"


class WrongCall(NamedTuple):
    """A difference of a call from the expected one.

    `call` is its number, from 0; `what` the input, or ``inputs``, ``tokens``, ``reset``, ``window``, ``recording``.
    """

    call: int
    what: str
    found: str
    expected: str
    level: str = ERROR


@dataclass(frozen=True, slots=True)
class Form:
    """The inputs of a driver's calls, by place.

    `positions` depend on the position; `padded` is the number of ids that every call has, 0 where it varies.
    """

    names: tuple[str, ...]
    tokens: int
    positions: tuple[int, ...]
    padded: int

    @classmethod
    def of(cls, driver: Driver) -> Form:
        """Find out by calls with other ids and other positions.

        `UsageError` if no input, or more than one, depends on the ids.
        """
        names, base = _flat(driver.call([1], 1).inputs)
        other, later = _flat(driver.call([2], 1).inputs)[1], _flat(driver.call([1], 2).inputs)[1]
        ids = [at for at, (one, two) in enumerate(zip(base, other, strict=True)) if not _same(one, two)]
        if len(ids) != 1 or not isinstance(base[ids[0]], torch.Tensor):
            raise UsageError(f"driver: {len(ids)} of its {len(base)} arguments depend on the ids, expected one tensor")
        at = [place for place, (one, two) in enumerate(zip(base, later, strict=True)) if not _same(one, two)]
        size = base[ids[0]].shape[-1] if base[ids[0]].ndim else 1
        return cls(tuple(names), ids[0], tuple(place for place in at if place != ids[0]), size if size > 1 else 0)

    def named(self, names: Sequence[str]) -> Form:
        plain = [name if not name.isdigit() else f"input {name}" for name in self.names]
        fits = len(names) == len(self.names) and all(name.isdigit() for name in self.names)
        return replace(self, names=tuple(names) if fits else tuple(plain))


def _flat(arguments: Any) -> tuple[list[str], list[Any]]:
    leaves, _ = pytree.tree_flatten_with_path(tuple(arguments))
    return [str(getattr(path[-1], "key", getattr(path[-1], "idx", ""))) for path, _ in leaves], [
        value for _, value in leaves
    ]


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return one.shape == two.shape and bool(torch.equal(one, two))
    return type(one) is type(two) and one == two


@dataclass(slots=True)
class _Sequence:
    prompts: list[list[int]] = field(default_factory=list)
    fed: list[int] = field(default_factory=list)
    number: int = -1

    def begins(self, ids: Sequence[int]) -> bool:
        following = self.prompts[self.number + 1] if self.number + 1 < len(self.prompts) else None
        if following is None:
            return False
        past = self.prompts[self.number] if self.number >= 0 else []
        if len(self.fed) < len(past):
            return False
        length = min(len(ids), len(following))
        return list(ids[:length]) == following[:length]


@checked
def lint_calls(
    calls: Any,
    *,
    driver: Driver | Make | None = None,
    program: Any = None,
    prompts: Sequence[Sequence[int]] | None = None,
    method: str | None = None,
) -> pd.DataFrame:
    """Compare recorded calls with a driver's.

    Each call's token ids are taken as they are. Position, mask, shapes and dtypes are compared with the driver's for
    the same ids at the position that follows from the calls before; after a difference the found position counts too.

    Parameters
    ----------
    calls
        The folder of a recording, its file, or a list with the arguments of each call.
    driver
        A function ``(ids, position) -> arguments``, or an `etviz.Driver`; by default what the program's inputs tell.
    program
        The `.pte` with its record or ETRecord, its folder, or an Inspection. It tells the vocabulary, the room, and
        the range of quantized inputs.
    prompts
        The token ids of each prompt, if they are independent of one another: each must then begin at position 0.
    method
        Name, if the calls have several.

    Returns
    -------
    DataFrame
        A row for each finding: ``call`` (its number), ``what`` (the input), ``found``, ``expected``, and ``level``:
        ``error``, or ``note`` for what may be intended.

    Raises
    ------
    UsageError
        If neither a driver nor a program is given, no driver fits, there are no calls, or they belong to another
        program.
    ArtifactError
        If the recording can't be read.

    Examples
    --------
    >>> etviz.lint_calls("calls", program="model.pte")  # doctest: +SKIP
       call       what found expected  level
    0     7  input_pos     6        7  error
    """
    import pandas as pd

    if driver is None and program is None:
        raise UsageError("give driver= or program=, to tell how the program should be called")
    recording = _recording(calls)
    graph: Graph | None = None
    room = None
    with Scratch() as scratch:
        if program is not None:
            subject = subject_of(program, None, Path(scratch), method)
            graph, read = subject.graph(), read_program(subject.pte)
            method, room = subject.method, room_of(read)
            driver = driver or of_program(graph, read.method(subject.method), room)
    chosen = of_function(driver) if driver is not None else None
    method = method or (recording.calls[0].method if recording.calls else None)
    method_calls = [(number, call) for number, call in enumerate(recording.calls) if call.method == method]
    if not method_calls or chosen is None:
        names = ", ".join(sorted({call.method for call in recording.calls})) or "none"
        raise UsageError(f"calls: there is no call of the method {method!r}; methods of the recording: {names}")
    form = Form.of(chosen).named([placeholder.name for placeholder in graph.user_inputs()] if graph is not None else [])
    limits = _Ranges(
        vocabulary_of(graph) if graph is not None else None,
        chosen.room if chosen.room is not None else room,
        _ranges(graph) if graph is not None else {},
    )
    wrong = list(_findings(method_calls, chosen, form, limits, [list(prompt) for prompt in prompts or ()]))
    if recording.cut:
        wrong.append(WrongCall(len(recording.calls), "recording", recording.cut, "a whole recording"))
    return pd.DataFrame(wrong, columns=list(COLUMNS))


@dataclass(frozen=True, slots=True)
class _Ranges:
    vocabulary: int | None
    room: int | None
    ranges: dict[int, tuple[float, float]]


def _recording(calls: Any) -> CallLog:
    if isinstance(calls, CallLog):
        return calls
    if not isinstance(calls, (list, tuple)):
        return read_calls(calls)
    if calls:
        made = [RecordedCall("forward", tuple(_flat(call)[1]), at == 0) for at, call in enumerate(calls)]
        return CallLog("the list", tuple(made))
    raise UsageError("calls: the list is empty")


def _findings(
    calls: Sequence[tuple[int, RecordedCall]], driver: Driver, form: Form, limits: _Ranges, prompts: list[list[int]]
) -> Iterator[WrongCall]:
    _require_same_program(calls, form)
    sequence = _Sequence(prompts)
    fed: int | None = 0  # since the program was loaded or reset
    position: int | None = 0  # after the call before
    generated = False
    for place, (number, call) in enumerate(calls):
        notes = [note for note in call.notes if note.startswith("generate")]
        if generated and notes and not call.fresh:
            yield WrongCall(number, "reset", "a second generate without a reset", "reset() between prompts", NOTE)
        generated = generated or bool(notes)
        if unread := _unread(call, form):
            yield WrongCall(number, *unread)
            fed = position = None
            continue
        tokens = call.inputs[form.tokens]
        following = calls[place + 1][1] if place + 1 < len(calls) else None
        ids = _ids(tokens, call, following, form)
        yield from _values(number, call, form, limits)
        known = _position(call, form)
        begins = sequence.begins(ids)
        if call.fresh or begins or (known == 0 and not driver.stateless):
            if begins and (known not in (0, None) or (known is None and place and not call.fresh)):
                said = f"none before prompt {sequence.number + 1}"
                yield WrongCall(number, "reset", said, "a reset, and position 0, for another prompt")
            sequence.number += begins or call.fresh
            sequence.fed, fed, position = [], 0, 0
        yield from _prompted(number, form, ids, sequence)
        sequence.fed += ids
        if driver.stateless:
            fed = position = 0
        begin = known if known is not None else position or 0
        end = begin + len(ids)
        if limits.room is not None and end > limits.room:
            yield WrongCall(number, "window", f"positions up to {end - 1}", f"at most {limits.room - 1}")
        elif form.padded == 0 and 1 < driver.chunk < len(ids):
            yield WrongCall(number, form.names[form.tokens], f"{len(ids)} tokens", f"at most {driver.chunk}")
        yield from _compared(number, call, driver, form, ids, begin if position is None or begin == fed else position)
        fed, position = None if fed is None else fed + len(ids), end


def _unread(call: RecordedCall, form: Form) -> tuple[str, str, str] | None:
    if len(call.inputs) != len(form.names):
        return "inputs", f"{len(call.inputs)} inputs", f"{len(form.names)}"
    tokens = call.inputs[form.tokens]
    if not isinstance(tokens, torch.Tensor) or tokens.is_floating_point():
        return form.names[form.tokens], _kind(tokens), "a tensor of token ids"
    return None


def _prompted(number: int, form: Form, ids: list[int], sequence: _Sequence) -> Iterator[WrongCall]:
    prompt = sequence.prompts[sequence.number] if 0 <= sequence.number < len(sequence.prompts) else []
    wanted = prompt[len(sequence.fed) : len(sequence.fed) + len(ids)]
    if ids[: len(wanted)] != wanted:
        at = next(place for place, pair in enumerate(zip(ids, wanted, strict=False)) if pair[0] != pair[1])
        said = f"token {wanted[at]}, number {len(sequence.fed) + at} of prompt {sequence.number}"
        yield WrongCall(number, form.names[form.tokens], f"token {ids[at]}", said)


def _require_same_program(calls: Sequence[tuple[int, RecordedCall]], form: Form) -> None:
    if all(_unread(call, form) for _, call in calls):
        inputs = ", ".join(map(_kind, calls[0][1].inputs))
        raise UsageError(
            f"calls: none of the {len(calls)} calls has the inputs that the driver makes ({', '.join(form.names)}); "
            f"the first one has ({inputs}): the recording belongs to another program, or the driver does"
        )


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return type(value).__name__


def _position(call: RecordedCall, form: Form) -> int | None:
    for place in form.positions:
        value = call.inputs[place]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, torch.Tensor) and not value.is_floating_point() and value.numel() and value.ndim < 2:
            return int(value.flatten()[0])
    return None


def _ids(tokens: torch.Tensor, call: RecordedCall, following: RecordedCall | None, form: Form) -> list[int]:
    """A padded call feeds ids up to where the next one goes on."""
    ids = tokens.reshape(-1, tokens.shape[-1] if tokens.ndim else 1)[0].tolist() if tokens.numel() else []
    if form.padded and following is not None and not following.fresh and len(following.inputs) == len(form.names):
        first, then = _position(call, form), _position(following, form)
        if first is not None and then is not None and 0 < then - first <= len(ids):
            return ids[: then - first]
    return ids


def _values(number: int, call: RecordedCall, form: Form, limits: _Ranges) -> Iterator[WrongCall]:
    for place, (name, value) in enumerate(zip(form.names, call.inputs, strict=True)):
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        if place == form.tokens:
            most = limits.vocabulary
            wrong = value[(value < 0) | (value >= most)] if most is not None else value[value < 0]
            if wrong.numel():
                known = f"0 to {most - 1}" if most is not None else "0 or more"
                yield WrongCall(number, name, f"token {int(wrong.flatten()[0])}", f"tokens {known}")
        if not value.is_floating_point():
            continue
        if bool(value.isnan().any()):
            yield WrongCall(number, name, f"{int(value.isnan().sum())} NaN", "numbers")
        low, high = limits.ranges.get(place, (-math.inf, math.inf))
        least, most = float(value.nan_to_num(0.0, math.inf, -math.inf).min()), float(value.nan_to_num(0.0).max())
        worst = least if least < low else most if most > high else None
        if worst is not None:
            said = "−inf" if worst == -math.inf else f"{worst:.6g}"
            level = ERROR if math.isinf(worst) or value.isinf().any() else NOTE
            yield WrongCall(number, name, said, f"{low:.6g} to {high:.6g}, the range of the quantized input", level)


def _compared(
    number: int, call: RecordedCall, driver: Driver, form: Form, ids: list[int], position: int
) -> Iterator[WrongCall]:
    try:
        expected = _flat(driver.make(ids, position))[1]
    except Exception as error:  # noqa: BLE001 - a user's function may refuse ids in its own way
        yield WrongCall(number, "inputs", f"{len(ids)} ids at position {position}", f"what the driver takes: {error}")
        return
    for place, (name, given, wanted) in enumerate(zip(form.names, call.inputs, expected, strict=True)):
        if isinstance(given, torch.Tensor) and isinstance(wanted, torch.Tensor):
            if given.dtype != wanted.dtype:
                yield WrongCall(number, name, _kind(given), _kind(wanted))
            elif given.shape != wanted.shape:
                yield WrongCall(number, name, f"shape {list(given.shape)}", f"shape {list(wanted.shape)}")
            elif place != form.tokens and not torch.equal(given, wanted):
                yield WrongCall(number, name, *_first_difference(given, wanted))
            elif place == form.tokens and not torch.equal(given[..., len(ids) :], wanted[..., len(ids) :]):
                one, two = (f"padding {each[..., len(ids) :].flatten().tolist()}" for each in (given, wanted))
                yield WrongCall(number, name, one, two, NOTE)
        elif place != form.tokens and (type(given) is not type(wanted) or given != wanted):
            yield WrongCall(number, name, f"{given}", f"{wanted}")


def _first_difference(given: torch.Tensor, wanted: torch.Tensor) -> tuple[str, str]:
    if given.numel() == 1:
        return f"{given.item():g}", f"{wanted.item():g}"
    if given.numel() <= 8 and given.ndim < 2 and not given.is_floating_point():
        return f"{given.tolist()}", f"{wanted.tolist()}"
    both = (given == wanted) | (given.isnan() & wanted.isnan())
    index = [int(at) for at in torch.nonzero(~both)[0]]
    one, two = given[tuple(index)].item(), wanted[tuple(index)].item()
    return f"{one:g} at {index} ({int((~both).sum())} elements differ)", f"{two:g}"


def _ranges(graph: Graph) -> dict[int, tuple[float, float]]:
    ranges = ((place, _range(graph, placeholder.name)) for place, placeholder in enumerate(graph.user_inputs()))
    return {place: grid for place, grid in ranges if grid is not None}


def _range(graph: Graph, name: str) -> tuple[float, float] | None:
    for node in graph.nodes:
        if name not in node.reads():
            continue
        if is_quantize(node):
            grid = grid_of(node)
            numbers = (grid.scale, grid.zero_point, grid.qmin, grid.qmax) if grid is not None else ()
            if len(numbers) == 4 and all(isinstance(each, (int, float)) for each in numbers):
                scale, zero, low, high = numbers
                return (low - zero) * scale, (high - zero) * scale
        inner = graph.inside(node)
        for argument, inside in zip(node.args, inner.user_inputs(), strict=False):
            if isinstance(argument, Ref) and argument.name == name:
                grid = _range(inner, inside.name)
                if grid is not None:
                    return grid
    return None
