"""executorch's runtime without its lowering, for a child process.

The bindings import a warning class from `executorch.exir`, which would take three seconds.
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
