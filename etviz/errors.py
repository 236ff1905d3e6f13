"""The exceptions that users of etviz see.

Every message says which file or argument is at fault, what is wrong with it, and what to do about it.
All of them can be pickled, so they also arrive whole from a worker process.
"""

from __future__ import annotations

import functools
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from etviz.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

P = ParamSpec("P")
R = TypeVar("R")


_LONGEST = 1000
"""Characters of a problem that a message shows."""


def _shortened(text: str) -> str:
    """A problem that quotes a damaged file may be as long as the file, and a name that no file has of any length."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def _sentence(text: str) -> str:
    """Give `text` a full stop if it ends without punctuation."""
    text = text.strip()
    return text if not text or text[-1] in ".!?" else text + "."


class EtvizError(Exception):
    """Base of everything that etviz raises on purpose."""


class ArtifactError(EtvizError):
    """A file can't be read as what it should be.

    Parameters
    ----------
    path
        The file, as the caller named it.
    problem
        What is wrong with it, one sentence without the file's name.
    advice
        What to do about it, one sentence.
    where
        The place in the file: a byte offset, or the name of a member or field.
    found, expected
        What stands there, and what should.

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


class PairingError(EtvizError):
    """Runtime values can't be matched with the reference: the files belong to different programs or runs.

    Parameters
    ----------
    problem
        What does not fit, one sentence.
    advice
        What to do about it, one sentence.
    """

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(problem, advice)
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return printable(" ".join(filter(None, (_sentence(_shortened(self.problem)), _sentence(self.advice)))))


class ExecutionError(EtvizError):
    """The child process that runs a program failed.

    Parameters
    ----------
    problem
        What happened, one sentence.
    exit_status
        The process's exit status, negative for a signal, None if it never ended by itself.
    last_lines
        The last lines that it wrote.
    """

    def __init__(self, problem: str, exit_status: int | None = None, last_lines: Sequence[str] = ()) -> None:
        super().__init__(problem, exit_status, tuple(last_lines))
        self.problem = problem
        self.exit_status = exit_status
        self.last_lines = tuple(last_lines)

    def __str__(self) -> str:
        text = _sentence(self.problem)
        if self.last_lines:
            text += " Its last lines:\n" + "\n".join(f"  {line}" for line in self.last_lines)
        return printable(text)


class UsageError(EtvizError, ValueError):
    """An argument has a value that makes no sense here."""

    def __str__(self) -> str:
        return printable(_shortened(super().__str__()))


class UnexpectedError(EtvizError):
    """Something failed in a way that etviz doesn't know; `__cause__` is what.

    Parameters
    ----------
    step
        What was being done, as a part of a sentence: "reading the artifacts".
    problem
        What happened.
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


@contextmanager
def doing(step: str) -> Generator[None]:
    """Let whatever fails inside be an error of etviz that names the step.

    Raises
    ------
    EtvizError
        The one that was raised, or an `UnexpectedError` in place of another exception.
    """
    try:
        yield
    except EtvizError:
        raise
    except Exception as error:
        raise _unexpected(step, error) from error


def during(step: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let whatever fails in a function be as in `doing`; but to call it with wrong arguments is a TypeError."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
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


def _unexpected(step: str, error: Exception) -> UnexpectedError:
    if isinstance(error, MemoryError):
        return UnexpectedError(step, "there is not enough memory")
    text = str(error).strip().splitlines()
    return UnexpectedError(step, f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__)
