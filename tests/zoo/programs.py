"""The programs of the zoo, as data: which model, in which precision, on which backend.

Every precision and both backends have several, of every family, so that a rule that is tuned to one of them shows.
`RECIPES` are correct, and judged; `FAULTY` are those that executorch gets wrong. `KINDS` are small programs of the
kinds that users bring; `tests/kinds` checks every value of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch.utils import _pytree as pytree
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, Int8WeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from tests.zoo import models, small
from tests.zoo.models import Builder, Inputs

FLOATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
INT4: Any = getattr(torch, "int4")  # noqa: B009 - torch does not declare it
TORCHAO: dict[str, Callable[[], Any]] = {
    "weight-only": Int8WeightOnlyConfig,
    "8da4w": lambda: Int8DynamicActivationIntxWeightConfig(weight_dtype=INT4, weight_granularity=PerGroup(32)),
}
LINEAR: Any = torch.ops.aten.linear.default
CALIBRATION = 8
"""Inputs that static quantization sees, one of them the program's own."""


@dataclass(frozen=True)
class Recipe:
    """How to make a program.

    Attributes
    ----------
    precision
        A key of `FLOATS`; ``int8`` and ``int8-tensor`` (static, weights per channel or per tensor), ``dynamic``
        (int8 weights and activations, the latter's grids chosen at run time); or a key of `TORCHAO`: ``weight-only``
        (int8), ``8da4w`` (weights of 4 bits, activations as with ``dynamic``).
    backend
        ``portable``, ``xnnpack`` or ``openvino``.
    quick
        Part of `make test`.
    fault
        The operator that executorch gets wrong, if the program is not correct.
    options
        Of `torch.export.export`.
    runs
        Of a kind: inputs of each execution, the first of which are the ETRecord's.
    others
        Of a kind: further methods of the file.
    method
        Of a kind: the one that is executed.
    told
        Of a kind: the ETDump can't hold its values, so every value is an output of the program.
    same_as
        Of a kind: the one that has the same program, and of whose first execution the inputs are the ETRecord's.
    """

    name: str
    builder: Builder
    precision: str
    backend: str
    quick: bool = False
    fault: str = ""
    options: Mapping[str, Any] = field(default_factory=lambda: {"strict": True})
    runs: Callable[[], list[Inputs]] | None = None
    others: Mapping[str, Builder] = field(default_factory=dict)
    method: str = "forward"
    told: bool = False
    same_as: str = ""

    @property
    def floating(self) -> bool:
        """Whether it computes in floating point only."""
        return self.precision in FLOATS

    def partitioner(self) -> list[Any] | None:
        """What lowers it."""
        if self.backend == "openvino":
            return openvino()
        return [XnnpackPartitioner()] if self.backend == "xnnpack" else None

    def executions(self) -> list[Inputs]:
        """Inputs of each execution."""
        return self.runs() if self.runs is not None else [self.export()[1]]

    def methods(self) -> dict[str, ExportedProgram]:
        """Each method before lowering."""
        torch.manual_seed(0)
        return {name: export(*builder()) for name, builder in self.others.items()} | {"forward": self.export()[0]}

    def export(self) -> tuple[ExportedProgram, Inputs]:
        """The program before lowering, quantized if it is to be, and the inputs that it runs on."""
        torch.manual_seed(0)
        model, inputs = self.builder()
        if self.floating:
            kind = FLOATS[self.precision]
            inputs = pytree.tree_map(lambda leaf: _cast(leaf, kind), inputs)
            return export(model.to(kind), inputs, **self.options), inputs
        if self.precision in TORCHAO:
            quantize_(model, TORCHAO[self.precision]())
            return export(model, inputs, **self.options), inputs
        dynamic = self.precision == "dynamic"
        config = get_symmetric_quantization_config(is_per_channel=self.precision != "int8-tensor", is_dynamic=dynamic)
        quantizer = XNNPACKQuantizer()
        quantizer = quantizer.set_operator_type(LINEAR, config) if dynamic else quantizer.set_global(config)
        prepared = prepare_pt2e(export(model, inputs, **self.options).module(), quantizer)
        with torch.no_grad():
            prepared(*inputs)
            for _ in range(CALIBRATION - 1):
                prepared(*pytree.tree_map(_resampled, inputs))
        return export(convert_pt2e(prepared), inputs, strict=False), inputs


def _cast(leaf: Any, kind: torch.dtype) -> Any:
    return leaf.to(kind) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _resampled(leaf: Any) -> Any:
    """Other values of the same kind; integers, which are tokens and masks, stay."""
    return torch.randn_like(leaf) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def openvino() -> list[Any]:
    """OpenVINO's partitioner for the CPU; the test is skipped where it is not installed."""
    import pytest

    pytest.importorskip("openvino", reason="OpenVINO comes with the extra `openvino` of etviz")
    module = pytest.importorskip(
        "executorch.backends.openvino.partitioner",
        reason="executorch's OpenVINO backend needs nncf, which comes with the extra `openvino` of etviz",
        exc_type=ImportError,
    )
    return [module.OpenvinoPartitioner([CompileSpec("device", b"CPU")])]


def _recipe(
    name: str, builder: Builder, precision: str, backend: str, *, quick: bool = False, fault: str = ""
) -> Recipe:
    return Recipe(f"{name} {precision} {backend}", builder, precision, backend, quick, fault)


_ALL = (
    _recipe("vit", models.vit, "fp32", "xnnpack"),
    _recipe("deit", models.deit, "fp32", "xnnpack"),
    _recipe("swin", models.swin, "fp32", "xnnpack"),
    _recipe("convnext", models.convnext, "fp32", "xnnpack"),
    _recipe("resnet", models.resnet, "fp32", "xnnpack"),
    _recipe("mobilenet_v2", models.mobilenet_v2, "fp32", "xnnpack"),
    _recipe("efficientnet", models.efficientnet, "fp32", "xnnpack"),
    _recipe("segformer", models.segformer, "fp32", "xnnpack"),
    _recipe("distilbert", models.distilbert, "fp32", "xnnpack"),
    _recipe("gpt2", models.gpt2, "fp32", "xnnpack"),
    _recipe("llama", models.llama, "fp32", "xnnpack"),
    _recipe("rotary", models.rotary, "fp32", "xnnpack"),
    _recipe("unet", models.unet, "fp32", "xnnpack"),
    _recipe("pooled_cnn", models.pooled_cnn, "fp32", "xnnpack", quick=True),
    _recipe("lstm", models.lstm, "fp32", "xnnpack"),
    _recipe("example_lstm", models.example_lstm, "fp32", "xnnpack"),
    _recipe("bert", models.bert, "fp32", "portable"),
    _recipe("albert", models.albert, "fp32", "portable"),
    _recipe("mobilebert", models.mobilebert, "fp32", "portable"),
    _recipe("t5_encoder", models.t5_encoder, "fp32", "portable"),
    _recipe("whisper_encoder", models.whisper_encoder, "fp32", "portable"),
    _recipe("dinov2", models.dinov2, "fp32", "portable"),
    _recipe("llama_cache", models.example_llama(cache=True), "fp32", "portable"),
    _recipe("rotary", models.rotary, "fp32", "portable"),
    _recipe("pooled_cnn", models.pooled_cnn, "fp32", "portable", quick=True),
    _recipe("gru", models.gru, "fp32", "portable"),
    _recipe("ill_conditioned", models.ill_conditioned, "fp32", "portable", quick=True),
    _recipe("ill_conditioned", models.ill_conditioned, "fp32", "xnnpack"),
    _recipe("normalised", models.normalised, "fp32", "portable", quick=True),
    _recipe("masked_attention", models.masked_attention, "fp32", "xnnpack"),
    _recipe("gelu_tanh", models.gelu_tanh, "fp32", "portable"),
    _recipe("gelu_erf", models.gelu_erf, "fp32", "portable"),
    _recipe("gelu_erf", models.gelu_erf, "fp32", "xnnpack"),
    _recipe("vit", models.vit, "fp16", "portable"),
    _recipe("rotary", models.rotary, "fp16", "portable"),
    _recipe("masked_attention", models.masked_attention, "fp16", "portable", quick=True),
    _recipe("pooled_cnn", models.pooled_cnn, "fp16", "xnnpack"),
    _recipe("distilbert", models.distilbert, "fp16", "xnnpack"),
    _recipe("bert", models.bert, "bf16", "portable"),
    _recipe("resnet8", models.resnet8, "bf16", "portable"),
    _recipe("rotary", models.rotary, "bf16", "portable"),
    _recipe("normalised", models.normalised, "bf16", "portable"),
    _recipe("mlp", models.mlp, "int8", "xnnpack", quick=True),
    _recipe("mobilenet_v1", models.mobilenet_v1, "int8", "xnnpack"),
    _recipe("mobilenet_v2", models.mobilenet_v2, "int8", "xnnpack"),
    _recipe("resnet8", models.resnet8, "int8", "xnnpack"),
    _recipe("ds_cnn", models.ds_cnn, "int8", "xnnpack"),
    _recipe("autoencoder", models.autoencoder, "int8", "xnnpack"),
    _recipe("vit", models.vit, "int8", "xnnpack"),
    _recipe("pooled_cnn", models.pooled_cnn, "int8", "xnnpack"),
    _recipe("unet", models.unet, "int8-tensor", "xnnpack"),
    _recipe("regnet", models.regnet, "int8-tensor", "xnnpack"),
    _recipe("pooled_cnn", models.pooled_cnn, "int8", "portable"),
    _recipe("resnet8", models.resnet8, "int8-tensor", "portable"),
    _recipe("vit", models.vit, "int8", "portable"),
    _recipe("mlp", models.mlp, "dynamic", "xnnpack", quick=True),
    _recipe("distilbert", models.distilbert_unmasked, "dynamic", "xnnpack"),
    _recipe("rotary", models.rotary, "dynamic", "xnnpack"),
    _recipe("deit", models.deit, "dynamic", "xnnpack"),
    _recipe("bert", models.bert_unmasked, "dynamic", "portable"),
    _recipe("rotary", models.rotary, "8da4w", "xnnpack"),
    _recipe("bert", models.bert, "8da4w", "xnnpack"),
    _recipe("mlp", models.mlp, "weight-only", "portable", quick=True),
    _recipe("llama", models.llama, "weight-only", "portable"),
    _recipe("rotary", models.rotary, "weight-only", "portable"),
    _recipe("bert", models.bert, "weight-only", "portable"),
    _recipe("t5_encoder", models.t5_encoder, "weight-only", "portable"),
)

_FAULTY = (
    _recipe("gelu_tanh", models.gelu_tanh, "fp32", "xnnpack", fault="aten.gelu"),
    _recipe("vit_tanh", models.vit_tanh, "fp32", "xnnpack", fault="aten.gelu"),
    _recipe("convnext_tanh", models.convnext_tanh, "fp32", "xnnpack", fault="aten.gelu"),
    _recipe("mlp", models.mlp, "weight-only", "xnnpack", fault="_to_dim_order_copy"),
    _recipe("rotary", models.rotary, "weight-only", "xnnpack", fault="_to_dim_order_copy"),
    _recipe("talking_heads", models.talking_heads, "fp32", "xnnpack", fault="_softmax"),
    _recipe("shared", models.shared, "int8", "xnnpack", fault="linear"),
    _recipe("far_from_zero", models.far_from_zero, "fp32", "portable", fault="native_layer_norm"),
    _recipe("wide_norm", models.wide_norm, "bf16", "portable", fault="native_layer_norm"),
    _recipe("wide_norm", models.wide_norm, "fp16", "portable", fault="native_layer_norm"),
)


def _normal(*shape: int, seed: int = 1, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def _one(*shape: int) -> Callable[[], Inputs]:
    return lambda: (_normal(*shape),)


def _kind(
    name: str,
    model: Callable[[], nn.Module],
    inputs: Callable[[], Inputs],
    precision: str = "fp32",
    backend: str = "xnnpack",
    *,
    runs: Callable[[], list[Inputs]] | None = None,
    quick: bool = True,
    **about: Any,
) -> Recipe:
    """A kind; it runs on the inputs of its export if `runs` does not give others."""
    given = {"options": {}, "runs": runs or (lambda: [inputs()])} | about
    return Recipe(name, lambda: (model().eval(), inputs()), precision, backend, quick, **given)


def _tokens() -> Inputs:
    return torch.tensor([[1, 4, 2, 9, 0]]), torch.tensor([[1, 1, 1, 0, 0]])


def _nested() -> Inputs:
    return {"x": _normal(3, 4), "unused": _normal(1)}, (_normal(4), torch.tensor(2.5))


def _image() -> Inputs:
    return (_normal(1, 3, 4, 4).to(memory_format=torch.channels_last),)


def _steps(count: int) -> list[Inputs]:
    return [(torch.tensor([[3 + i]]), torch.tensor([i])) for i in range(count)]


def _conditions(*signs: int) -> list[Inputs]:
    return [(torch.full((2, 4), 3.0 * sign) + _normal(2, 4, scale=0.1),) for sign in signs]


_TINY = torch.tensor([[1e-40, 0.5, -0.25, 1.0], [2.0, -1.0, 4.0, 3.0]])
_WITH_NAN = torch.where(torch.arange(16) == 3, float("nan"), _normal(1, 16))
_LENGTHS: dict[str, Any] = {"dynamic_shapes": {"x": {1: Dim("length", min=2, max=16)}}}
_BESIDE: dict[str, Builder] = {"embed": lambda: (small.Feed().eval(), (torch.randn(2, 16),))}


def _sixteen(kind: torch.dtype) -> Callable[[], list[Inputs]]:
    return lambda: [(_normal(2, 5).to(kind),)]


def _seeds(*seeds: int) -> Callable[[], list[Inputs]]:
    return lambda: [(_normal(1, 16, seed=seed),) for seed in seeds]


_KINDS = (
    _kind("delegate_fp32", small.ConvNet, _one(1, 3, 4, 4)),
    _kind("delegate_int8", small.ConvNet, _one(1, 3, 4, 4), "int8"),
    _kind("recurrent", small.Recurrent, _one(1, 4, 4), quick=False),
    _kind("bidirectional", small.Bidirectional, _one(1, 3, 4), quick=False),
    _kind("rotary_dynamic_int8", small.Rotary, _one(1, 4, 16), "dynamic", quick=False),
    _kind("mobile_int8", small.MobileBlock, _one(1, 4, 4, 4), "int8", quick=False),
    _kind("weight_only_portable", small.Feed, _one(1, 5, 16), "weight-only", "portable", quick=False),
    _kind("several", small.Several, _one(3, 6), quick=False),
    _kind(
        "openvino",
        small.Feed,
        _one(5, 16),
        backend="openvino",
        runs=lambda: [(_normal(5, 16),), (_normal(5, 16, seed=2),)],
    ),
    _kind("openvino_whole", small.ConvNet, _one(1, 3, 4, 4), backend="openvino"),
    _kind("masked_transformer", small.MaskedTransformer, _tokens),
    _kind("dynamic_int8", small.Feed, _one(5, 16), "dynamic"),
    _kind("weight_only_torchao", small.Feed, _one(5, 16), "weight-only", quick=False),
    _kind("weight_only", small.WeightOnly, _one(5, 16), quick=False),
    _kind("decoder", small.Decoder, lambda: _steps(1)[0], runs=lambda: _steps(3), options={"strict": True}),
    _kind(
        "decoder_portable",
        small.Decoder,
        lambda: _steps(1)[0],
        backend="portable",
        runs=lambda: _steps(3),
        options={"strict": True},
        quick=False,
    ),
    _kind("channels_last", small.ConvNet, _image, quick=False),
    _kind(
        "dynamic_shapes",
        small.Pooled,
        _one(2, 3, 6),
        runs=lambda: [(_normal(2, n, 6),) for n in (3, 9)],
        options=_LENGTHS,
    ),
    _kind(
        "dynamic_portable",
        small.Pooled,
        _one(2, 3, 6),
        backend="portable",
        runs=lambda: [(_normal(2, 7, 6),)],
        options=_LENGTHS,
        quick=False,
    ),
    _kind("cond", small.BranchesOfTensors, _one(2, 4), runs=lambda: _conditions(1, -1, 1)),
    _kind(
        "cond_portable",
        small.BranchesOfTensors,
        _one(2, 4),
        backend="portable",
        runs=lambda: _conditions(-1),
        quick=False,
    ),
    _kind("cond_diverging", small.DivergingBranches, _one(2, 4), runs=lambda: [(_TINY.clone(),)], quick=False),
    _kind("method_forward", small.ConvNet, _one(1, 3, 4, 4), others=_BESIDE, quick=False),
    _kind(
        "method_embed",
        small.ConvNet,
        _one(1, 3, 4, 4),
        runs=lambda: [(_normal(2, 16),)],
        others=_BESIDE,
        method="embed",
        same_as="method_forward",
    ),
    _kind("half", small.Low, _one(2, 5), "fp16", "portable", runs=_sixteen(torch.float16), told=True),
    _kind("bfloat16", small.Low, _one(2, 5), "bf16", "portable", runs=_sixteen(torch.bfloat16), told=True, quick=False),
    _kind("half_beside_float", small.Mixed, _one(2, 5), backend="portable", told=True, quick=False),
    _kind("nonfinite", small.NonFinite, _one(2, 5)),
    _kind("nonfinite_portable", small.NonFinite, _one(2, 5), backend="portable", quick=False),
    _kind("outputs", small.Outputs, _nested),
    _kind("same_twice", small.Feed, _one(1, 16), runs=_seeds(1, 1), quick=False),
    _kind("different", small.Feed, _one(1, 16), runs=_seeds(1, 2, 3), same_as="same_twice"),
    _kind("nan_twice", small.Feed, _one(1, 16), runs=lambda: [(_WITH_NAN,)] * 2, same_as="same_twice", quick=False),
    _kind("stack", lambda: small.Stack(4), _one(3, 8), quick=False),
    _kind("stack_portable", lambda: small.Stack(4), _one(3, 8), backend="portable", quick=False),
)

ZOO = (*_ALL, *_FAULTY, *_KINDS)
RECIPES = {recipe.name: recipe for recipe in ZOO if recipe.runs is None and not recipe.fault}
FAULTY = {recipe.name: recipe for recipe in ZOO if recipe.fault}
"""Programs that executorch 1.5.1 gets wrong."""
KINDS = {recipe.name: recipe for recipe in ZOO if recipe.runs is not None}
