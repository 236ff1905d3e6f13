"""The language-model operators of executorch's libraries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LanguageOperator:
    """One operator.

    `arguments` has torch's notation: an argument ``Tensor(a!) cache`` is written to. `results` counts results that mean
    something; a cache update returns an empty tensor.
    """

    arguments: str
    results: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(argument.split()[-1].partition("=")[0] for argument in self.arguments[1:-1].split(", "))

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(re.findall(r"Tensor\(\w!\) (\w+)", self.arguments))

    @property
    def schema(self) -> str:
        return f"{self.arguments} -> ({', '.join(['Tensor'] * (self.results + len(self.writes)))})"


_SCHEMAS: Final = """
llama.update_cache(Tensor value, Tensor(a!) cache, SymInt start_pos) -> 0
llama.update_cache_with_indices(Tensor value, Tensor(a!) cache, SymInt start_pos, Tensor indices) -> 0
llama.custom_sdpa(Tensor query, Tensor key, Tensor value, SymInt start_pos, FLAGS) -> 1
llama.custom_quantized_sdpa(Tensor query, Tensor key, Tensor value, SymInt start_pos, FLAGS, GRIDS, \
    bool is_seq_at_dim_2=False) -> 1
llama.sdpa_with_kv_cache(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, \
    SymInt start_pos, SymInt seq_len, FLAGS) -> 1
llama.fast_hadamard_transform(Tensor mat) -> 1
llama.gated_delta_rule(DELTA) -> 2
llama.channelwise_gated_delta_rule(DELTA) -> 2
llama.quantized_moe_ffn(Tensor x, Tensor gate_weight, Tensor expert_bias, Tensor packed_w13, Tensor packed_w2, \
    int num_activated_experts, int num_experts, int hidden_dim, int dim, int group_size, int weight_nbit, \
    str score_func, float route_scale) -> 1
llama.fallback(Tensor input) -> 1
executorch.update_cross_attn_cache(Tensor value, Tensor cache) -> 1
executorch.alias(Tensor x, Tensor y) -> 2
"""
_PARTS: Final = {
    "FLAGS": "Tensor? attn_mask=None, float drpout_p=0., bool is_causal=False, float? scale=None",
    "GRIDS": ", ".join(f"Tensor? {name}_{part}=None" for name in "qkv" for part in ("zero_points", "scales")),
    "DELTA": "Tensor query, Tensor key, Tensor value, Tensor decay, Tensor beta, Tensor initial_state",
}


def _parsed(line: str) -> tuple[str, LanguageOperator]:
    call, _, results = line.partition(" -> ")
    name, bracket, arguments = call.partition("(")
    whole = re.sub("|".join(_PARTS), lambda part: _PARTS[part[0]], bracket + arguments)
    return f"{name}.default", LanguageOperator(whole, int(results))


LANGUAGE_OPERATORS: Final = dict(map(_parsed, _SCHEMAS.replace("\\\n    ", "").strip().splitlines()))
"""By target; the functional form returns what it writes after its results."""
