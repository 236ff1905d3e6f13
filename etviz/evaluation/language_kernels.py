"""Language-model operators in plain torch, after ``executorch/extension/llm/custom_ops`` and its tests.

The reference can't use executorch's kernels, which the program runs: a fault would be in both. Each function returns
its results, then the values that it writes; it computes in float32, or float64 for float64 operands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.errors import PairingError
from etviz.graph.language_operators import LANGUAGE_OPERATORS
from etviz.upstream.operators import parsed_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OTHER_INPUTS: Final = (
    "give the inputs that this run had; no token may be beyond the vocabulary, and no position beyond the context"
)


class LanguageFunction:
    def __init__(self, target: str) -> None:
        self._schema = parsed_schema(target, LANGUAGE_OPERATORS[target].schema)
        self._function = FUNCTIONS[target]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def _update_cache(value: torch.Tensor, cache: torch.Tensor, start_pos: int) -> torch.Tensor:
    steps = value.shape[1]
    _check_place(start_pos, steps, cache.shape[1])
    return cache.slice_scatter(value.to(cache.dtype), 1, start_pos, start_pos + steps)


def _update_cache_with_indices(
    value: torch.Tensor, cache: torch.Tensor, start_pos: int, indices: torch.Tensor
) -> torch.Tensor:
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < cache.shape[1]:
        places = indices.flatten().tolist()[:8]
        raise PairingError(f"A cache of {cache.shape[1]} positions is written at {places}", OTHER_INPUTS)
    places = indices[:, :, None, None].expand_as(value)
    return cache.scatter(1, places, value.to(cache.dtype))


def _update_cross_attn_cache(value: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    _check_place(0, value.shape[2], cache.shape[2])
    return cache.slice_scatter(value, 2, 0, value.shape[2])


def _check_place(start: int, steps: int, room: int) -> None:
    if not 0 <= start <= start + steps <= room:
        raise PairingError(f"A cache of {room} positions is written from {start} to {start + steps - 1}", OTHER_INPUTS)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start: int,
    mask: torch.Tensor | None,
    *,
    causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """Attention with a cache: ``softmax(scale · q kᵀ + mask) v``, layout ``[batch, position, head, width]``.

    Heads may share a head of `key` and `value`. Without a mask, positions from `start` + steps on hold nothing. If
    `causal`, step i sees positions up to `start` + i.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    scores, _, _, v = scored(query.to(wide), key.to(wide), value.to(wide), start, mask, causal=causal, scale=scale)
    return (scores.softmax(-1) @ v).transpose(1, 2).to(query.dtype).contiguous()


def scored(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start: int,
    mask: torch.Tensor | None,
    *,
    causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, ...]:
    """The scores of `attend`, and its query, key and value as ``[batch, head, position, width]``."""
    steps, heads, width = query.shape[1:]
    if mask is None:
        _check_place(start, steps, key.shape[1])
        key, value = key[:, : start + steps], value[:, : start + steps]
    shared = heads // key.shape[2]
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    k, v = (tensor.repeat_interleave(shared, 1) for tensor in (k, v))
    scores = q @ k.transpose(2, 3) * (1 / math.sqrt(width) if scale is None else scale)
    if causal:
        seen = torch.ones(steps, scores.shape[-1], dtype=torch.bool).tril(start)
        scores = scores.masked_fill(~seen, -math.inf)
    return (scores if mask is None else scores + mask.to(scores.dtype)), q, k, v


def _custom_sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start_pos: int,
    attn_mask: torch.Tensor | None = None,
    drpout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    return attend(query, key, value, start_pos, attn_mask, causal=is_causal, scale=scale)


def _custom_quantized_sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start_pos: int,
    attn_mask: torch.Tensor | None = None,
    drpout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    q_zero_points: torch.Tensor | None = None,
    q_scales: torch.Tensor | None = None,
    k_zero_points: torch.Tensor | None = None,
    k_scales: torch.Tensor | None = None,
    v_zero_points: torch.Tensor | None = None,
    v_scales: torch.Tensor | None = None,
    is_seq_at_dim_2: bool = False,
) -> torch.Tensor:
    grids = q_zero_points, q_scales, k_zero_points, k_scales, v_zero_points, v_scales
    q, k, v = off_grids((query, key, value), grids, second=is_seq_at_dim_2)
    attended = attend(q, k, v, start_pos, attn_mask, causal=is_causal, scale=scale)
    return attended.transpose(1, 2).contiguous() if is_seq_at_dim_2 else attended


def off_grids(values: Sequence[torch.Tensor], grids: Sequence[Any], *, second: bool) -> list[torch.Tensor]:
    """Dequantized values in the layout of `attend`; positions are at axis 2 if `second`.

    `grids` are zero points and scales.
    """
    pairs = zip(values, grids[1::2], grids[::2], strict=True)
    plain = [_dequantized(*pair) for pair in pairs]
    return [tensor.transpose(1, 2) for tensor in plain] if second else plain


def reads_grids(target: str) -> bool:
    """True for an operator that dequantizes its arguments itself."""
    return target in LANGUAGE_OPERATORS and "q_scales" in LANGUAGE_OPERATORS[target].names


def without_grids(
    target: str, args: Sequence[Any], kwargs: Mapping[str, Any], moved: Callable[[torch.Tensor, Any], torch.Tensor]
) -> dict[str, Any]:
    """The arguments of an operator that `reads_grids`, dequantized; `moved` takes a value and its step."""
    given = {**dict(zip(LANGUAGE_OPERATORS[target].names, args, strict=False)), **kwargs}
    for name in ("query", "key", "value"):
        scale, zero_point = (given.pop(f"{name[0]}_{part}", None) for part in ("scales", "zero_points"))
        if scale is not None:
            given[name] = moved(_dequantized(given[name], scale, zero_point), scale.abs())
    return given


def _dequantized(value: torch.Tensor, scale: torch.Tensor | None, zero_point: torch.Tensor | None) -> torch.Tensor:
    if scale is None:
        return value
    wide = value.to(scale.dtype)
    return (wide if zero_point is None else wide - zero_point.to(scale.dtype)) * scale


def _sdpa_with_kv_cache(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    start_pos: int,
    seq_len: int,
    attn_mask: torch.Tensor | None = None,
    drpout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    keys, values = _update_cache(key, key_cache, start_pos), _update_cache(value, value_cache, start_pos)
    used = start_pos + seq_len
    attended = attend(query, keys[:, :used], values[:, :used], start_pos, attn_mask, causal=is_causal, scale=scale)
    return attended, keys, values


_BLOCKS_OF_28: Final = (
    ("+------", "--++++-", "-+-++-+", "-++--++"),
    ("++----+", "+------", "+--++--", "-+-++-+"),
    ("+-+--+-", "-++--++", "+------", "++----+"),
    ("+--++--", "+-+--+-", "--++++-", "+------"),
)
"""The Hadamard matrix of 28 as circulant blocks, by their first rows."""


def _hadamard(mat: torch.Tensor) -> torch.Tensor:
    """The transform of the last axis: orthonormal for 2ⁿ; for 28 · 2ⁿ the factor of 28 is ±1, as in the kernel."""
    size, wide = mat.shape[-1], torch.promote_types(mat.dtype, torch.float32)
    odd = 28 if size % 28 == 0 else 1
    matrix = torch.ones(1, 1, dtype=wide)
    while matrix.shape[0] * odd < size:
        matrix = torch.kron(torch.tensor([[1, 1], [1, -1]], dtype=wide) / math.sqrt(2), matrix)
    if odd == 28:
        signs = [[[1.0 if sign == "+" else -1.0 for sign in row] for row in blocks] for blocks in _BLOCKS_OF_28]
        rows = [
            torch.cat([torch.tensor(row, dtype=wide).roll(at) for row in blocks]) for blocks in signs for at in range(7)
        ]
        matrix = torch.kron(torch.stack(rows), matrix)
    return (mat.to(wide) @ matrix).to(mat.dtype)


def _gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``S ← g·S + k βᵀ(v − (g·S)ᵀ k)``, ``o = Sᵀ q`` for one step after the other (Yang et al., 2024)."""
    state, outputs = initial_state, list[torch.Tensor]()
    gates = decay.unsqueeze(-1).expand_as(key) if decay.dim() == 3 else decay
    shared = query.shape[1] // key.shape[1]
    for at in range(query.shape[2]):
        k, v, gate = key[:, :, at, :, None], value[:, :, at, None], gates[:, :, at, :, None]
        state = state * gate
        state = state + k * ((v - (state * k).sum(2, keepdim=True)) * beta[:, :, at, None, None])
        outputs.append((state.repeat_interleave(shared, 1) * query[:, :, at, :, None]).sum(2))
    return torch.stack(outputs, 2), state


def _copied(*values: torch.Tensor) -> Any:
    return values[0].clone() if len(values) == 1 else tuple(value.clone() for value in values)


def _packed_experts(*_: Any, **__: Any) -> Any:
    raise PairingError(
        "The program calls llama.quantized_moe_ffn, which has no reference: its weights are packed in a form that only "
        "torchao's kernels read"
    )


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "llama.update_cache.default": _update_cache,
    "llama.update_cache_with_indices.default": _update_cache_with_indices,
    "llama.custom_sdpa.default": _custom_sdpa,
    "llama.custom_quantized_sdpa.default": _custom_quantized_sdpa,
    "llama.sdpa_with_kv_cache.default": _sdpa_with_kv_cache,
    "llama.fast_hadamard_transform.default": _hadamard,
    "llama.gated_delta_rule.default": _gated_delta_rule,
    "llama.channelwise_gated_delta_rule.default": _gated_delta_rule,
    "llama.quantized_moe_ffn.default": _packed_experts,
    "llama.fallback.default": _copied,
    "executorch.update_cross_attn_cache.default": _update_cross_attn_cache,
    "executorch.alias.default": _copied,
}
