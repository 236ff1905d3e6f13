"""Which files are foreign, decided without torch: their child process is started before torch is imported here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.known_files import is_known
from etviz.pipeline.worker import Worker
from etviz.settings import options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etviz.artifacts.files import PathLike

WORKER: Final = Worker("etviz.loading.foreign")


def is_foreign(files: Mapping[str, PathLike], inputs: Any = None, *, ran_here: bool = False) -> bool:
    """A file is foreign if etviz did not write it on this machine.

    The log of a run that `ran_here` a moment ago is not; the program that ran may be.
    """
    if options.isolation != "auto":
        return options.isolation == "always"
    ours = ("etdump", "debug_buffer") if ran_here else ()
    named = {kind: path for kind, path in files.items() if kind not in ours}
    if ran_here:
        return not is_known(named.values())
    names = [inputs] if isinstance(inputs, (str, os.PathLike)) else inputs if isinstance(inputs, list) else []
    return not is_known([*named.values(), *(name for name in names if isinstance(name, (str, os.PathLike)))])
