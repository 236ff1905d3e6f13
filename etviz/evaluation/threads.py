"""Number of threads that torch may use while a graph is evaluated: the free cores.

OpenMP's threads spin for one another: on a core that another process keeps busy, each loop waits for the slowest.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from etviz.evaluation.unpacked import elements
from etviz.graph.quantize_ops import unpacked_weights

if TYPE_CHECKING:
    from collections.abc import Generator

    from etviz.graph.ir import Graph

SMALL: Final = 10_000_000
"""Maximum number of weights of a small model."""
_GRAIN: Final = 32_768
"""Elements that torch gives to a thread at least."""
_LOOKS: Final = 5
_APART: Final = 2e-3
"""Seconds between two looks: longer than a thread spins that has nothing to do."""
_OWN: Final = Path("/proc/self/task")


@contextmanager
def threads_for(graph: Graph) -> Generator[None]:
    """One thread for a small model or small operators, else free cores; then restores the user's number."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    one = is_small(graph) or has_small_operators(graph)
    torch.set_num_threads(1 if one else min(threads, free_cores()))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def is_small(graph: Graph) -> bool:
    return sum(_weights(graph).values()) <= SMALL


def has_few_values(graph: Graph) -> bool:
    return _values(graph) <= SMALL


def has_small_operators(graph: Graph) -> bool:
    """True where one of two threads would spin while Python goes on."""
    return sum(_weights(graph).values()) + _values(graph) <= 2 * _GRAIN * _operators(graph)


def free_cores() -> int:
    """Cores that this process may use and nobody else uses at each of several moments, at least 1."""
    everyone = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else everyone
    others = _others()
    for _ in range(1, _LOOKS):
        if others <= 0:
            break
        time.sleep(_APART)
        others = min(others, _others())
    return max(1, min(allowed, _quota(allowed), everyone - max(others, 0)))


def _others() -> int:
    return _running() - _own_running()


def _running() -> int:
    try:
        return int(Path("/proc/loadavg").read_text("ascii").split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 1


def _own_running() -> int:
    try:
        states = [(task / "stat").read_text("ascii").rpartition(")")[2].split()[0] for task in _OWN.iterdir()]
    except (OSError, ValueError, IndexError):
        return 1
    return max(1, states.count("R"))


def _quota(most: int) -> int:
    try:
        granted, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        return most if granted == "max" else max(1, math.ceil(int(granted) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        return most


def _weights(graph: Graph) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for placeholder in graph.inputs:
        if placeholder.kind != "user" and placeholder.meta is not None:
            sizes[placeholder.target] = math.prod(size for size in placeholder.meta.shape if isinstance(size, int))
    for inner in graph.subgraphs.values():
        sizes |= _weights(inner)
    return sizes


def _values(graph: Graph) -> int:
    unpacked = unpacked_weights(graph)
    nodes = (node for node in graph.nodes if node.name not in unpacked)
    own = sum(elements(meta) or 0 for node in nodes for meta in node.outputs)
    return own + sum(map(_values, graph.subgraphs.values()))


def _operators(graph: Graph) -> int:
    return len(graph.nodes) + sum(map(_operators, graph.subgraphs.values()))
