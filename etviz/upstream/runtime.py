"""executorch's runtime, without what lowers programs, for a process that has none of executorch and no other threads.

The bindings import the class of a warning from `executorch.exir`, and with it three seconds of everything else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import executorch

_EXIR = "executorch.exir"

if _EXIR in sys.modules:
    from executorch.runtime import Runtime, Verification
else:
    package = sys.modules[_EXIR] = ModuleType(_EXIR)
    package.__path__ = [str(Path(folder, "exir")) for folder in executorch.__path__]
    try:
        from executorch.runtime import Runtime, Verification
    finally:
        del sys.modules[_EXIR]

__all__ = ["Runtime", "Verification"]
