"""Pausing Python's cyclic garbage collector while artifacts are read.

Reading makes hundreds of thousands of small objects that all stay. The collector would go through them, and through
everything that torch has made, again and again and find nothing: a third of the time for a deep model.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def collection_paused() -> Generator[None]:
    """Keep the collector from running on its own; it is left as it was found.

    Examples
    --------
    >>> import gc
    >>> with collection_paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
