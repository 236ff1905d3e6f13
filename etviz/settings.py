"""Settings of the session: ``etviz.options``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from traitlets import Bool, Enum, Float, HasTraits, List, TraitError, Unicode, default, observe

from etviz.errors import UsageError
from etviz.upstream.libraries import NAME_A_LIBRARY, load_library, set_users_libraries

TENSORS: Final = ("none", "histograms", "worst")
"""Content of a report about tensors, in ascending order.

``none``: only the metrics of the table. ``histograms``: for every row the histograms of reference, runtime and error,
their statistics and the counts of non-finite values. ``worst``: also the worst elements of the 50 worst rows, and error
maps of the 20 worst rows.
"""


LOOK_INSIDE: Final = ("auto", "always", "never")
ISOLATIONS: Final = ("auto", "always", "never")


def _choice(choices: tuple[str, ...]) -> Enum[str]:
    return Enum(choices).tag(expected=" or ".join(map(repr, choices)))


def _first(variable: str, choices: tuple[str, ...]) -> str:
    """A misspelt variable must not open what it was set to close."""
    told = os.environ.get(variable) or choices[0]
    if told not in choices:
        raise UsageError(f"the variable {variable} must be {' or '.join(choices)}, found {told!r}")
    return told


class _Flag(Bool[bool, bool | int]):
    def validate(self, obj: Any, value: Any) -> bool:
        return value if isinstance(value, bool) else self.error(obj, value)


class _Positive(Float[float, int | float]):
    def validate(self, obj: Any, value: Any) -> float:
        number = 0.0 if isinstance(value, bool) else super().validate(obj, value)
        return number if number > 0 else self.error(obj, value)


class Options(HasTraits):
    """Settings of this session. Unknown names raise `AttributeError`, invalid values `UsageError`.

    Attributes
    ----------
    embed
        True shows the report as ``text/html`` in place of the widget: it needs no kernel and survives nbconvert.
    embed_tensors
        As ``tensors`` of `Inspection.to_html`.
    isolation
        Which artifacts a child process evaluates, so that they can't end the kernel. ``auto``: files that etviz did not
        write on this machine. ``always``: all. ``never``: none. The environment variable ``ETVIZ_ISOLATION`` sets the
        initial value.
    isolation_megabytes, isolation_seconds
        Limits of that child process, beside what the size of the files adds.
    embed_megabytes
        Maximum size of an embedded report. A larger one omits tensors, or shows only the table of the worst rows.
    look_inside
        Whether `debug` and `load` zoom in the background into delegates with more than a third of the program's
        operators, or with an error beyond their precision. A zoom executes the delegate's payload in the `.pte`.
        ``auto``: only if etviz wrote the files on this machine. ``always``: for all files. ``never``: only on request.
        The environment variable ``ETVIZ_LOOK_INSIDE`` sets the initial value.
    operator_libraries
        Libraries with your operators: names of modules, or paths of shared libraries. Each registers its operators with
        torch, and their kernels with the runtime. The argument `libraries` of `debug` and `load` adds to this list.

    Examples
    --------
    >>> import etviz
    >>> etviz.options.embed
    False
    >>> etviz.options.embedd = True
    Traceback (most recent call last):
        ...
    AttributeError: etviz.options has no 'embedd'; it has embed, embed_megabytes, embed_tensors, isolation, ...
    """

    embed = _Flag(False).tag(expected="True or False")
    embed_tensors = Enum(TENSORS, "histograms").tag(expected=f"one of {', '.join(map(repr, TENSORS))}")
    isolation = _choice(ISOLATIONS)
    embed_megabytes = _Positive(16.0).tag(expected="a positive number of megabytes")
    isolation_megabytes = _Positive(2000.0).tag(expected="a positive number of megabytes")
    isolation_seconds = _Positive(300.0).tag(expected="a positive number of seconds")

    look_inside = _choice(LOOK_INSIDE)
    operator_libraries = List(Unicode()).tag(expected="a list of names of modules, or of paths of shared libraries")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"etviz.options has no {name!r}; it has {', '.join(dir(self))}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            getattr(self, name)
        try:
            super().__setattr__(name, value)
        except TraitError:
            expected = self.trait_metadata(name, "expected")
            raise UsageError(f"etviz.options.{name} must be {expected}, found {value!r}") from None

    @default("isolation")
    def _first_isolation(self) -> str:
        return _first("ETVIZ_ISOLATION", ISOLATIONS)

    @default("look_inside")
    def _first_look(self) -> str:
        return _first("ETVIZ_LOOK_INSIDE", LOOK_INSIDE)

    @observe("operator_libraries")
    def _use_libraries(self, change: Any) -> None:
        set_users_libraries(change["new"])

    def __dir__(self) -> list[str]:
        return sorted(self.trait_names())

    def __repr__(self) -> str:
        return "\n".join(f"etviz.options.{name} = {getattr(self, name)!r}" for name in dir(self))


options: Final = Options()


def use_libraries(libraries: Iterable[str | os.PathLike[str]] | None) -> None:
    """Add libraries to `options.operator_libraries`, files by full path, and load all of the session's.

    A `UsageError` if one can't be loaded.
    """
    named = [libraries] if isinstance(libraries, (str, os.PathLike)) else list(libraries or ())
    if not all(isinstance(name, (str, os.PathLike)) for name in named):
        raise UsageError(f"libraries must be a list of names of modules, or of paths, found {libraries!r}")
    places = [str(Path(name).absolute()) if Path(name).exists() else os.fspath(name) for name in named]
    known = [*dict.fromkeys([*options.operator_libraries, *places])]
    for name in known:
        try:
            load_library(name)
        except Exception as error:
            raise UsageError(f"libraries: {name} can't be loaded ({error}); {NAME_A_LIBRARY}") from error
    options.operator_libraries = known
