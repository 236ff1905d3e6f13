"""The tracks of a trace: events on one track lie beside or inside of each other, or viewers draw nonsense."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_FIRST: Final = ("framework", "portable kernels")
_SLACK_US: Final = 1e-6
"""Ends that are the same tick may differ by the rounding of the sum of start and duration."""


@dataclass(slots=True)
class Tracks:
    """Numbers the tracks in the order in which they are met.

    Attributes
    ----------
    names
        Name of each track by its number.
    """

    names: dict[int, str] = field(default_factory=dict)
    _lanes: dict[str, list[int]] = field(default_factory=dict)
    _open: dict[int, list[float]] = field(default_factory=dict)

    def lane(self, name: str, start: float, length: float) -> int:
        """Number of the track of an event; where it would cross another one, a further track is opened.

        Events come by start, the longer one first.

        Examples
        --------
        >>> tracks = Tracks()
        >>> [tracks.lane("cpu", *event) for event in ((0, 10), (2, 3), (8, 5), (20, 1))]
        [1, 1, 2, 1]
        >>> tracks.names
        {1: 'cpu', 2: 'cpu (2)'}
        """
        end = start + length
        lanes = self._lanes.setdefault(name, [])
        for number in lanes:
            ends = self._open[number]
            while ends and ends[-1] <= start + _SLACK_US:
                ends.pop()
            if not ends or end <= ends[-1] + _SLACK_US:
                ends.append(end)
                return number
        number = len(self.names) + 1
        self.names[number] = f"{name} ({len(lanes) + 1})" if lanes else name
        self._open[number] = [end]
        lanes.append(number)
        return number

    def place(self, name: str) -> int:
        """Where a track stands from the top: framework, kernels, then each backend with its operators below."""
        order = sorted(self.names.values(), key=lambda one: (_FIRST.index(one) if one in _FIRST else len(_FIRST), one))
        return order.index(name)
