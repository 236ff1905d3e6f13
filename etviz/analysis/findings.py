"""What loading and comparing gave: plain data, made once and never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etviz.analysis.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etviz.comparison.constants import Difference
    from etviz.comparison.gap import Run
    from etviz.evaluation.replay import Replay
    from etviz.explain.zoom.zoom import Zoom
    from etviz.graph.delegation import Delegation
    from etviz.graph.ir import Graph


@dataclass(frozen=True, slots=True)
class Compared:
    """Every execution against its reference.

    Attributes
    ----------
    runs
        The executions, in order.
    replay
        What ran, on what; None where there is no reference.
    notes
        What could not be compared, and why.
    """

    runs: tuple[Run, ...] = ()
    replay: Replay | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """What is known of one executed program.

    Attributes
    ----------
    title
        Name for people.
    method
        Name of the compared method.
    graph
        Its graph, as far as it is known.
    compared
        The comparison.
    complete
        Compares again with introduced gaps; None where they are there, or can't be.
    latency
        Milliseconds by instruction.
    profile
        The events that the runtime timed.
    delegation
        Counts, None where the program is not known.
    listing
        The lowered program as text, as upstream prints it; empty where it was not kept.
    constants
        Constants of the `.pte` that are not those of the reference.
    notes
        What could not be shown, and why.
    files
        The artifacts, by kind.
    inner_handles
        By instruction of a delegate call: its backend's identifiers, as text, to debug handles.
    zoom
        What was looked into; None for a whole program.
    made
        What a model was lowered from and with, by `etviz.debug`'s arguments; empty where that is not known.
    check_files
        Looks whether the files that values still lie in are as they were; an `ArtifactError` if they are not.
    keep_alive
        A temporary folder that lasts as long as these findings.
    """

    title: str
    method: str
    graph: Graph
    compared: Compared = Compared()
    complete: Callable[[], Compared] | None = None
    latency: Mapping[int, float] = field(default_factory=dict)
    profile: Profile = field(default_factory=Profile)
    delegation: Delegation | None = None
    listing: str = ""
    constants: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    inner_handles: Mapping[int, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    zoom: Zoom | None = None
    made: Mapping[str, Any] = field(default_factory=dict)
    check_files: Callable[[], None] = lambda: None
    keep_alive: Any = None
