"""Events that a backend timed inside of its delegate, joined to operators."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from etviz.analysis.inner_events import CERTAIN, LIKELY, join_events
from etviz.analysis.profile import Profile, events_frame
from etviz.artifacts.etdump.etdump import ProfileEvents, RunBlock
from etviz.graph.ir import Graph, Node
from tests.programs import Executed


def _graph(*targets: str) -> Graph:
    nodes = [Node(f"n{at}", target, handles=(at,)) for at, target in enumerate(targets)]
    return Graph("inner", nodes=nodes, backend_id="XnnpackBackend")


def test_kinds_in_their_order_only_where_all_of_a_kind_were_timed() -> None:
    graph = _graph(
        "aten.linear.default", "aten.add.Tensor", "aten.linear.default", "aten.mul.Tensor", "aten.mul.Tensor"
    )
    names = [
        "Fully Connected (NC, F32) GEMM #1",
        "Add (ND) #1",
        "Fully Connected (NC, F32) GEMM #2",
        "Multiply (ND) #1",
    ]
    found = join_events(graph, names, {})
    assert {name: (item.node.name, item.confidence) for name, item in found.items()} == {
        names[0]: ("n0", LIKELY),
        names[1]: ("n1", LIKELY),
        names[2]: ("n2", LIKELY),
    }


def test_a_delegate_map_and_names_are_believed() -> None:
    graph = _graph("aten.linear.default", "aten.add.Tensor", "aten.relu.default")
    found = join_events(graph, ["17", "n0", "nothing"], {"17": (1, 2)})
    assert {name: (item.node.name, item.confidence) for name, item in found.items()} == {
        "17": ("n2", CERTAIN),
        "n0": ("n0", CERTAIN),
    }


def test_events_of_xnnpack(executed: Callable[[str], Executed]) -> None:
    events = executed("encoder").inspection.events
    likely = events[events.confidence == LIKELY]
    assert len(likely) > 20
    linear = likely[likely.name.str.startswith("Fully Connected")]
    assert {tuple(ops) for ops in linear.op_types} == {("aten.linear.default",)}
    assert (linear.module != "").all()
    assert linear.operator.str.startswith("aten_linear_default").all()
    assert (events[events.name == "DELEGATE_CALL"].confidence == "").all()


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ([b'{"delegate_node_id": 3}', b""], [{"delegate_node_id": 3}, None]),
        ([b"{not json"], None),
        ([b"\x00\x01"], None),
        ([b"[1, 2]"], None),
        ([b"{" * 5000], None),
        ([json.dumps({"kernel": "<script>"}).encode()], [{"kernel": "<script>"}]),
    ],
)
def test_json_of_a_backend_is_read_by_default(metadata: list[bytes], expected: object) -> None:
    """What Vulkan attaches to its events."""
    count = len(metadata)
    text = np.empty(count, object)
    text[:] = metadata
    name = np.array(["DELEGATE_CALL"] * count, object)
    ids = np.zeros(count, np.int64)
    ticks = np.arange(count, dtype=np.uint64)
    inner = np.array(["shader"] * count, object)
    timed = ProfileEvents(
        name=name, chain=ids, instruction_id=ids, delegate_debug_id=inner, metadata=text, start=ticks, end=ticks + 5
    )
    frame = events_frame(Profile([RunBlock("Execute", None, timed, ())]), Graph("forward"))
    if expected is None:
        assert "delegate_debug_metadatas" not in frame
    else:
        assert frame.delegate_debug_metadatas[0] == expected
