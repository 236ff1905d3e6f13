"""The results of loading and comparing: plain data, made once and never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etviz.analysis.profile import Profile
from etviz.analysis.tasks import Task
from etviz.artifacts.known_files import identity
from etviz.graph.delegation import Delegation
from etviz.graph.ir import Graph

if TYPE_CHECKING:
    from etviz.comparison.constants import Difference
    from etviz.comparison.gap import Run
    from etviz.evaluation.own_operators import OwnFunctions
    from etviz.evaluation.replay import Replay
    from etviz.explain.stages.against import OtherReference, OtherRun
    from etviz.explain.stages.own_model import OwnModel, OwnOutputs
    from etviz.explain.zoom.zoom import Zoom


@dataclass(frozen=True, slots=True)
class Compared:
    runs: tuple[Run, ...] = ()
    replay: Replay | None = None
    notes: tuple[str, ...] = ()
    in_turn: bool = False
    """True if executions read what earlier ones left."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The facts about one executed program.

    `listing` gives the delegated graph as upstream prints it. `methods` is empty where only this one can be shown.
    `complete` compares again with introduced gaps; None where they are there, or can't be. `with_operators` does so
    with functions of the user's for operators of the reference.
    `reference` is the form that total gaps are against, None for the lowered program. `refusals` have partitioners'
    reasons by node, `delegate_info` backends' remarks by lowered module. `program_state` is the `.pte`'s
    `known_files.identity`. `inner_handles` has by delegate call its backend's identifiers, as text, to debug handles;
    `inside_of_probes` the largest distance of the probe inside it from the program, None where unknown, empty where
    inner values are the run's. `call` is the execution and the delegate call whose inside this is; `preprocessing` is
    applied to inner values. `made` has `etviz.debug`'s model and arguments, `tasks` the verdict's task metrics.
    `check_files` raises `ArtifactError` if files have changed. `keep_alive` holds a temporary folder.
    """

    title: str
    method: str
    graph: Graph
    compared: Compared = Compared()
    methods: Sequence[str] = ()
    complete: Callable[[], Compared] | None = None
    with_operators: Callable[[OwnFunctions], Compared] | None = None
    reference: OtherReference | OtherRun | OwnModel | OwnOutputs | None = None
    latency: Mapping[int, float] = field(default_factory=dict)
    profile: Profile = field(default_factory=Profile)
    delegation: Delegation | None = None
    listing: Callable[[], str] | None = None
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
    preprocessing: Callable[[int | str, Any], Any] | None = None
    made: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, Task] = field(default_factory=dict)
    check_files: Callable[[], None] = lambda: None
    keep_alive: Any = None
    name: str = ""

    @property
    def shown_method(self) -> str:
        return self.name or self.method


def program_file(findings: Findings) -> str | None:
    """The `.pte`; None without one, or if another file has its place now."""
    path = findings.files.get("pte")
    try:
        return path if path is not None and identity(path) == findings.program_state else None
    except OSError:
        return None
