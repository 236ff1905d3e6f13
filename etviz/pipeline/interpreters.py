"""Interpreters of delegates: each runs what a backend made of a delegate and returns inner values by operator.

An interpreter is a function ``(graph, payload, names, inputs, path) -> ShownInside`` that runs in a child process:

- `graph`: the delegate's subgraph, whose operators carry debug handles;
- `payload`: see `etviz.artifacts.program.payload`;
- `names`: operators whose values are wanted; others may be left out, with a reason;
- `inputs`: one for each user input;
- `path`: where it may write one file.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass, field
from typing import Any, Final

from etviz.upstream.xnnpack import BACKEND

INSTALL_TOSA: Final = "pip install 'etviz[tosa]'"
INSTALL_COREAI: Final = "pip install --no-deps coreai-core==1.0.0b1 coreai-torch==0.4.1 ml_dtypes==0.6.0 yuvio==1.6"
"""The beta of Core AI names packages that do not fit together."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How a delegate is run outside of its device.

    `function` is ``module:function``; `command` installs `package`, and `pinned` is the release that is known to work.
    `implementation` says what computes the values, empty for the backend's own kernels. `exact` if the specification
    leaves no freedom for integers, so a device with other values is wrong.
    """

    function: str
    implementation: str = ""
    package: str = ""
    command: str = ""
    exact: bool = False
    pinned: str = ""

    def is_installed(self) -> bool:
        return not self.package or importlib.util.find_spec(self.package) is not None

    def other_version(self) -> str:
        """Advice after an error if another release is installed."""
        name, _, known = self.pinned.partition("==")
        with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError):
            if (installed := importlib.metadata.version(name)) != known:
                return f"; {name} {installed} is installed, {known} is known to work: {self.command}"
        return ""


@dataclass(slots=True)
class ShownInside:
    """The delegate's outputs followed by the values of `names`; reasons for others are in `left_out`.

    `parts` names the operators that the backend runs as part of another one. If the run computed in another `precision`
    than the values, `plain` are its outputs.
    """

    names: list[str]
    outputs: list[Any]
    left_out: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    plain: list[Any] | None = None
    precision: str = ""


_TOSA: Final = Interpreter(
    "etviz.pipeline.tosa_values:show_inside",
    "TOSA reference model",
    "tosa_reference_model",
    INSTALL_TOSA,
    exact=True,
    pinned="tosa-tools==2026.5.0",
)
INTERPRETERS: Final = {
    BACKEND: Interpreter("etviz.pipeline.piece_program:show_inside"),
    "CoreAIBackend": Interpreter(
        "etviz.pipeline.coreai_values:show_inside",
        "Core AI runtime on this machine",
        "coreai",
        INSTALL_COREAI,
        pinned="coreai-core==1.0.0b1",
    ),
    "OpenvinoBackend": Interpreter(
        "etviz.pipeline.openvino_values:show_inside", package="openvino", command="pip install 'etviz[openvino]'"
    ),
    "NativeBackend": Interpreter("etviz.explain.zoom.native_values:show_inside", "PyTorch kernels"),
    **dict.fromkeys(("TOSABackend", "EthosUBackend", "VgfBackend"), _TOSA),
}


def register(backend_id: str, function: str, implementation: str = "") -> None:
    """Register the interpreter of a backend, by its id in the `.pte`.

    `function` is ``module:function``; the module is imported in the child process. `implementation` says what computes
    the values. If it is empty, these are the backend's own kernels, and a delegate that the interpreter can't run is
    lowered again.
    """
    INTERPRETERS[backend_id] = Interpreter(function, implementation)


def interpreter_of(backend_id: str) -> Interpreter | None:
    return INTERPRETERS.get(backend_id)


def how_to_run(backend_id: str) -> str:
    interpreter = INTERPRETERS.get(backend_id)
    if interpreter is None or not interpreter.implementation:
        return "run it on its device and load what it logs, or what probes return (docs/devices.md)"
    command = "" if interpreter.is_installed() else f", after {interpreter.command}"
    return f"give runner='emulated' to run it in the {interpreter.implementation}{command}"


def emulated_by(implementation: str) -> str:
    return f"emulated: computed by the {implementation}"
