"""The correct programs of the zoo, as data: which model, in which precision, on which backend.

Every precision and both backends have several, of every family, so that a rule that is tuned to one of them shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch import Tensor
from torch.export import ExportedProgram, export
from torch.utils import _pytree as pytree
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, Int8WeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from tests.zoo import models
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
    """How to make a correct program.

    Attributes
    ----------
    precision
        A key of `FLOATS`; ``int8`` and ``int8-tensor`` (static, weights per channel or per tensor), ``dynamic``
        (int8 weights and activations, the latter's grids chosen at run time); or a key of `TORCHAO`: ``weight-only``
        (int8), ``8da4w`` (weights of 4 bits, activations as with ``dynamic``).
    backend
        ``portable`` or ``xnnpack``.
    quick
        Part of `make test`.
    fault
        The operator that executorch gets wrong, if the program is not correct.
    """

    name: str
    builder: Builder
    precision: str
    backend: str
    quick: bool = False
    fault: str = ""

    @property
    def floating(self) -> bool:
        """Whether it computes in floating point only."""
        return self.precision in FLOATS

    def partitioner(self) -> list[Any] | None:
        """What lowers it."""
        return [XnnpackPartitioner()] if self.backend == "xnnpack" else None

    def export(self) -> tuple[ExportedProgram, Inputs]:
        """The program before lowering, quantized if it is to be, and the inputs that it runs on."""
        torch.manual_seed(0)
        model, inputs = self.builder()
        if self.floating:
            kind = FLOATS[self.precision]
            inputs = pytree.tree_map(lambda leaf: _cast(leaf, kind), inputs)
            return export(model.to(kind), inputs, strict=True), inputs
        if self.precision in TORCHAO:
            quantize_(model, TORCHAO[self.precision]())
            return export(model, inputs, strict=True), inputs
        dynamic = self.precision == "dynamic"
        config = get_symmetric_quantization_config(is_per_channel=self.precision != "int8-tensor", is_dynamic=dynamic)
        quantizer = XNNPACKQuantizer()
        quantizer = quantizer.set_operator_type(LINEAR, config) if dynamic else quantizer.set_global(config)
        prepared = prepare_pt2e(export(model, inputs, strict=True).module(), quantizer)
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

RECIPES = {recipe.name: recipe for recipe in _ALL}
FAULTY = {recipe.name: recipe for recipe in _FAULTY}
"""Programs that executorch 1.5.1 gets wrong."""
