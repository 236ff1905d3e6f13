"""How values travel to a view."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Answer = tuple[dict[str, Any], list[bytes]]
"""The answer to a view's question: JSON, and the buffers that it names."""


class MessageBuffers:
    def __init__(self, data: Iterable[bytes] = ()) -> None:
        self.data: list[bytes] = list(data)

    def add(self, values: Any, dtype: str) -> dict[str, Any]:
        array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
        self.data.append(array.tobytes())
        return {"buffer": len(self.data) - 1, "dtype": dtype, "length": int(array.size)}

    def add_counts(self, counts: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Append whole numbers in the narrowest type that holds them."""
        most = int(counts.max(initial=0))
        fitting = (dtype for dtype in ("uint8", "uint16", "uint32") if most <= np.iinfo(dtype).max)
        return self.add(counts, next(fitting, "float64"))


def encode(texts: Iterable[str]) -> tuple[list[int], list[str]]:
    """Codes into a sorted dictionary; the empty text is -1.

    Examples
    --------
    >>> encode(["b", "", "a", "b"])
    ([1, -1, 0, 1], ['a', 'b'])
    """
    items = list(texts)
    dictionary = sorted({text for text in items if text})
    index = {text: code for code, text in enumerate(dictionary)}
    return [index.get(text, -1) for text in items], dictionary
