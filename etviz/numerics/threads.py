"""Keeping torch to the calling thread for small models.

torch divides even a copy of a few hundred kilobytes among its threads and then waits for all of them. Where other
programs run too, each wait takes milliseconds, and a small model's operators do not make up for that.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from etviz.artifacts.ir import Graph

SMALL: Final = 10_000_000
"""Weights up to which a model is small."""


@contextmanager
def threads_for(graph: Graph) -> Generator[None]:
    """Let torch use the calling thread alone while a small model is evaluated, and all of its threads for others."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1 if sum(_weights(graph).values()) <= SMALL else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _weights(graph: Graph) -> dict[str, int]:
    """Elements of each constant, those of delegates and branches included; one of unknown size counts for none."""
    found: dict[str, int] = {}
    for item in graph.inputs:
        if item.kind != "user" and item.meta is not None:
            found[item.target] = math.prod(size for size in item.meta.shape if isinstance(size, int))
    for inner in graph.subgraphs.values():
        found |= _weights(inner)
    return found
