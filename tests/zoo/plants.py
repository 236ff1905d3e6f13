"""The planted faults of the zoo, as data: what a real bug would have done to a program before it was lowered.

The structure of the program stays as it is, so that the reference of the right one fits instruction by instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.export import ExportedProgram

Change: TypeAlias = Callable[[ExportedProgram], None]
Node: TypeAlias = Any
"""An `fx.Node`; what its arguments are depends on its target."""


@dataclass(frozen=True)
class Plant:
    """A fault in a program of `programs.RECIPES`; `quick` ones are part of `make test`."""

    base: str
    kind: str
    change: Change
    quick: bool = False

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return f"{self.base}: {self.kind}"


def call(program: ExportedProgram, op: str, index: int) -> Node:
    """The operator of a name that comes at a place among its like."""
    found = [n for n in program.graph.nodes if n.op == "call_function" and f".{op}." in f".{n.target}."]
    return found[index]


def constant(op: str, index: int, position: int, change: Callable[[Tensor], Tensor]) -> Change:
    """Change a weight: the argument at a position of an operator, also where it is dequantized, or moved, before."""

    def apply(program: ExportedProgram) -> None:
        node, part = call(program, op, index).args[position], ""
        while node.op == "call_function":
            part = node.args[1] if "access_subclass" in str(node.target) else part
            node = node.args[0]
        signature = program.graph_signature
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        name = {**names, **signature.inputs_to_lifted_tensor_constants}[node.name]
        old: Any = (program.state_dict if name in program.state_dict else program.constants)[name]
        old = (getattr(old, part) if part else old).detach()
        new = change(old.double())
        if not old.is_floating_point():
            new = new.round().clamp(-127, 127)
        assert new.shape == old.shape
        assert not torch.equal(new.to(old.dtype), old), "the change changes nothing"
        with torch.no_grad():
            old.copy_(new)

    return apply


def argument(op: str, index: int, place: int | str, value: Any) -> Change:
    """Change an argument that is no tensor; `value` may be a function of what it was. Those before it become False."""

    def apply(program: ExportedProgram) -> None:
        node = call(program, op, index)
        if isinstance(place, str):
            assert node.kwargs.get(place) != value, "the change changes nothing"
            node.kwargs = {**node.kwargs, place: value}
        else:
            args = [*node.args, *[False] * (place + 1 - len(node.args))]
            old = args[place] if place < len(node.args) else None
            args[place] = value(old) if callable(value) else value
            assert args[place] != old, "the change changes nothing"
            node.args = tuple(args)
        program.graph_module.recompile()

    return apply


def together(*changes: Change) -> Change:
    """Changes that make one fault."""

    def apply(program: ExportedProgram) -> None:
        for change in changes:
            change(program)

    return apply


def scaled(factor: float, channel: int = 3) -> Callable[[Tensor], Tensor]:
    """One output channel is multiplied."""

    def change(weight: Tensor) -> Tensor:
        weight = weight.clone()
        weight[channel] *= factor
        return weight

    return change


def swapped(size: int, first: int = 0, second: int = 1) -> Callable[[Tensor], Tensor]:
    """Two heads of `size` channels change places."""

    def change(weight: Tensor) -> Tensor:
        order = list(range(weight.shape[0] // size))
        order[first], order[second] = order[second], order[first]
        return weight.unflatten(0, (-1, size))[order].flatten(0, 1)

    return change


def stale(weight: Tensor) -> Tensor:
    """The weight of an earlier checkpoint: a twentieth of its size away."""
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(7), dtype=weight.dtype)
    return weight + 0.05 * weight.square().mean().sqrt() * noise


def transposed(weight: Tensor) -> Tensor:
    """A square matrix the wrong way round."""
    return weight.T


def dropped(bias: Tensor) -> Tensor:
    """No bias."""
    return torch.zeros_like(bias)


def other_base(frequencies: Tensor) -> Tensor:
    """Rotary frequencies of another base: 1000 for 100."""
    return frequencies**1.5


def epsilon(norm: str, index: int) -> Change:
    """1e-3 in a norm that has much less."""
    return argument(norm, index, {"layer_norm": 4, "rms_norm": 3, "batch_norm": 7}[norm], 1e-3)


def dilation(index: int) -> Change:
    """A 3×3 convolution that looks one pixel too far; its padding makes up for the shape."""
    return together(argument("conv2d", index, 4, [2, 2]), argument("conv2d", index, 5, [2, 2]))


def grid(index: int, place: int, value: Callable[[Any], Any]) -> Change:
    """Another grid, for the quantization of an activation and the dequantization behind it."""
    return together(
        argument("quantize_per_tensor.default", index, place, value),
        argument("dequantize_per_tensor.default", index, place, value),
    )


def _plants(base: str, faults: dict[str, Change], quick: Container[str] = ()) -> list[Plant]:
    return [Plant(base, kind, change, kind in quick) for kind, change in faults.items()]


_ALL = [
    *_plants(
        "vit fp32 xnnpack",
        {
            "epsilon of a layer norm": epsilon("layer_norm", 1),
            "query heads swapped": constant("linear", 0, 1, swapped(16)),
            "channel of an MLP × 1.1": constant("linear", 4, 1, scaled(1.1)),
            "channel of the patches × 0": constant("conv2d", 0, 1, scaled(0)),
        },
    ),
    *_plants(
        "resnet fp32 xnnpack",
        {
            "epsilon of a batch norm": epsilon("batch_norm", 2),
            "stale running mean": constant("batch_norm", 1, 3, stale),
            "channel of a convolution × 0": constant("conv2d", 3, 1, scaled(0)),
            "dilation": dilation(2),
        },
    ),
    *_plants(
        "rotary fp32 xnnpack",
        {
            "rotary frequency": constant("mul.Tensor", 0, 1, other_base),
            "scale of attention": argument("div.Tensor", 0, 1, 8.0),
            "output projection transposed": constant("linear", 3, 1, transposed),
            "epsilon of an RMS norm": epsilon("rms_norm", 2),
            "stale weight": constant("linear", 12, 1, stale),
        },
    ),
    *_plants(
        "distilbert fp32 xnnpack",
        {
            "bias dropped": constant("linear", 4, 2, dropped),
            "key heads swapped": constant("linear", 7, 1, swapped(16)),
            "value projection transposed": constant("linear", 2, 1, transposed),
            "epsilon of a layer norm": epsilon("layer_norm", 3),
        },
    ),
    *_plants(
        "unet fp32 xnnpack",
        {
            "dilation": dilation(1),
            "stale transposed convolution": constant("conv_transpose2d", 0, 1, stale),
            "channel of a convolution × 1.1": constant("conv2d", 3, 1, scaled(1.1)),
        },
    ),
    *_plants(
        "pooled_cnn fp32 xnnpack",
        {"saturating range": argument("hardtanh", 1, 2, 1.5), "dilation": dilation(1)},
        quick=("saturating range",),
    ),
    *_plants(
        "convnext fp32 xnnpack",
        {
            "stale layer scale": constant("mul.Tensor", 2, 0, stale),
            "channel of a depthwise convolution × 0": constant("conv2d", 1, 1, scaled(0)),
            "epsilon of a layer norm": epsilon("layer_norm", 3),
        },
    ),
    *_plants("segformer fp32 xnnpack", {"corners aligned": argument("upsample_bilinear2d.vec", 1, 2, True)}),
    *_plants("lstm fp32 xnnpack", {"channel of the head × 1.1": constant("linear", 0, 1, scaled(1.1))}),
    *_plants(
        "bert fp32 portable",
        {
            "bias dropped": constant("linear", 5, 2, dropped),
            "value heads swapped": constant("linear", 2, 1, swapped(16)),
            "epsilon of a layer norm": epsilon("layer_norm", 2),
            "output projection transposed": constant("linear", 9, 1, transposed),
        },
    ),
    *_plants(
        "gelu_erf fp32 portable",
        {"tanh for erf in a GELU": argument("gelu", 1, "approximate", "tanh")},
    ),
    *_plants(
        "rotary fp32 portable",
        {
            "rotary frequency": constant("mul.Tensor", 0, 1, other_base),
            "scale of attention": argument("div.Tensor", 1, 1, 8.0),
            "stale embedding": constant("embedding", 0, 0, stale),
            "channel of a projection × 1.1": constant("linear", 8, 1, scaled(1.1)),
        },
    ),
    *_plants(
        "pooled_cnn fp32 portable",
        {
            "padding not counted in an average": argument("avg_pool2d", 0, 5, False),
            "epsilon of a batch norm": epsilon("batch_norm", 1),
            "dilation": dilation(2),
            "saturating range": argument("hardtanh", 1, 2, 1.5),
        },
        quick=("padding not counted in an average", "epsilon of a batch norm"),
    ),
    *_plants(
        "normalised fp32 portable",
        {"epsilon of a layer norm": epsilon("layer_norm", 1)},
        quick=("epsilon of a layer norm",),
    ),
    *_plants("whisper_encoder fp32 portable", {"channel of a convolution × 0": constant("conv1d", 1, 1, scaled(0))}),
    *_plants(
        "vit fp16 portable",
        {
            "output projection transposed": constant("linear", 3, 1, transposed),
            "channel of an MLP × 0": constant("linear", 4, 1, scaled(0)),
            "key heads swapped": constant("linear", 7, 1, swapped(16)),
        },
    ),
    *_plants(
        "rotary fp16 portable",
        {
            "scale of attention": argument("div.Tensor", 0, 1, 8.0),
            "rotary frequency": constant("mul.Tensor", 0, 1, other_base),
            "stale weight": constant("linear", 6, 1, stale),
        },
    ),
    *_plants(
        "masked_attention fp16 portable",
        {
            "query heads swapped": constant("linear", 0, 1, swapped(8)),
            "output projection transposed": constant("linear", 1, 1, transposed),
        },
        quick=("output projection transposed",),
    ),
    *_plants(
        "pooled_cnn fp16 xnnpack",
        {"dilation": dilation(1), "channel of a convolution × 0": constant("conv2d", 2, 1, scaled(0))},
    ),
    *_plants(
        "bert bf16 portable",
        {
            "bias dropped": constant("linear", 4, 2, dropped),
            "output projection transposed": constant("linear", 3, 1, transposed),
            "query heads swapped": constant("linear", 6, 1, swapped(16)),
        },
    ),
    *_plants(
        "mlp int8 xnnpack",
        {"channel of a layer × 0": constant("linear", 0, 1, scaled(0))},
        quick=("channel of a layer × 0",),
    ),
    *_plants(
        "resnet8 int8 xnnpack",
        {
            "channel of a convolution × 0": constant("conv2d", 4, 1, scaled(0)),
            "bias dropped": constant("conv2d", 2, 2, dropped),
            "stale weight": constant("conv2d", 6, 1, stale),
        },
    ),
    *_plants(
        "pooled_cnn int8 xnnpack",
        {
            "saturating range": grid(5, 1, lambda scale: scale / 2),
            "zero point that saturates": grid(5, 2, lambda zero: zero + 60),
            "channel of a convolution × 1.1": constant("conv2d", 1, 1, scaled(1.1)),
        },
    ),
    *_plants("mobilenet_v1 int8 xnnpack", {"padding at the wrong side": argument("pad.default", 0, 1, [1, 0, 1, 0])}),
    *_plants("unet int8-tensor xnnpack", {"bias dropped": constant("conv2d", 2, 2, dropped)}),
    *_plants(
        "pooled_cnn int8 portable",
        {
            "zero point off by one": argument("quantize_per_tensor.default", 4, 2, lambda zero: zero + 1),
            "saturating range": argument("quantize_per_tensor.default", 8, 4, 60),
            "channel of a convolution × 1.1": constant("conv2d", 1, 1, scaled(1.1)),
            "stale scale of a weight": constant("dequantize_per_channel.default", 2, 1, stale),
        },
    ),
    *_plants(
        "vit int8 xnnpack",
        {
            "value heads swapped": constant("linear", 2, 1, swapped(16)),
            "bias dropped": constant("linear", 5, 2, dropped),
        },
    ),
    *_plants(
        "vit int8 portable",
        {"zero point off by one": argument("dequantize_per_tensor.default", 20, 2, lambda zero: zero + 1)},
    ),
    *_plants(
        "distilbert dynamic xnnpack",
        {
            "bias dropped": constant("linear", 5, 2, dropped),
            "query heads swapped": constant("linear", 0, 1, swapped(16)),
        },
    ),
    *_plants(
        "rotary dynamic xnnpack",
        {"channel of an MLP × 1.1": constant("linear", 4, 1, scaled(1.1))},
    ),
    *_plants("mlp dynamic xnnpack", {"channel of a layer × 0": constant("linear", 0, 1, scaled(0))}),
    *_plants(
        "deit dynamic xnnpack",
        {
            "value heads swapped": constant("linear", 2, 1, swapped(16)),
            "channel of an MLP × 0": constant("linear", 4, 1, scaled(0)),
        },
    ),
    *_plants("bert dynamic portable", {"output projection transposed": constant("linear", 3, 1, transposed)}),
    *_plants("rotary 8da4w xnnpack", {"scale of attention": argument("div.Tensor", 0, 1, 8.0)}),
    *_plants(
        "rotary weight-only portable",
        {
            "scale of attention": argument("div.Tensor", 0, 1, 8.0),
            "channel of a projection × 1.1": constant("mm.default", 8, 1, scaled(1.1)),
        },
    ),
]

PLANTS = {plant.name: plant for plant in _ALL}
