"""Where in the user's code an operator comes from."""

from __future__ import annotations

import functools
import re
from pathlib import PurePath
from typing import Final

from etviz.artifacts.ir import Graph

_FRAME: Final = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?', re.MULTILINE)
_CONVERSION: Final = re.compile(r"(de)?quantize_per_|choose_qparams_|_?to_copy|.*clone_dim_order")
_FOREIGN: Final = re.compile(r"[/\\]site-packages[/\\](torch|torchao|executorch)[/\\]")


@functools.lru_cache(maxsize=1 << 12)
def source_line(stack: str) -> str:
    r"""``file.py:12`` of the innermost frame in the user's own code, of the innermost one at all if there is none.

    Examples
    --------
    >>> source_line('  File "/home/me/net.py", line 12, in forward\n    return x + y')
    'net.py:12'
    >>> source_line("")
    ''
    """
    frames = [(m["file"], m["line"]) for m in _FRAME.finditer(stack)]
    own = [frame for frame in frames if not _FOREIGN.search(frame[0])]
    if not frames:
        return ""
    file, line = (own or frames)[-1]
    return f"{PurePath(file).name}:{line}"


def reference_operators(inner: Graph) -> list[str]:
    """Names of the exported operators that a delegate computes, in order.

    Conversions to and from integers are left out unless there is nothing else.
    """
    names = dict.fromkeys(n.origin for n in inner.nodes if n.target != "getitem" and n.origin)
    return [name for name in names if not _CONVERSION.match(name)] or list(names)


def short_operator(name: str) -> str:
    """``native_layer_norm`` for ``aten::native_layer_norm.out`` and for ``aten.native_layer_norm.default``."""
    plain = name.split("::")[-1]
    parts = plain.split(".")
    return parts[1] if "::" not in name and len(parts) == 3 else parts[0]
