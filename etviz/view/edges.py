"""The edges of the program tree, as the view's graph needs them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from etviz.inspection import Inspection


def edge_pairs(inspection: Inspection) -> npt.NDArray[np.int32]:
    """Source and target of each edge, by turns: nodes of `Inspection.tree`; each pair once."""
    pairs = dict.fromkeys((edge.source, edge.target) for edge in inspection.edges)
    return np.array(list(pairs), np.int32).reshape(-1)
