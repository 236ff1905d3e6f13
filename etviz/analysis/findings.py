"""The results of loading and comparing: plain data, made once and never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etviz.analysis.profile import Profile
from etviz.artifacts.known_files import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etviz.comparison.constants import Difference
    from etviz.comparison.gap import Run
    from etviz.evaluation.own_operators import OwnFunctions
    from etviz.evaluation.replay import Replay
    from etviz.explain.stages.against import OtherReference
    from etviz.explain.stages.own_model import OwnModel, OwnOutputs
    from etviz.explain.zoom.zoom import Zoom
    from etviz.graph.delegation import Delegation
    from etviz.graph.ir import Graph


@dataclass(frozen=True, slots=True)
class Compared:
    """Every execution compared with its reference.

    Attributes
    ----------
    replay
        The program and its inputs; None without a reference.
    notes
        Values that could not be compared, and the reasons.
    """

    runs: tuple[Run, ...] = ()
    replay: Replay | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """The facts about one executed program.

    Attributes
    ----------
    methods
        Names of all methods of the program; empty where only this one can be shown.
    graph
        Its graph, as far as it is known.
    complete
        Compares again with introduced gaps; None where they are there, or can't be.
    with_operators
        Compares again with functions of the user's for some operators of the reference; None where that can't be.
    reference
        The form of the program that total gaps are against, None for the lowered one.
    delegation
        Counts, None where the program is not known.
    listing
        The lowered program as text, as upstream prints it; empty where it was not kept.
    refusals
        Why partitioners left nodes out, by name.
    delegate_info
        Backends' remarks on their delegates, by name of the lowered module.
    constants
        Constants of the `.pte` that differ from the reference's.
    notes
        Missing results, with reasons.
    program_state
        State of the `.pte` when it was read (`ledger.identity`), empty without one.
    inner_handles
        By instruction of a delegate call: its backend's identifiers, as text, to debug handles.
    inside_of_probes
        By instruction of a delegate call: how far the probe that goes inside it is from the program at most, None
        where that is not known. Empty where inner values are the run's own.
    zoom
        The zoom; None for a whole program.
    call
        Execution and instruction of the delegate call that this is the inside; None for a whole program.
    made
        Model and arguments of the lowering, by `etviz.debug`'s arguments; empty where that is not known.
    check_files
        Looks whether the files that values still lie in are as they were; an `ArtifactError` if they are not.
    keep_alive
        A temporary folder that lasts as long as these findings.
    name
        The program's name, where several programs belong together; else empty.
    """

    title: str
    method: str
    graph: Graph
    compared: Compared = Compared()
    methods: Sequence[str] = ()
    complete: Callable[[], Compared] | None = None
    with_operators: Callable[[OwnFunctions], Compared] | None = None
    reference: OtherReference | OwnModel | OwnOutputs | None = None
    latency: Mapping[int, float] = field(default_factory=dict)
    profile: Profile = field(default_factory=Profile)
    delegation: Delegation | None = None
    listing: str = ""
    refusals: Mapping[str, str] = field(default_factory=dict)
    delegate_info: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    program_state: str = ""
    inner_handles: Mapping[int, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    inside_of_probes: Mapping[int, float | None] = field(default_factory=dict)
    zoom: Zoom | None = None
    call: tuple[int, int] | None = None
    made: Mapping[str, Any] = field(default_factory=dict)
    check_files: Callable[[], None] = lambda: None
    keep_alive: Any = None
    name: str = ""

    @property
    def shown_method(self) -> str:
        """The method's name among `methods`: its program's, where several programs belong together."""
        return self.name or self.method


def program_file(findings: Findings) -> str | None:
    """The `.pte`; None if none was given, or another file has its place now."""
    path = findings.files.get("pte")
    try:
        return path if path is not None and identity(path) == findings.program_state else None
    except OSError:
        return None
