"""The program's instructions without a recorded graph: one node each, with edge operators by debug handle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from etviz.artifacts.etdump.etdump import RunBlock
from etviz.artifacts.program.program import Program
from etviz.graph.ir import Graph, Node
from etviz.graph.uses import by_handles


def skeleton(
    method: str,
    program: Program | None,
    blocks: Sequence[RunBlock],
    edge: Graph | None,
    handles: Mapping[int, tuple[int, ...]],
    backends: Mapping[int, str],
) -> Graph:
    """Without a `.pte`, the instructions with events."""
    by_handle, graph = by_handles(edge.nodes if edge is not None else ()), Graph(method)
    kernels = _from_program(program, method) if program is not None else kernels_of(blocks)
    for instruction, kernel in sorted(kernels.items()):
        members = _operators(handles.get(instruction, ()), by_handle)
        if kernel.startswith("delegate"):
            backend = kernel.partition(" ")[2] or backends.get(instruction, "")
            name = f"lowered_module_{len(graph.subgraphs)}"
            inner = [replace(node, name=f"{name}/{node.name}", args=(), kwargs={}) for node in members]
            graph.subgraphs[name] = Graph(name, nodes=inner, backend_id=backend)
            node = Node(f"instruction_{instruction}", "delegate", kernel="delegate", subgraphs=(name,))
        else:
            node = _kernel_node(instruction, kernel, members)
        node.instruction, node.handles = instruction, handles.get(instruction, ())
        graph.nodes.append(node)
    return graph


def _operators(handles: Sequence[int], by_handle: Mapping[int, list[Node]]) -> list[Node]:
    by_name = {node.name: node for handle in dict.fromkeys(handles) for node in by_handle.get(handle, ())}
    return list(by_name.values())


def _kernel_node(instruction: int, kernel: str, members: Sequence[Node]) -> Node:
    short = kernel.rpartition("::")[2].partition(".")[0]
    same = [node for node in members if node.target.split(".")[1:2] == [short]]
    source = next(iter(same or members), Node("", ""))
    return Node(
        f"instruction_{instruction}",
        source.target if same else kernel,
        kernel=kernel,
        outputs=source.outputs if same else (),
        origin=source.origin,
        stack=source.stack,
        module=source.module,
    )


def _from_program(program: Program, method: str) -> dict[int, str]:
    kernels: dict[int, str] = {}
    for plan in program.methods:
        for call in plan.instructions if plan.name == method else ():
            if call.kind == "kernel":
                kernels[call.index] = str(call.operator)
            elif call.kind == "delegate":
                kernels[call.index] = f"delegate {plan.backend(call)}"
    return kernels


def kernels_of(blocks: Sequence[RunBlock]) -> dict[int, str]:
    kernels: dict[int, str] = {}
    for block in blocks:
        for name, chain, instruction in block.profile.rows():
            if chain < 0 or not name:
                continue
            if name == "DELEGATE_CALL":
                kernels[instruction] = "delegate"
            elif name.startswith("native_call_"):
                kernels[instruction] = name.removeprefix("native_call_")
            else:
                kernels.setdefault(instruction, name)
    return kernels
