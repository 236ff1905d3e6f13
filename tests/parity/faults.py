"""Faults of ports, planted into correct ones. Each is one that porters have made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from tests.parity.ports import port_of, reference_of, tokens


@dataclass(frozen=True)
class Case:
    """A port with a fault, and the name of the hypothesis that must be proved."""

    model: Any
    reference: Any
    expected: str
    inputs: Any = None
    reference_inputs: Any = None
    said: str = ""


def _edited(name: str, edit: Callable[[Any], object], expected: str, said: str = "", **changes: Any) -> Case:
    reference = reference_of(name)
    model = port_of(name, reference, **changes)
    with torch.no_grad():
        edit(model)
    return Case(model, reference, expected, tokens(), None, said)


def not_permuted() -> Case:
    """RoPE pairs neighbours, and the rows of q and k still stand in halves."""
    return _edited(
        "llama",
        lambda model: _rows(model, lambda w: _halves(w)),
        "rope pairing",
        "half-split RoPE in layers.*.attention",
    )


def permuted_for_nothing() -> Case:
    """RoPE pairs halves, and the rows were interleaved for Meta's."""
    return _edited("qwen3", lambda model: _rows(model, lambda w: _pairs(w, 32)), "rope pairing", "interleaved RoPE")


def _rows(model: Any, order: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for layer in model.layers:
        for name in ("wq", "wk"):
            weight = getattr(layer.attention, name).weight
            weight.copy_(order(weight))
        if hasattr(layer.attention, "q_norm_fn"):
            for norm in (layer.attention.q_norm_fn, layer.attention.k_norm_fn):
                norm.weight.copy_(order(norm.weight))


def _halves(weight: torch.Tensor, size: int = 16) -> torch.Tensor:
    return weight.reshape(-1, size // 2, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _pairs(weight: torch.Tensor, size: int) -> torch.Tensor:
    return weight.reshape(-1, 2, size // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def theta() -> Case:
    """The base of the frequencies is the default one."""
    return _edited("llama", lambda model: None, "rope frequencies", "theta 500000", rope_theta=10000.0)


def partial_rotation() -> Case:
    """All dimensions of a head rotate, where half of them should."""
    return _edited(
        "phi_4_mini", lambda model: None, "rope frequencies", "8 rotated dimensions", partial_rotary_factor=1.0
    )


def norm_offset() -> Case:
    """The reference multiplies by 1 + weight (Gemma), the port by the weight."""
    reference = reference_of("llama")
    for module in list(reference.modules()):
        if type(module).__name__ == "LlamaRMSNorm":
            module.weight.data -= 1
            module.forward = _plus_one(module)
    return Case(
        port_of("llama", reference), reference, "norm weight + 1", tokens(), None, "1 + weight in every RMSNorm"
    )


def _plus_one(module: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + module.variance_epsilon) * (1 + module.weight)

    return forward


def epsilon() -> Case:
    """The norms have upstream's default epsilon."""
    return _edited("llama", lambda model: None, "epsilon", "epsilon 1e-06 instead of 1e-05", norm_eps=1e-5)


def untied() -> Case:
    """The reference shares its embedding with the output, the port's output has other numbers."""
    return _edited(
        "smollm2",
        lambda model: model.output.weight.copy_(0.05 * torch.randn(model.output.weight.shape)),
        "tied embeddings",
    )


def grouped_order() -> Case:
    """Key heads are tiled (0 1 0 1) instead of repeated (0 0 1 1)."""

    def tile(model: Any) -> None:
        for layer in model.layers:
            attention = layer.attention
            attention.forward = _tiled(attention)

    return _edited("qwen3", tile, "grouped-query order")


def _tiled(attention: Any) -> Callable[..., Any]:
    def forward(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, **_: Any) -> Any:
        batch, count, _width = x.shape
        q = attention.wq(x).view(batch, count, attention.n_local_heads, attention.head_dim)
        q, k, v = attention._prepare_qkv(q, x, batch, count, cos, sin)
        k, v = (item.repeat(1, attention.n_rep, 1, 1) for item in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=attention.mask[:count, :count])
        return attention.wo(y.transpose(1, 2).reshape(batch, count, -1)), None

    return forward


def attention_scale() -> Case:
    """The reference scales scores by another number than 1/√d (Granite's attention_multiplier)."""
    reference = reference_of("llama")
    for layer in reference.model.layers:
        layer.self_attn.scaling = 1 / 16
    return Case(port_of("llama", reference), reference, "attention scale", tokens(), None, "× 0.25")


def soft_cap() -> Case:
    """The reference caps its logits (Gemma 2)."""
    reference = reference_of("llama")
    reference.lm_head.register_forward_hook(lambda *given: 2.0 * torch.tanh(given[-1] / 2.0))
    return Case(port_of("llama", reference), reference, "soft-cap", tokens(), None, "capped at 2")


def missing_bias() -> Case:
    """The projections of q, k and v have no bias."""
    reference = reference_of("qwen2_5")
    model = port_of("qwen2_5", reference)
    for layer in model.layers:
        for name in ("wq", "wk", "wv"):
            getattr(layer.attention, name).bias = None
    return Case(model, reference, "missing bias", tokens())


def missing_bos() -> Case:
    """The port's tokens begin without BOS."""
    reference = reference_of("llama")
    ids = tokens()
    return Case(port_of("llama", reference), reference, "missing BOS", ids, torch.cat([torch.tensor([[1]]), ids], 1))


def gate_and_up() -> Case:
    """The gate's and the up projection's weights are exchanged."""

    def swap(model: Any) -> None:
        for layer in model.layers:
            feed = layer.feed_forward
            one, two = feed.w1.weight.clone(), feed.w3.weight.clone()
            feed.w1.weight.copy_(two)
            feed.w3.weight.copy_(one)

    return _edited("llama", swap, "swapped weights")


def activation() -> Case:
    """The reference's activation is GELU with tanh (Gemma)."""
    reference = reference_of("llama", hidden_act="gelu_pytorch_tanh")
    return Case(port_of("llama", reference), reference, "activation", tokens(), None, "gelu with tanh")


def embedding_scale() -> Case:
    """The reference multiplies its embeddings by √d (Gemma)."""
    reference = reference_of("llama")
    reference.model.embed_tokens.register_forward_hook(lambda *given: given[-1] * 8.0)
    return Case(port_of("llama", reference), reference, "embedding scale", tokens(), None, "√64")


def branch_scale() -> Case:
    """The reference multiplies what a layer adds by a number (Granite's residual_multiplier)."""
    reference = reference_of("llama")
    for layer in reference.model.layers:
        layer.self_attn.register_forward_hook(lambda *given: (given[-1][0] * 0.22, *given[-1][1:]))
    # the hook changes the output of the pair itself, so that the port's differs by a factor
    return Case(port_of("llama", reference), reference, "scale", tokens(), None, "0.22")


def norm_order() -> Case:
    """The norms of q and k come after RoPE instead of before."""
    return _edited("qwen3", lambda model: None, "attribute", "qk_norm_before_rope = True", qk_norm_before_rope=False)


def transposed() -> Case:
    """The output projection is transposed, in one layer."""
    return _edited(
        "llama",
        lambda model: model.layers[1].attention.wo.weight.copy_(model.layers[1].attention.wo.weight.T.clone()),
        "transposed weights",
    )


FAULTS: dict[str, Callable[[], Case]] = {
    function.__name__: function
    for function in (
        *(not_permuted, permuted_for_nothing, theta, partial_rotation, norm_offset, epsilon, untied, grouped_order),
        *(attention_scale, soft_cap, missing_bias, missing_bos, gate_and_up, activation, embedding_scale, branch_scale),
        *(norm_order, transposed),
    )
}
