# pyright: reportPrivateUsage=false
"""Which library registers the operators of a namespace, for torch and for the runtime.

Files name namespaces only; libraries come from these tables, or from the user's `etviz.options.operator_libraries`.
Children of other environments import this file: it needs only the standard library, torch and executorch.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_MODULES: Final = {
    "quantized_decomposed": ("torch.ao.quantization.fx._decomposed",),
    "dim_order_ops": ("executorch.exir.passes.dim_order_ops_registry",),
    "et_copy": ("executorch.exir.passes._device_copy_ops_registry",),
    "torchao": ("torchao.quantization", "torchao.quantization.pt2e"),
    "llama": ("executorch.extension.llm.custom_ops.custom_ops",),
    "executorch": ("executorch.extension.llm.custom_ops.custom_ops",),
    "kvcache": ("executorch.extension.llm.cache.update_and_attend",),
}
_SLOW: Final = {("quantized_decomposed", "embedding"): "executorch.exir.passes._quant_patterns_and_replacements"}
"""Modules that take a second, by namespace and beginning of the names that need them."""
_KERNELS: Final = {"llama": "extension/llm/custom_ops/*custom_ops_aot_lib.*"}
"""By namespace: executorch's shared library with its kernels.

Other kernels are in the runtime or in ``executorch.kernels.quantized``, which every child loads.
"""

NAME_A_LIBRARY: Final = "give the name of a module that Python can import, or the path of a shared library"
GIVE_A_LIBRARY: Final = (
    'give the library that registers it: libraries=["a.module"] or libraries=["/path/to/library.so"], or '
    "etviz.options.operator_libraries"
)
_users: tuple[str, ...] = ()


def set_users_libraries(names: Sequence[str]) -> None:
    global _users
    _users = tuple(names)


def users_libraries() -> tuple[str, ...]:
    return _users


@functools.cache
def load_operator_library(namespace: str, operator: str = "") -> str:
    """Returns what is missing, or an empty string."""
    from etviz.upstream.executorch import quietly

    slow = (module for (of, start), module in _SLOW.items() if of == namespace and operator.startswith(start))
    for name in (*_MODULES.get(namespace, ()), *slow):
        try:
            with quietly():
                importlib.import_module(name)
        except (ImportError, OSError) as error:
            return f"{name} can't be loaded ({error})"
    return ""


@functools.cache
def load_kernels(namespace: str) -> None:
    import executorch

    pattern = _KERNELS.get(namespace, "")
    paths = [path for folder in executorch.__path__ for path in sorted(Path(folder).glob(pattern))] if pattern else []
    if paths:
        load_library(str(paths[0]))


@functools.cache
def load_library(name: str) -> frozenset[str]:
    """Returns the operators that it registers, named like ``mine.scale``."""
    import torch

    importlib.import_module("executorch.extension.pybindings.portable_lib")  # kernels register with its runtime
    before = set(torch._C._dispatch_get_all_op_names())
    if Path(name).suffix in (".so", ".dylib", ".dll"):
        torch.ops.load_library(name)
    else:
        importlib.import_module(name)
    new = set(torch._C._dispatch_get_all_op_names()) - before
    return frozenset(operator.partition(".")[0].replace("::", ".") for operator in new)


@functools.cache
def operators_of(name: str) -> frozenset[str]:
    """The operators that a library registers with torch, found in a child if it was loaded before."""
    operators = load_library(name)
    if operators:
        return operators
    command = [sys.executable, "-c", _TELL.format(file=__file__), name]
    path = {"PYTHONPATH": os.pathsep.join(folder or os.curdir for folder in sys.path)}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ) | path)
    return frozenset(json.loads(told.stdout.splitlines()[-1]))


_TELL: Final = """
import json, runpy, sys
sys.stdout.write(json.dumps(sorted(runpy.run_path({file!r})["load_library"](sys.argv[1]))) + "\\n")
"""


def is_users(target: str) -> bool:
    return any(target.rpartition(".")[0] in operators_of(name) for name in _users)


def missing_operators(lines: Iterable[str]) -> list[str]:
    marks = (line.partition("Missing operator: ")[2] for line in lines)
    return sorted({mark.split()[-1] for mark in marks if mark})
