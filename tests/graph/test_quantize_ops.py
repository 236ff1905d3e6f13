"""Quantize and dequantize are the same to every part of etviz, be they PT2E's or torchao's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup

import etviz
from etviz.evaluation import affine
from etviz.evaluation.limits import Limits
from etviz.evaluation.operator_rules import Operator, resolve
from etviz.explain.attribution.float64 import Float64
from etviz.graph.exposure import expose
from etviz.graph.ir import Graph, Input, Meta, Node, Ref, Tag
from etviz.graph.quantize_ops import conversion, grid_of, spread_scales
from etviz.upstream.operators import operator_of, schema_of

X = torch.linspace(-3, 3, 40, dtype=torch.float64).reshape(5, 8)
UINT4: torch.dtype = getattr(torch, "uint4")  # noqa: B009 - unknown to the type checker
INT8 = Tag("dtype", "int8")
PT2E = {
    "per_tensor": ("per_tensor.default", (float(torch.tensor(0.02)), 3, -128, 127, INT8)),
    "per_channel": ("per_channel.default", (Ref("scale"), Ref("zero"), 0, -128, 127, INT8)),
    "per_token": ("per_token.default", (Ref("scale"), Ref("zero"), -128, 127, INT8)),
    "per_channel_group": ("per_channel_group.default", (Ref("scale"), Ref("zero"), -128, 127, INT8, 4)),
}
SHARED = {"per_tensor": (), "per_channel": (5,), "per_token": (5, 1), "per_channel_group": (5, 2)}
BLOCKS = {"per_tensor": [5, 8], "per_channel": [1, 8], "per_token": [1, 8], "per_channel_group": [1, 4]}


def _parameters(kind: str) -> dict[str, Tensor]:
    shape = SHARED[kind]
    count = int(torch.tensor(shape).prod()) if shape else 1
    scale = torch.linspace(0.01, 0.03, count).reshape(shape) if shape else torch.tensor(0.02)
    zero = torch.arange(count).reshape(shape) if shape else torch.tensor(3)
    return {"scale": scale, "zero": zero.to(torch.int8)}


def _there_and_back(quantize: Node, dequantize: Node) -> Graph:
    constants = [Input(name, "constant", name) for name in ("scale", "zero")]
    meta = Meta("float32", (5, 8))
    quantize.outputs, dequantize.outputs = (Meta("int8", (5, 8)),), (meta,)
    return Graph("both", [Input("x", "user", meta=meta), *constants], [quantize, dequantize], [Ref("d")])


def _pt2e(kind: str) -> Graph:
    name, rest = PT2E[kind]
    more = (Tag("dtype", "float32"),) if kind in ("per_token", "per_channel_group") else ()
    quantize = Node("q", f"quantized_decomposed.quantize_{name}", (Ref("x"), *rest))
    return _there_and_back(quantize, Node("d", f"quantized_decomposed.dequantize_{name}", (Ref("q"), *rest, *more)))


def _torchao(kind: str) -> Graph:
    rest = (BLOCKS[kind], Ref("scale"), Ref("zero"), INT8)
    quantize = Node("q", "torchao.quantize_affine.default", (Ref("x"), *rest))
    return _there_and_back(quantize, Node("d", "torchao.dequantize_affine.default", (Ref("q"), *rest)))


def test_every_registered_operator_is_recognised() -> None:
    """With those of ExecuTorch's formats of weights (GGUF, MX, NVFP4, int4), which torchao's library takes."""
    code = """
import json, torch
import executorch.extension.llm.export.gguf, executorch.extension.llm.export.int4
import executorch.extension.llm.export.mx, executorch.extension.llm.export.nvfp4
from etviz.graph.quantize_ops import LIBRARIES
from etviz.upstream.libraries import load_operator_library
for library in LIBRARIES:
    load_operator_library(library)
print(json.dumps([[str(s.name), s.overload_name or "default"] for s in torch._C._jit_get_all_schemas()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seen, formats = set(), set()
    for name, overload in json.loads(done.stdout.splitlines()[-1]):
        library, _, operator = name.partition("::")
        for kind in ("quantize", "dequantize", "choose_qparams"):
            if library in ("quantized_decomposed", "torchao") and operator.startswith(kind):
                assert conversion(f"{library}.{operator}.{overload}") == kind
                assert conversion(f"{operator}_default_2") == kind == conversion(f"{library}_{operator}_default")
                seen.add((library, kind))
                formats.add(operator)
    assert len(seen) == 6
    assert formats >= {f"dequantize_{name}" for name in ("gguf", "int4_tensor", "mx", "nvfp4")}
    assert not any(map(conversion, ("aten.add.Tensor", "aten.dequantize.self", "my_quantize_per_tensor", "linear")))
    assert not any(
        map(conversion, ("mine.quantize_weights.default", "llama.quantized_moe_ffn.default", "quantized_add"))
    )


@pytest.mark.parametrize("kind", SHARED)
def test_both_libraries_round_alike_and_let_the_gradient_through(kind: str) -> None:
    results = []
    for graph in (_pt2e(kind), _torchao(kind)):
        x = X.clone().requires_grad_()
        (value,) = Float64(_parameters(kind), Limits()).call(graph, [x])
        value.square().sum().backward()
        results.append((value.detach(), x.grad))
    (pt2e, by_pt2e), (torchao, by_torchao) = results
    torch.testing.assert_close(pt2e, torchao, rtol=0, atol=0)
    assert by_pt2e is not None
    assert by_torchao is not None
    torch.testing.assert_close(by_pt2e, by_torchao, rtol=0, atol=0)
    assert 0 < torch.count_nonzero(by_pt2e) < by_pt2e.numel() or kind != "per_tensor"  # the ends are clipped


@pytest.mark.parametrize("kind", SHARED)
def test_grid_and_exposure_are_the_same_for_both(kind: str) -> None:
    graphs = _pt2e(kind), _torchao(kind)
    for graph in graphs:
        spread_scales(graph)
        meta = graph.nodes[0].outputs[0]
        assert meta is not None
        assert meta.scale == 1.0
        assert "d" not in expose(Graph("in", graph.inputs, graph.nodes, [])).candidates
        assert (grid_of(graph.nodes[0]) is None) == (kind != "per_tensor")
    grid = grid_of(graphs[1].nodes[0])
    assert grid is None or (grid.scale, grid.qmin, grid.qmax) == (Ref("scale"), -128, 127)


@pytest.mark.parametrize("target", sorted(affine.TARGETS))
def test_schemas_are_torchaos_own(target: str) -> None:
    registered = operator_of(target)
    operator = resolve(target)
    assert isinstance(operator, Operator)
    assert str(operator.schema) == str(schema_of(registered))


def _results(target: str, *args: object, **kwargs: object) -> list[Tensor]:
    """What torchao gives, and the evaluation's own function: the same bits, types and shapes."""
    own, theirs = affine.AffineOperator(target)(*args, **kwargs), operator_of(target)(*args, **kwargs)
    pairs = [(own, theirs)] if isinstance(own, Tensor) else list(zip(own, theirs, strict=True))
    for a, b in pairs:
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    return [a for a, _ in pairs]


@pytest.mark.parametrize("block", [[1, 24], [3, 24], [1, 4], [3, 1]])
@pytest.mark.parametrize("mapping", ["SYMMETRIC", "ASYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, UINT4])
def test_affine_operators_give_the_bits_of_torchao(block: list[int], mapping: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 24, generator=generator) * torch.tensor([[1e-3], [1.0], [1e4]]) + 0.1
    x[0, 0], x[1, 1] = 0.0, float("inf") if mapping == "SYMMETRIC" else 3.0
    ends = (0, 15) if dtype == UINT4 else (None, None)
    target = "torchao.choose_qparams_affine.default"
    scale, zero = _results(target, x, mapping, block, dtype, *ends, 1e-7, keepdim=True)
    if dtype != torch.int32:  # float16 does not reach so far
        _results(target, x.half(), mapping, block, dtype, *ends, None, torch.float32, torch.int8)
    _results(target, x.double(), mapping, block, dtype)
    (q,) = _results("torchao.quantize_affine.default", x, block, scale, zero, dtype)
    for given in (zero, None):
        _results("torchao.dequantize_affine.default", q, block, scale, given, dtype)
        _results("torchao.dequantize_affine.default", q, block, scale.double(), given, dtype, *ends, torch.float16)


@pytest.mark.parametrize("groups", [0, 1, 3])
@pytest.mark.parametrize(("name", "bits"), [("2bit", 2), ("4bit", 4), ("byte", 8)])
def test_embeddings_give_the_bits_of_executorch(name: str, bits: int, groups: int) -> None:
    generator = torch.Generator().manual_seed(bits)
    weight = torch.randint(256, (7, 3 * bits), generator=generator, dtype=torch.uint8)
    scales = torch.rand((7, groups) if groups else (7,), generator=generator)
    indices, ends = torch.tensor([[6, 0], [3, 3]]), (-(1 << bits - 1), (1 << bits - 1) - 1)
    for table in (weight, weight.view(torch.int8)) if bits == 8 else (weight,):
        for zeros in (None, (scales * 9).round()):
            for end, more in (("default", {}), ("dtype", {"dtype": torch.float16})):
                target = f"quantized_decomposed.embedding_{name}.{end}"
                (value,) = _results(target, table, scales, zeros, *ends, indices, **more)
                assert value.shape == (2, 2, 24)
    with pytest.raises(IndexError):
        resolve(f"quantized_decomposed.embedding_{name}.dtype")(
            weight, scales, None, *ends, indices + 1, dtype=torch.float32
        )


def test_an_embedding_of_four_bits_keeps_the_exporter_out() -> None:
    code = """
import sys, torch
from etviz.evaluation.operator_rules import resolve
embed = resolve("quantized_decomposed.embedding_4bit.dtype")
table = torch.full((2, 4), 0x79, dtype=torch.uint8), torch.full((2, 1), 0.5)
print(embed(*table, None, -8, 7, torch.tensor([1]), dtype=torch.float32).tolist(), "executorch.exir" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[[-0.5, 0.5] * 4]} False\n"


@pytest.mark.parametrize("mapping", ["SYMMETRIC", "ASYMMETRIC"])
def test_affine_operators_have_the_gradients_of_torchao(mapping: str) -> None:
    found = []
    for call in (affine.AffineOperator, operator_of):
        x = X.float().requires_grad_()
        scale, zero = call("torchao.choose_qparams_affine.default")(
            x, mapping, [1, 8], torch.int8, None, None, None, None, torch.float32
        )
        q = call("torchao.quantize_affine.default")(x, [1, 8], scale, zero, torch.int8)
        (scale * torch.arange(1, 6) + zero.square()).sum().backward()
        found.append((q, x.grad))
    (q, own), (expected, theirs) = found
    assert torch.equal(q, expected)
    assert torch.equal(own, theirs)
    assert torch.count_nonzero(own) > 0


def test_affine_operators_refuse_what_torchao_refuses() -> None:
    x, scale, zero = torch.ones(3, 4), torch.ones(3, 1), torch.zeros(3, 1, dtype=torch.int32)
    for args in (
        (x, [1, 3], scale, zero, torch.int8),
        (x, [4], scale, zero, torch.int8),
        (x.double(), [1, 4], scale, zero, torch.int8),
    ):
        for call in (
            affine.AffineOperator("torchao.quantize_affine.default"),
            operator_of("torchao.quantize_affine.default"),
        ):
            with pytest.raises(AssertionError):
                call(*args)


class Feed(nn.Module):
    """Two linears with an activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.down(torch.relu(self.up(x))))


def test_a_model_that_torchao_quantized_in_groups(tmp_path: Path) -> None:
    """Its activations are quantized at run time, which is what the delegate's error has to be measured by."""
    torch.manual_seed(0)
    model = Feed().eval()
    int4: torch.dtype = torch.int4  # pyright: ignore[reportAttributeAccessIssue]
    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=int4, weight_granularity=PerGroup(32)))
    inspection = etviz.debug(model, (torch.randn(5, 64),), partitioner=[XnnpackPartitioner()], workdir=tmp_path)
    (row,) = inspection.gaps.to_dict("records")
    assert row["reference_ops"] == "linear, relu, linear_1, sin"
    assert 0 < row["introduced_severity"] < 5
    assert "chosen at run time" in row["reason"]
    assert "for the whole tensor" not in row["reason"]  # one for each row, as XNNPACK's
