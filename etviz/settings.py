"""What holds for the whole session: ``etviz.options``."""

from __future__ import annotations

from typing import Any, Final

from etviz.errors import UsageError

TENSORS: Final = ("none", "histograms", "worst")
"""What a report can hold of the tensors, the least first.

``none``: nothing but the metrics of the table. ``histograms``: of every row the histograms of reference, runtime and
error, their statistics and the counts of non-finite values. ``worst``: these, of the 50 worst rows the elements with
the largest error, and of the 20 worst rows where in the tensor the error is.
"""


class Options:
    """Settings of this session; a name that there is not raises `AttributeError`.

    Attributes
    ----------
    embed
        The output of a cell is the report itself, as ``text/html``, instead of the widget: it is there where no kernel
        is, above all in the HTML that nbconvert makes. Off at first.
    embed_tensors
        What the embedded report holds of the tensors, as ``tensors`` of `Inspection.to_html`.
    embed_megabytes
        Largest embedded report. One that would be larger gets along with fewer tensors, or is the table of the worst
        rows.

    Examples
    --------
    >>> import etviz
    >>> etviz.options.embed
    False
    >>> etviz.options.embedd = True
    Traceback (most recent call last):
        ...
    AttributeError: etviz.options has no 'embedd'; it has embed, embed_megabytes, embed_tensors
    """

    __slots__ = ("_values",)

    embed: bool
    embed_tensors: str
    embed_megabytes: float

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {"embed": False, "embed_tensors": "histograms", "embed_megabytes": 16.0})

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_values")[name]
        except KeyError:
            raise self._unknown(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in dir(self):
            raise self._unknown(name)
        object.__getattribute__(self, "_values")[name] = _checked(name, value)

    def __dir__(self) -> list[str]:
        return sorted(object.__getattribute__(self, "_values"))

    def __repr__(self) -> str:
        return "\n".join(f"etviz.options.{name} = {getattr(self, name)!r}" for name in dir(self))

    def _unknown(self, name: str) -> AttributeError:
        return AttributeError(f"etviz.options has no {name!r}; it has {', '.join(dir(self))}")


def _checked(name: str, value: Any) -> Any:
    """The value, if the option can have it.

    Raises
    ------
    UsageError
        If it can't.
    """
    if name == "embed":
        expected, fits = "True or False", isinstance(value, bool)
    elif name == "embed_tensors":
        expected, fits = f"one of {', '.join(map(repr, TENSORS))}", isinstance(value, str) and value in TENSORS
    else:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        expected, fits = "a positive number of megabytes", number and value > 0
    if not fits:
        raise UsageError(f"etviz.options.{name} must be {expected}, found {value!r}")
    return value


options: Final = Options()
"""The settings of this session."""
