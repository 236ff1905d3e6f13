"""A fork of the test process: it has imported everything, and a new process would do so for seconds."""

from __future__ import annotations

import gc
import os
import sys
import traceback
import warnings
from collections.abc import Callable


def fork(work: Callable[[], object], *streams: int) -> int:
    """Let a fork do this, with these as its standard streams and no other file of this process; gives its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, of which a fork has none
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
        os.closerange(len(streams), os.sysconf("SC_OPEN_MAX"))
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        warnings.simplefilter("ignore")
        gc.freeze()
        gc.enable()
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - whoever reads its errors is told
        traceback.print_exc()
    os._exit(status)
