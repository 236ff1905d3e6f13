"""Derived pairing: an ETRecord and a `.pte` alone give the rows that the record gives, and never a wrong one."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import etviz
from etviz.artifacts.program.payload import Payload
from etviz.artifacts.program.program import read_program
from etviz.artifacts.program.xnnpack_payload import origins, pack_graph, unpack
from etviz.artifacts.record.etrecord import ETRecord
from etviz.graph.ir import Graph, Input, Node, Ref
from etviz.graph.quantize_ops import chooses_grid
from etviz.pairing.derive import derive
from etviz.pairing.matched_constants import match_constants
from etviz.pairing.order import Order, takers
from etviz.pairing.rebuild import rebuild
from tests.kinds.making import Made
from tests.programs import Executed

PLACE = ["event_block", "instruction", "output"]
ABSOLUTE = ["mse", "rmse", "mean_abs", "max_abs", "rel_l2"]


def without_record(program: Executed, folder: Path) -> etviz.Inspection:
    """The program's artifacts loaded as somebody else's: no record beside the `.pte`."""
    alone = folder / "alone.pte"
    shutil.copy(program.path("pte"), alone)
    return etviz.load(
        program.path("etdump"),
        etrecord=program.path("etrecord"),
        debug_buffer=program.path("debug_buffer"),
        pte=alone,
        inputs=program.inputs,
    )


def assert_same_rows(derived: pd.DataFrame, exact: pd.DataFrame) -> None:
    """Every derived row is the exact one, in every absolute metric, total and introduced.

    Weights lie at other addresses in an ETRecord than in a record, and a matrix product of other alignment may round
    otherwise: equal means up to the rounding of float32. Ratios of two roundings (SQNR, ULP, severity) would not be.
    """
    both = derived.merge(exact, on=PLACE, suffixes=("", "_exact"), validate="one_to_one")
    assert len(both) == len(derived)
    for name in ABSOLUTE:
        for column in (name, f"introduced_{name}"):
            found, expected = both[column], both[f"{column}_exact"]
            pd.testing.assert_series_equal(found, expected, check_names=False, check_dtype=False, rtol=1e-4, atol=1e-5)


def test_every_row_is_the_recorded_one(program: Executed, tmp_path: Path) -> None:
    if not program.path("etrecord").exists():
        pytest.skip("upstream can't write an ETRecord of this program")
    found = without_record(program, tmp_path)
    assert_same_rows(found.gaps, program.inspection.gaps)
    assert set(found.gaps["pairing"]) == {"derived"}
    assert len(found.gaps) == len(program.inspection.gaps)


def test_delegation_is_that_of_the_record(program: Executed, tmp_path: Path) -> None:
    if not program.path("etrecord").exists():
        pytest.skip("upstream can't write an ETRecord of this program")
    found, expected = without_record(program, tmp_path).delegation, program.inspection.delegation
    assert found is not None
    assert expected is not None
    pd.testing.assert_frame_equal(found.by_operator, expected.by_operator)


@pytest.mark.parametrize("name", ["decoder", "decoder_portable"])
def test_a_decoder_with_a_cache_over_several_steps(name: str, made: Callable[[str], Made]) -> None:
    exact, derived = made(name).load("exact"), made(name).load("derived")
    assert len(exact.gaps) == 3 * (exact.gaps["event_block"] == exact.gaps["event_block"].min()).sum()
    assert exact.outputs["matches"].all()
    assert_same_rows(derived.gaps, exact.gaps)
    assert len(derived.gaps) == len(exact.gaps)


def test_what_is_ambiguous_is_left_out(executed: Any) -> None:
    """Two operators that nothing tells apart are not paired by a guess: without handles, dataflow alone decides."""
    program = executed("encoder")
    record = ETRecord(program.path("etrecord"))
    method = read_program(program.path("pte")).method("forward")
    edge, handles = record.edge_graph("forward"), record.debug_handles("forward")
    whole, blind = derive(method, edge, handles), derive(method, edge, {})
    assert blind.values
    for place, name in blind.values.items():
        assert whole.values[place] == name


@pytest.mark.parametrize(
    ("name", "told"), [("recurrent", True), ("rotary_dynamic_int8", False), ("bidirectional", False)]
)
def test_what_tells_the_outputs_of_a_delegate_apart(name: str, told: bool, made: Callable[[str], Made]) -> None:
    """Their order, where one is computed from the other; else the debug handles and inputs in XNNPACK's payload."""
    files = made(name)
    record, program = ETRecord(files.path("etrecord")), read_program(files.path("pte"))
    method = program.method("forward")
    edge, handles = record.edge_graph("forward"), record.debug_handles("forward")
    constants = match_constants(program, method, edge, record.edge_weights("forward"))
    whole = derive(method, edge, handles, constants, partial(origins, program, method))
    blind = derive(method, edge, handles, constants)
    calls = {i.index: len(i.outputs) for i in method.instructions if i.kind == "delegate"}
    assert whole.insides.keys() == calls.keys()
    assert any(count > 1 for count in calls.values())
    assert (blind.values == whole.values) is told
    assert blind.values.items() <= whole.values.items()


def test_what_an_unknown_delegate_executes_is_said_to_be_delegated(made: Callable[[str], Made]) -> None:
    """Its noise is that of a backend, which may choose other grids for its activations."""
    files = made("rotary_dynamic_int8")
    record, method = ETRecord(files.path("etrecord")), read_program(files.path("pte")).method("forward")
    edge, handles = record.edge_graph("forward"), record.debug_handles("forward")
    blind = derive(method, edge, handles)
    graph = rebuild(method, edge, blind)
    chosen = [node.name for node in graph.nodes if chooses_grid(node)]
    assert chosen
    assert graph.delegated.issuperset(chosen)
    assert not any(graph.is_delegated(node) for node in graph.nodes if node.instruction >= 0)


def test_a_payload_that_cannot_be_read_tells_nothing(made: Callable[[str], Made]) -> None:
    program = read_program(made("rotary_dynamic_int8").path("pte"))
    method = program.method("forward")
    calls = [call for call in method.instructions if call.kind == "delegate"]
    assert all(len(origins(program, method, call)) == len(call.outputs) for call in calls)
    for end in (0, 8, 30, 200):
        cut = replace(program, segments=tuple(part[:end] for part in program.segments))
        assert [origins(cut, method, call) for call in calls] == [[]] * len(calls)


@pytest.mark.parametrize("limit", [math.nan, math.inf, -math.inf, 6.0])
def test_a_packed_payload_has_its_numbers(made: Callable[[str], Made], limit: float) -> None:
    program = read_program(made("delegate_fp32").path("pte"))
    method = program.method("forward")
    index = next(call.index for call in method.instructions if call.kind == "delegate")
    data = program.payload("forward", index)
    assert data is not None
    unpacked = unpack(Payload(data, program.named))
    node = unpacked.graph["xnodes"][0]
    node["output_min_max"] = {"output_min": -1.0, "output_max": limit}
    again = unpack(Payload(memoryview(pack_graph(unpacked)), program.named)).graph
    assert again["xnodes"][0]["output_min_max"]["output_max"] == pytest.approx(limit, nan_ok=True)
    assert [one["xnode_union_type"] for one in again["xnodes"]] == [
        one["xnode_union_type"] for one in unpacked.graph["xnodes"]
    ]


def test_parts_along_axes_that_are_not_there_tell_nothing(made: Callable[[str], Made]) -> None:
    files = made("rotary_dynamic_int8")
    record, program = ETRecord(files.path("etrecord")), read_program(files.path("pte"))
    method = program.method("forward")
    edge, handles = record.edge_graph("forward"), record.debug_handles("forward")
    parts = [node for node in edge.nodes if node.target == "aten.slice_copy.Tensor"]
    for node in parts:
        node.kwargs = {**node.kwargs, "dim": 99}
    assert parts
    assert derive(method, edge, handles, None, partial(origins, program, method)).values


def test_the_order_tells_alike_operators_apart() -> None:
    nodes = [Node(f"sin_{i}", "aten.sin.default", (Ref(f"sin_{i - 1}" if i else "x"),)) for i in range(4)]
    graph = Graph("forward", [Input("x", "user")], nodes, [Ref("sin_3")])
    order = Order(graph, delegates=())
    possible = {node.name: [5, 7, 8, 11] for node in nodes}
    spans = order.spans(possible)
    fitting = [[at for at in (5, 7, 8, 11) if order.fits(at, spans[node.name])] for node in nodes]
    assert fitting == [[5], [7], [8], [11]]
    spans = Order(graph, delegates={5, 7, 8, 11}).spans(possible)
    assert [spans[node.name] for node in nodes] == [(-1, 11), (5, 11), (5, 11), (5, math.inf)]


def test_as_many_kernels_as_operators_take_them() -> None:
    assert takers({1: {"a", "b"}, 2: {"b", "a"}, 3: {"b", "c"}}) == {"a": {1, 2}, "b": {1, 2}}


def test_quantized_kernels_are_known_where_nothing_was_lowered() -> None:
    """Only lowering registers their out variants; somebody who loads files has not lowered."""
    kernels = ["dequantize_per_channel.out", "quantize_per_tensor.out", "choose_qparams.Tensor_out", "nothing.out"]
    code = (
        "from etviz.upstream.operators import runtime_operator as known\n"
        f"print(*[(known('quantized_decomposed::' + kernel) or ['none'])[0] for kernel in {kernels}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    names = ["dequantize_per_channel.default", "quantize_per_tensor.default", "choose_qparams.tensor"]
    assert done.stdout.split() == [*(f"quantized_decomposed.{name}" for name in names), "none"]
