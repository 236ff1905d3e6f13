"""The part of an Inspection that says what ran and how long it took; each method hands over to a module of its own."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from etviz.whole import Whole

if TYPE_CHECKING:
    import pandas as pd

    from etviz.profile import ModuleTotal


class Measurements(Whole):
    """A part of `Inspection`."""

    @cached_property
    def _events(self) -> pd.DataFrame:
        from etviz.profile import Profile, events_frame

        return events_frame(self._findings.profile or Profile(), self._graph)

    @property
    def events(self) -> pd.DataFrame:
        """A row for each event that the runtime timed, times over all executions; see `etviz.profile.events_frame`.

        Raises
        ------
        UsageError
            If the delegate_metadata_parser fails.
        """
        return self._events.copy()

    def module_total(self, name: str, by: str = "introduced_severity") -> ModuleTotal:
        """Time and worst gap of a module and its descendants, matched by path (``encoder.layers.0``).

        Raises
        ------
        UsageError
            If no operator comes from that module, or `by` is no column of `gaps`.
        """
        from etviz.profile import module_total

        return module_total(self._graph, self.latency, self.worst(len(self.gaps), by), name)

    def format_delegated_graph(self) -> str:
        """The lowered program as text, delegates unfolded.

        It is what upstream's function of this name prints where `etviz.debug` lowered the model; in the same form, but
        with the node numbers of the emitted program, where the files hold only that.

        Raises
        ------
        UsageError
            If the files do not hold the program.
        """
        from etviz.errors import UsageError
        from etviz.graph.listing import format_delegated_graph

        if self._findings.listing:
            return self._findings.listing
        if self._findings.delegation is None:
            raise UsageError("the files do not hold the lowered program; give record=, or pte= and etrecord=")
        return format_delegated_graph(self._graph)
