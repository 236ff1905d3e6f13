"""Large weights that are dequantized: the operators' own bits, in memory that is used again but never too early."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import etviz
from etviz.artifacts.buffers import Buffers
from etviz.evaluation.affine import PER_TENSOR
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.limits import Limits
from etviz.evaluation.noise import Lanes
from etviz.evaluation.operator_rules import resolve
from etviz.evaluation.unpacked import Unpacked
from etviz.explain.attribution.float64 import Float64
from etviz.graph.ir import Graph, Input, Meta, Node, Ref, Tag
from etviz.upstream.operators import operator_of
from tests.numerics.test_hypotheses import run_against

ROWS, COLUMNS = 1024, 1056


def packed(dtype: torch.dtype = torch.int8) -> torch.Tensor:
    low, high = (0, 256) if dtype == torch.uint8 else (-128, 128)
    return torch.randint(low, high, (ROWS, COLUMNS), generator=torch.Generator().manual_seed(0)).to(dtype)


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1)) / 100


def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(-8, 8, shape, generator=torch.Generator().manual_seed(2)).to(dtype)


PER_CHANNEL = "quantized_decomposed.dequantize_per_channel.default"
PER_GROUP = "quantized_decomposed.dequantize_per_channel_group.default"
AFFINE = "torchao.dequantize_affine.default"
GRIDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "tensor": ("quantized_decomposed.dequantize_per_tensor.default", (0.013, 3, -128, 127, torch.int8)),
    "channel": (PER_CHANNEL, (scales(ROWS), zeros(ROWS, dtype=torch.int64), 0, -128, 127, torch.int8)),
    "last channel": (PER_CHANNEL, (scales(COLUMNS), zeros(COLUMNS, dtype=torch.int32), 1, -128, 127, torch.int8)),
    "group": (
        PER_GROUP,
        (scales(ROWS, 33), zeros(ROWS, 33, dtype=torch.int32), -8, 7, torch.int8, 32, torch.float32),
    ),
    "affine": (AFFINE, ([1, 32], scales(ROWS, 33), zeros(ROWS, 33, dtype=torch.int8), torch.int8, -128, 127)),
    "affine without zero": (AFFINE, ([1, 32], scales(ROWS, 33), None, torch.int8, -128, 127)),
}


@pytest.mark.parametrize("name", GRIDS)
def test_weights_as_the_operators_dequantize_them(name: str) -> None:
    target, rest = GRIDS[name]
    expected = resolve(target)(packed(), *rest)
    found = Unpacked().dequantized(target, (packed(), *rest), {}, torch.float32)
    assert found is not None
    assert torch.equal(found.view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("name", GRIDS)
def test_weights_in_float64_are_not_rounded(name: str) -> None:
    target, rest = GRIDS[name]
    wide = [item.double() if isinstance(item, torch.Tensor) and item.is_floating_point() else item for item in rest]
    found = Unpacked().dequantized(target, (packed(), *wide), {}, torch.float64)
    assert found is not None
    expected = resolve(target)(packed(), *rest).double()
    assert torch.allclose(found, expected, rtol=2.0**-23, atol=0)
    assert not torch.equal(found, expected)


@pytest.mark.parametrize(
    "rest",
    [
        ([1, 31], scales(ROWS, 33), None, torch.int8, -128, 127),
        ([1, 0], scales(ROWS, 33), None, torch.int8, -128, 127),
        ([1, 32], scales(ROWS, 32), None, torch.int8, -128, 127),
        ([1, 32], scales(ROWS, 33).double(), None, torch.int8, -128, 127),
        ([32], scales(ROWS, 33), None, torch.int8, -128, 127),
    ],
)
def test_what_does_not_fit_is_left_to_the_operator(rest: tuple[Any, ...]) -> None:
    assert Unpacked().dequantized(AFFINE, (packed(), *rest), {}, torch.float32) is None


def test_memory_is_given_to_the_next_when_nobody_refers_to_it() -> None:
    buffers = Buffers()
    first = buffers.empty((ROWS, COLUMNS), torch.float32)
    address, row = first.data_ptr(), first[3]
    del first
    second = buffers.empty((ROWS, COLUMNS), torch.float32)
    assert second.data_ptr() != address, "a row of the first is still there"
    del row
    assert buffers.empty((ROWS, COLUMNS), torch.float32).data_ptr() == address


def test_weights_that_follow_one_another_keep_their_values() -> None:
    """More of them than are kept, read by views and by copies, in an evaluation that goes over all of them twice."""
    shape, graph, constants = (4096, 2048), Graph("forward"), dict[str, torch.Tensor]()
    graph.inputs = [Input("x", "user", "x", Meta("float32", (2048,), None))]
    for at in range(8):
        constants[f"w{at}"] = torch.full(shape, at + 1, dtype=torch.int8)
        graph.inputs.append(Input(f"w{at}", "constant", f"w{at}", None))
        meta = (Meta("float32", shape, None),)
        grid = (1.0, 0, -128, 127, Tag("dtype", "int8"))
        target = "quantized_decomposed.dequantize_per_tensor.default"
        graph.nodes += [
            Node(f"d{at}", target, (Ref(f"w{at}"), *grid), {}, outputs=meta),
            Node(f"s{at}", "aten.select_copy.int", (Ref(f"d{at}"), 0, 0), {}),
            Node(f"m{at}", "aten.mv.default", (Ref(f"d{at}"), Ref("x")), {}),
        ]
        graph.outputs += [Ref(f"s{at}"), Ref(f"m{at}")]
    evaluator = Evaluator(graph, constants, Limits(1 << 30))

    for _ in range(2):
        for at, value in enumerate(evaluator.run([torch.ones(2048)])):
            assert value.unique().tolist() == [(at // 2 + 1) * (2048 if at % 2 else 1)]


def _feed(target: str, rest: tuple[Any, ...], tokens: int, *, bias: bool) -> tuple[Graph, dict[str, torch.Tensor]]:
    """A delegate: one linear over a quantized weight, its arguments by position or, with a bias, by name."""
    constants = {"w": packed(), "b": scales(ROWS)}
    shape, made = (tokens, COLUMNS), (Meta("float32", (tokens, ROWS)),)
    args = []
    for at, item in enumerate(rest):
        args.append(Ref(f"c{at}") if isinstance(item, torch.Tensor) else item)
        constants |= {f"c{at}": item} if isinstance(item, torch.Tensor) else {}
    fixed = [Input(name, "constant", name) for name in constants]
    product = Node("y", "aten.linear.default", (Ref("x"), Ref("d")), outputs=made)
    if bias:
        product = Node("y", "aten.linear.default", (), {"input": Ref("x"), "weight": Ref("d"), "bias": Ref("b")}, made)
    nodes = [Node("d", target, (Ref("w"), *args), outputs=(Meta("float32", (ROWS, COLUMNS)),)), product]
    given = Input("x", "user", meta=Meta("float32", shape))
    inner = Graph("inner", [given, *fixed], nodes, [Ref("y")], backend_id="XnnpackBackend")
    call = Node("call", "delegate", (Ref("x"),), outputs=made, subgraphs=("inner",))
    item = Node("out", "getitem", (Ref("call"), 0), outputs=made)
    return Graph("forward", [given], [call, item], [Ref("out")], subgraphs={"inner": inner}), constants


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", GRIDS)
def test_products_take_weights_by_rows(name: str, bias: bool, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of the product with the whole weight; perturbed lanes are multiplied together."""
    graph, constants = _feed(*GRIDS[name], tokens, bias=bias)
    x = torch.randn(tokens, COLUMNS, generator=torch.Generator().manual_seed(3))
    results: list[list[torch.Tensor]] = []
    whole: list[int] = []
    original, own_streams = Unpacked.value, Unpacked.streams
    monkeypatch.setattr(Unpacked, "value", lambda self, *args: whole.append(1) or original(self, *args))
    for streams in (own_streams, lambda *_: False):
        monkeypatch.setattr(Unpacked, "streams", streams)
        evaluator = Evaluator(graph, constants, Limits(1 << 30))
        (plain,) = evaluator.run([x])
        lanes = Lanes(Evaluator(graph, constants, Limits(1 << 30)), range(2))
        (again,) = lanes.run([x])
        others = [outputs[0] for outputs in lanes.perturbed_outputs]
        assert all(not torch.equal(plain, other) for other in others)
        results.append([plain, again, *others])
        assert bool(whole) == (streams is not own_streams), "dequantized as a whole"
    for own, expected in zip(*(found[:2] for found in results), strict=True):
        assert torch.equal(own, expected)
    by_rows, as_a_whole = ([float((other - found[0]).square().mean()) for other in found[2:]] for found in results)
    assert by_rows == pytest.approx(as_a_whole, rel=0.5)
    direct = resolve("aten.linear.default")(
        x, resolve(GRIDS[name][0])(packed(), *GRIDS[name][1]), constants["b"] if bias else None
    )
    assert torch.equal(results[0][0], direct)


@pytest.mark.parametrize("bias", [False, True])
def test_products_in_float64_take_weights_by_rows(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients of the product with the whole weight, for one operand and for several at once."""
    graph, constants = _feed(*GRIDS["group"], 3, bias=bias)
    x = torch.randn(3, COLUMNS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    scale, zero = (item.double().repeat_interleave(32, dim=1) for item in GRIDS["group"][1][:2])
    weight = (packed().double() - zero) * scale
    monkeypatch.setattr(Unpacked, "value", lambda *_: pytest.fail("dequantized as a whole"))
    float64, leaf = Float64(constants, Limits(1 << 30), graph), x.clone().requires_grad_()

    (value,) = float64.call(graph, [leaf])
    value.square().sum().backward()
    expected = x @ weight.T + (constants["b"].double() if bias else 0.0)
    assert leaf.grad is not None
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(leaf.grad, 2 * expected @ weight, rtol=1e-12, atol=1e-10)

    starts = [(float64.begin(graph, [x * times], {}), lambda node, value: value) for times in (1.0, 2.0)]
    for times, outputs in zip((1.0, 2.0), float64.finish(graph, starts), strict=True):
        (alone,) = float64.call(graph, [x * times])
        torch.testing.assert_close(outputs[0], alone, rtol=1e-13, atol=1e-13)


def test_tables_are_not_widened_when_rows_are_taken_out() -> None:
    """The constant that an embedding reads stays as it is; one that another operator reads too is widened."""
    table = torch.rand(50, 4)
    rows = Node("rows", "aten.embedding.default", (Ref("table"), Ref("ids")))
    twice = Node("twice", "aten.mul.Tensor", (Ref("table"), 2.0))
    for nodes, dtype in (([rows], torch.float32), ([rows, twice], torch.float64)):
        given = [Input("ids", "user"), Input("table", "constant", "w")]
        graph = Graph("forward", given, nodes, [Ref("rows")])
        float64 = Float64({"w": table}, Limits(), graph)
        assert float64.constants["w"].dtype == dtype
        (found,) = float64.call(graph, [torch.tensor([3, 1])])
        assert torch.equal(found, table[[3, 1]].double())


class Rearranged(nn.Module):
    """A product whose weight is dequantized, then transposed: the second operator reads what the first one gave."""

    def __init__(self, sign: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        numbers = torch.randint(-100, 100, (6, 8), dtype=torch.int8)
        numbers[2] *= sign
        self.register_buffer("numbers", numbers)
        self.register_buffer("scales", scales(6))
        self.register_buffer("zeros", torch.zeros(6, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.numbers, self.scales, self.zeros, 0, -127, 127, torch.int8
        )
        return torch.sin(x @ weight.t().contiguous())


def test_what_rearranges_a_wrong_weight_is_not_blamed_and_the_weight_is_proved(tmp_path: Path) -> None:
    inputs = (torch.randn(3, 8),)
    run_against(Rearranged(-1), Rearranged(1), inputs, tmp_path)
    found = etviz.load(
        tmp_path / "wrong/etdump.etdp",
        etrecord=tmp_path / "right/etrecord.bin",
        debug_buffer=tmp_path / "wrong/debug_buffer.bin",
        record=tmp_path / "adopted.etviz",
        pte=tmp_path / "wrong/model.pte",
        inputs=inputs,
    )
    blamed = found.gaps.index[found.gaps["introduced_severity"] > 1].tolist()
    assert [found.gaps["op"][row] for row in blamed] == ["quantized_decomposed::dequantize_per_channel.out"]
    assert found.attribution()["share"][blamed[0]] == pytest.approx(1, abs=1e-3)
    proved = found.what_if(blamed[0])
    assert proved.before["rmse"][0] > 0.1
    assert proved.after["rmse"][0] < 1e-6


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "dtype"), [(-128, 127, torch.int8), (0, 255, torch.uint8), (-9, 9, torch.int32)]
)
def test_values_go_to_a_grid_and_back_as_upstream_rounds_them(
    low: int, high: int, dtype: torch.dtype, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr("etviz.native._library", lambda: None)
    steps = torch.cat([torch.arange(-300.0, 300) / 2, scales(5000) * 1e5, torch.tensor([0.0, -0.0, 1e30, -1e38])])
    for step, zero in ((0.0137, 3), (0.25, low)):
        for x in (steps * step, torch.cat([steps, torch.tensor([math.inf, -math.inf])]), (steps * step)[::3]):
            grid = (step, zero, low, high, dtype)
            found = resolve(PER_TENSOR)(x, *grid)
            assert torch.equal(found, operator_of(PER_TENSOR)(x, *grid))
            back = PER_TENSOR.replace(".quantize", ".dequantize")
            assert torch.equal(resolve(back)(found, *grid), operator_of(back)(found, *grid))
