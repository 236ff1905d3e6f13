"""The classes of executorch whose methods run a program, for recording."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

_FUNCTIONS = {
    ("executorch.extension.pybindings.portable_lib", "ExecuTorchModule"): (
        *("forward", "__call__", "run_method", "plan_execute"),
    ),
    ("executorch.extension.pybindings.portable_lib", "ExecuTorchMethod"): ("call", "__call__", "set_inputs"),
    ("executorch.extension.llm.runner", "TextLLMRunner"): ("generate", "prefill", "reset"),
    ("executorch.extension.llm.runner", "MultimodalRunner"): ("generate", "prefill", "reset"),
}


def callers() -> Iterator[tuple[type, str]]:
    """Classes with a function's name, without classes that executorch lacks and unimported language-model runners."""
    for (module, name), functions in _FUNCTIONS.items():
        if "llm" in module and module not in sys.modules:
            continue
        owner = getattr(importlib.import_module(module), name, None)
        for function in functions:
            if owner is not None and hasattr(owner, function):
                yield owner, function


def method_name(loaded: object) -> str:
    return loaded.method_meta().name()  # pyright: ignore[reportAttributeAccessIssue]
