"""The operators of language models that executorch's libraries add: what they take, give, and write.

`etviz.evaluation.language_operators` computes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_FLAGS: Final = "Tensor? attn_mask=None, float drpout_p=0., bool is_causal=False, float? scale=None"
_GRIDS: Final = ", ".join(f"Tensor? {name}_{part}=None" for name in "qkv" for part in ("zero_points", "scales"))
_DELTA: Final = "(Tensor query, Tensor key, Tensor value, Tensor decay, Tensor beta, Tensor initial_state)"
_EXPERTS: Final = (
    "Tensor packed_w13, Tensor packed_w2, int num_activated_experts, int num_experts, int hidden_dim, int dim, "
    "int group_size, int weight_nbit, str score_func, float route_scale"
)


@dataclass(frozen=True, slots=True)
class LanguageOperator:
    """One operator.

    Attributes
    ----------
    arguments
        Of its schema, in torch's notation: an argument ``Tensor(a!) cache`` is written to.
    results
        Number of results that mean something; a cache update returns a tensor that holds nothing.
    """

    arguments: str
    results: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments, in order."""
        return tuple(item.split()[-1].partition("=")[0] for item in self.arguments[1:-1].split(", "))

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the arguments that are written to, in order."""
        return tuple(re.findall(r"Tensor\(\w!\) (\w+)", self.arguments))

    @property
    def schema(self) -> str:
        """What follows the name in torch's notation, for the operator that gives what this one writes."""
        return f"{self.arguments} -> ({', '.join(['Tensor'] * (self.results + len(self.writes)))})"


LANGUAGE_OPERATORS: Final = {
    "llama.update_cache.default": LanguageOperator("(Tensor value, Tensor(a!) cache, SymInt start_pos)", 0),
    "llama.update_cache_with_indices.default": LanguageOperator(
        "(Tensor value, Tensor(a!) cache, SymInt start_pos, Tensor indices)", 0
    ),
    "llama.custom_sdpa.default": LanguageOperator(
        f"(Tensor query, Tensor key, Tensor value, SymInt start_pos, {_FLAGS})"
    ),
    "llama.custom_quantized_sdpa.default": LanguageOperator(
        f"(Tensor query, Tensor key, Tensor value, SymInt start_pos, {_FLAGS}, {_GRIDS}, bool is_seq_at_dim_2=False)"
    ),
    "llama.sdpa_with_kv_cache.default": LanguageOperator(
        "(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, SymInt start_pos, "
        f"SymInt seq_len, {_FLAGS})"
    ),
    "llama.fast_hadamard_transform.default": LanguageOperator("(Tensor mat)"),
    "llama.gated_delta_rule.default": LanguageOperator(_DELTA, 2),
    "llama.channelwise_gated_delta_rule.default": LanguageOperator(_DELTA, 2),
    "llama.quantized_moe_ffn.default": LanguageOperator(
        f"(Tensor x, Tensor gate_weight, Tensor expert_bias, {_EXPERTS})"
    ),
    "llama.fallback.default": LanguageOperator("(Tensor input)"),
    "executorch.update_cross_attn_cache.default": LanguageOperator("(Tensor value, Tensor cache)"),
    "executorch.alias.default": LanguageOperator("(Tensor x, Tensor y)", 2),
}
"""By target; what an operator writes, its functional form gives after its results."""
