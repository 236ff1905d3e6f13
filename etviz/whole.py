"""What the parts of an Inspection ask of the whole: declared here once, for type checkers; `inspection.py` defines it.

`Inspection` is put together from parts, each in a file of its own (explanations, locating, measurements, sharing,
zooming). A part knows the others only through these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import torch

    from etviz.artifacts.ir import Graph
    from etviz.inspection import Findings
    from etviz.numerics.comparison import Gap
    from etviz.numerics.quantization_inside import ZoomedCall


class Whole:
    """Base of every part of `Inspection`."""

    _findings: Findings
    _graph: Graph
    _table: Any
    outputs: Any
    title: Any
    tree: Any
    selected: Any

    if TYPE_CHECKING:

        def _gap(self, row: Any) -> Gap: ...

        def tensors(self, row: Any) -> tuple[torch.Tensor, torch.Tensor]:
            """``(reference, runtime)`` of a gap row."""
            ...

        def worst(self, n: int = 5, by: str = "introduced_severity") -> pd.DataFrame:
            """The rows to look at first."""
            ...

        def zoomed_calls(self) -> list[ZoomedCall]:
            """The delegates that were zoomed into."""
            ...

        @property
        def gaps(self) -> pd.DataFrame:
            """A row for each compared value."""
            ...

        @property
        def latency(self) -> Mapping[int, float]:
            """Mean latency by instruction, in milliseconds."""
            ...
