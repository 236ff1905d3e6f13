# pyright: reportPrivateUsage=false
"""The float model beside a quantized program, kept as a graph that is evaluated without executorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from etviz.artifacts.ir import Graph
from etviz.errors import UsageError
from etviz.executorch import operator_overload, quietly
from etviz.pipeline.capture import capture_program
from etviz.torch_operators import python_operator

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def check_reference(
    reference: ExportedProgram | Mapping[str, ExportedProgram] | None, methods: list[str]
) -> dict[str, ExportedProgram]:
    """The float programs by method.

    Raises
    ------
    UsageError
        If one is not an exported program, or answers no method.
    """
    from torch.export import ExportedProgram

    if reference is None:
        return {}
    if not isinstance(reference, Mapping):
        name = "forward" if "forward" in methods or len(methods) != 1 else methods[0]
        reference = {name: reference}
    for method, program in reference.items():
        if not isinstance(program, ExportedProgram):
            raise UsageError(
                f"reference must be an ExportedProgram of the float model, found {type(program).__name__}; "
                "export it with torch.export.export(model, example_inputs)"
            )
        if method not in methods:
            raise UsageError(f"reference is for the method {method}, the program has {', '.join(methods)}")
    return dict(reference)


def capture_reference(program: ExportedProgram, method: str, constants: dict[str, torch.Tensor]) -> Graph:
    """The float graph of one method, its weights added to `constants` as ``reference/<method>//<name>``.

    Where it changes values in place it is made functional first (``relu_`` becomes ``relu``), which takes seconds on
    large models; nodes keep the exported operator's name as `Node.origin`.
    """
    if not _is_functional(program):
        with quietly():
            program = program.run_decompositions({})
    return capture_program(program, method, f"reference/{method}/", constants)


def _is_functional(program: ExportedProgram) -> bool:
    """True if every call is an operator that changes none of its arguments, or takes an element."""
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        overload = operator_overload(node.target)
        if python_operator(node.target) is None and (overload is None or overload._schema.is_mutable):
            return False
    return True
