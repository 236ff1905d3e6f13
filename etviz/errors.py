"""The exceptions that users of etviz see.

Every message names the file or argument, the problem, and the next step. All of them can be pickled, so they also
arrive whole from a worker process.
"""

from __future__ import annotations

import functools
import operator
import os
import re
import sys
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from etviz.text import one_line, printable

P = ParamSpec("P")
R = TypeVar("R")


_PACKAGE: Final = re.escape(str(Path(__file__).parent))
_FOREIGN: Final = re.compile(rf"^{_PACKAGE}|[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python|^<(?!ipython)")
_LONGEST = 1000


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def _cell(file: str) -> str:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(file)
    return f"Cell {name[1]}" if name else file


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?" else text + "."


class EtvizError(Exception):
    """Base of everything that etviz raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        lines = [f"\x1b[31m{type(self).__name__}\x1b[0m: {printable(self)}"]
        frames = [frame for frame in traceback.extract_tb(self.__traceback__) if not _FOREIGN.search(frame.filename)]
        if frames:
            lines += [
                "",
                f"{_cell(frames[-1].filename)}, line {frames[-1].lineno}",
                f"    {printable(frames[-1].line)}",
            ]
        return [*lines, "", "The trace: import sys, traceback; traceback.print_exception(sys.last_value)"]


class ArtifactError(EtvizError):
    """A file can't be read.

    Parameters
    ----------
    path
        As the caller named it.
    problem
        One sentence without the file's name.
    advice
        The next step, one sentence.
    where
        A byte offset, or the name of a member or field.
    found, expected
        Content.

    Examples
    --------
    >>> print(ArtifactError("run.etdp", "the file is empty", "run the model again"))
    run.etdp: the file is empty. Run the model again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        problem: str,
        advice: str = "",
        *,
        where: int | str | None = None,
        found: object = None,
        expected: object = None,
    ) -> None:
        super().__init__(path, problem, advice)
        self.path = os.fspath(path)
        self.problem = problem
        self.advice = advice
        self.where = where
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        text = f"{_shortened(self.path)}: {_sentence(_shortened(self.problem))}"
        if self.advice:
            text += " " + _sentence(self.advice[0].upper() + self.advice[1:])
        return printable(text)


class FileChangedError(ArtifactError):
    """A file was cut or written to after it was opened."""


class PairingError(EtvizError):
    """Runtime values can't be matched with the reference: the files belong to different programs or runs.

    `problem` and `advice` are one sentence each.
    """

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(problem, advice)
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        advice = _sentence(self.advice[:1].upper() + self.advice[1:])
        return printable(" ".join(filter(None, (_sentence(_shortened(self.problem)), advice))))


class ExecutionError(EtvizError):
    """The child process that runs a program failed.

    Parameters
    ----------
    problem
        One sentence.
    exit_status
        Negative for a signal, None if the process was stopped.
    last_lines
        Of the process's output.
    """

    def __init__(self, problem: str, exit_status: int | None = None, last_lines: Sequence[str] = ()) -> None:
        super().__init__(problem, exit_status, tuple(last_lines))
        self.problem = problem
        self.exit_status = exit_status
        self.last_lines = tuple(last_lines)

    def __str__(self) -> str:
        text = _sentence(self.problem)
        if self.last_lines:
            text += " Its last lines:\n" + "\n".join(f"  {_shortened(line)}" for line in self.last_lines)
        return printable(text)


class BackendRefusedError(EtvizError):
    """A piece can't be lowered or run alone; `missing` if this machine lacks the backend."""

    def __init__(self, backend: str, step: str, problem: str, *, missing: bool = False) -> None:
        super().__init__(backend, step, problem)
        self.backend = backend
        self.step = step
        self.problem = problem
        self.missing = missing

    def __str__(self) -> str:
        if self.step == "build":
            return (
                f"etviz can't rebuild this part of the program to run it alone: {self.problem.rstrip('.')}. "
                f"That is a fault of etviz, not of {self.backend}. Zoom into another row; the gap of this one is valid."
            )
        verb = "lower" if self.step != "run" else "run"
        text = f"{self.backend} can't {verb} this part of the program alone: {self.problem.rstrip('.')}. "
        if not self.missing:
            return text + "Zoom into another row; the gap of this one is valid."
        if self.step == "run":
            return text + (
                "Install a runtime that has this backend for this processor, or load values that the backend logs "
                "inside, or that a probe returns (etviz.probe)."
            )
        return text + "Install what the backend needs to lower a model here, or zoom into another row."


class UsageError(EtvizError, ValueError):
    """An argument has a value that makes no sense here."""

    def __str__(self) -> str:
        return printable(_shortened(super().__str__()))


class UnexpectedError(EtvizError):
    """An unexpected failure; `__cause__` is the original error.

    `step` is a part of a sentence: "reading the artifacts".
    """

    def __init__(self, step: str, problem: str) -> None:
        super().__init__(step, problem)
        self.step = step
        self.problem = problem

    def __str__(self) -> str:
        return printable(
            f"Something unexpected happened while {self.step} ({_sentence(self.problem).rstrip('.')}). "
            "What was given may be damaged in a way that is not known; if it is not, please report it with the trace."
        )


def in_a_line(error: Exception) -> str:
    """For a cell of a table.

    Examples
    --------
    >>> in_a_line(ExecutionError("The child process failed", 1, ["Traceback:", "RuntimeError: no such kernel"]))
    'The child process failed. RuntimeError: no such kernel'
    """
    if isinstance(error, ExecutionError):
        return _shortened(one_line(" ".join((_sentence(error.problem), *error.last_lines[-1:]))))
    return _shortened(one_line(error if isinstance(error, EtvizError) else f"{type(error).__name__}: {error}"))


@contextmanager
def doing(step: str) -> Generator[None]:
    """Turn any exception but an `EtvizError` into an `UnexpectedError` that names the step.

    A missing permission becomes an `ArtifactError` that names the file.
    """
    try:
        yield
    except EtvizError:
        raise
    except Exception as error:
        raise _unexpected(step, error) from error


def during(step: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`checked`, with failures as in `doing`; unknown arguments raise `TypeError`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        check = _checks(function)

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                check(args, kwargs)
                return function(*args, **kwargs)
            except EtvizError:
                raise
            except Exception as error:
                here = error.__traceback__
                if isinstance(error, TypeError) and here is not None and here.tb_next is None:
                    raise
                raise _unexpected(step, error) from error

        return guarded

    return decorate


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments of other types than a function's annotations, where these are plain ones, by a `UsageError`.

    NaN is refused everywhere, and a ``timeout`` is positive.

    Examples
    --------
    >>> checked(execute)(timeout=float("nan"))  # doctest: +SKIP
    etviz.errors.UsageError: timeout must be a positive number of seconds or None, found nan
    """
    check = _checks(function)

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args, kwargs)
        return function(*args, **kwargs)

    return guarded


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, Real) and float(value) == float(value)
    except OverflowError:
        return False


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"))


_PLAIN: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "None": ("None", lambda value: value is None),
    "int": ("a whole number", _is_whole),
    "float": ("a number", _is_number),
    "str": ("a text", lambda value: isinstance(value, str)),
    "bool": ("True or False", _is_flag),
    "PathLike": ("a path", lambda value: isinstance(value, (str, os.PathLike))),
    "Path": ("a path", lambda value: isinstance(value, os.PathLike)),
    "os.PathLike[str]": ("a path", lambda value: isinstance(value, os.PathLike)),
    "Loss": ("a function", callable),
}
_TIMEOUT: Final = ("a positive number of seconds", lambda value: _is_number(value) and value > 0)


def _checks(function: Callable[..., Any]) -> Callable[[Sequence[Any], Mapping[str, Any]], None]:
    names = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    kinds = {}
    for name in names:
        parts = str(function.__annotations__.get(name, "")).split(" | ")
        if all(part in _PLAIN for part in parts):
            kinds[name] = [_TIMEOUT if name == "timeout" and part == "float" else _PLAIN[part] for part in parts]

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if any(name not in names for name in kwargs):
            return  # the call itself is a TypeError
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in kinds and not any(fits(value) for _, fits in kinds[name]):
                expected = " or ".join(dict.fromkeys(word for word, _ in kinds[name]))
                raise UsageError(f"{name} must be {expected}, found {told(value)}")

    return check


def told(value: Any) -> str:
    """Never calls a `repr` that is not Python's."""
    if isinstance(value, (str, bytes, float, int)) or value is None:
        return repr(value[:40] if isinstance(value, (str, bytes)) else value)
    return type(value).__name__


def _unexpected(step: str, error: Exception) -> EtvizError:
    if isinstance(error, PermissionError) and isinstance(error.filename, (str, bytes)):
        return ArtifactError(os.fsdecode(error.filename), "there is no permission for it", "check its permissions")
    if isinstance(error, MemoryError):
        return UnexpectedError(step, "there is not enough memory")
    text = str(error).strip().splitlines()
    return UnexpectedError(step, f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__)
