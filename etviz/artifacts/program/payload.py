"""The bytes that a backend executes for one delegate, and what explains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Specification:
    """A delegate's computation in a form that a reference implementation runs.

    `data` is a TOSA flatbuffer, empty if the payload itself is one. `origins` names, by value in it, the delegate's
    operator.
    """

    data: bytes = b""
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Payload:
    data: memoryview
    named: Mapping[str, memoryview | bytes]
    specification: Specification | None = None
