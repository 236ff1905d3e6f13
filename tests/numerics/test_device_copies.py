"""Copies between host and device are identities of the reference."""

from __future__ import annotations

import torch

from etviz.evaluation.evaluator import Evaluator
from etviz.graph.ir import Graph, Input, Meta, Node, Ref
from etviz.graph.uses import only_moves
from etviz.upstream.operators import runtime_operator


def test_copies_change_nothing() -> None:
    meta = Meta("float32", (2, 3))
    nodes = [
        Node("there", "et_copy._h2d_copy.default", (Ref("x"),), outputs=(meta,), instruction=0),
        Node("doubled", "aten.add.Tensor", (Ref("there"), Ref("there")), outputs=(meta,), instruction=1),
        Node("back", "et_copy._d2h_copy.default", (Ref("doubled"),), outputs=(meta,), instruction=2),
    ]
    graph = Graph("forward", [Input("x", "user", meta=meta)], nodes, [Ref("back")])
    x = torch.randn(2, 3)
    (found,) = Evaluator(graph, {}).run([x])
    assert torch.equal(found, x + x)
    assert only_moves(nodes[0])
    assert not only_moves(nodes[1])


def test_kernels_are_known_by_their_names() -> None:
    for name in ("_h2d_copy", "_d2h_copy"):
        assert runtime_operator(f"et_copy::{name}.out") == (f"et_copy.{name}.default", (("self", None),))
