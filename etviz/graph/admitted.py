"""The operators that a file may name. Other targets are refused, even if they are registered."""

from __future__ import annotations

from typing import Final

from etviz.graph.language_operators import LANGUAGE_OPERATORS

_EDGE: Final = """
_adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _conj_physical _fft_c2c _fft_c2r _fft_r2c _local_scalar_dense
_log_softmax _native_batch_norm_legit _native_batch_norm_legit_no_training _pdist_forward _softmax _to_copy
_upsample_bilinear2d_aa abs acos acosh adaptive_avg_pool1d add addmm alias alias_copy amax amin any arange argmax
argmin as_strided as_strided_copy asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm cat ceil clamp clone col2im
constant_pad_nd convolution copy cos cosh cumsum detach_copy diagonal diagonal_copy div elu embedding empty
empty_strided eq erf exp expand expand_copy expm1 fill flip floor floor_divide fmod full full_like gather ge gelu glu
grid_sampler_2d gt hardtanh index index_put index_select isinf isnan le leaky_relu lift_fresh_copy log log10 log1p
log2 logical_and logical_not logical_or logical_xor logit lt masked_fill masked_scatter masked_select max
max_pool2d_with_indices max_pool3d_with_indices maximum mean min minimum mm mul narrow_copy native_dropout
native_group_norm native_layer_norm ne neg nonzero ones permute permute_copy pixel_shuffle pixel_unshuffle pow prod
rand randn reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu remainder repeat repeat_interleave
replication_pad1d replication_pad2d replication_pad3d roll round rsqrt rsub scalar_tensor scatter scatter_add
scatter_reduce select select_copy select_scatter sigmoid sign sin sinh slice slice_copy slice_scatter sort split
split_copy split_with_sizes split_with_sizes_copy sqrt squeeze squeeze_copy stack sub sum sym_numel sym_size
sym_storage_offset sym_stride t_copy tan tanh topk transpose_copy tril trunc unbind_copy unfold_copy unsqueeze
unsqueeze_copy upsample_bilinear2d upsample_nearest2d var var_mean view view_as_real_copy view_copy where zeros
"""
"""ATen: the edge dialect, the core operators without gradients, and the portable kernels."""

_EXPORTED: Final = """
__and__ __or__ __xor__ _assert_scalar _assert_tensor_metadata _fused_rms_norm _native_batch_norm_legit_functional
_prelu_kernel _reshape_copy _safe_softmax _scaled_dot_product_attention_math
_scaled_dot_product_flash_attention_for_cpu _unsafe_index _unsafe_index_put _unsafe_view _upsample_nearest_exact1d
_upsample_nearest_exact2d _upsample_nearest_exact3d _weight_int8pack_mm _weight_norm absolute adaptive_avg_pool2d
adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d addbmm addcdiv addcmul addmv addr adjoint
affine_grid_generator all aminmax arccos arccosh arcsin arcsinh arctan arctan2 arctanh argsort atleast_1d atleast_2d
baddbmm batch_norm broadcast_to bucketize celu channel_shuffle chunk clamp_max clamp_min clip complex concat
concatenate contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d copysign
cosine_similarity cross cummax cummin cumprod deg2rad detach diag diag_embed diff digamma dist divide dot dropout
dstack einsum embedding_bag empty_like erfc erfinv exp2 expand_as eye feature_dropout fft_fft fft_fft2 fft_ifft
fft_ifft2 fft_irfft fft_irfft2 fft_rfft fft_rfft2 fix flatten fliplr flipud float_power fmax fmin frac greater
greater_equal grid_sampler grid_sampler_3d group_norm gru gru_cell hann_window hardshrink hardsigmoid hardswish
heaviside hstack huber_loss hypot im2col imag index_add index_copy index_fill inner instance_norm isclose isfinite
isneginf isposinf kron l1_loss layer_norm ldexp lerp less less_equal lgamma lift lift_fresh linalg_cross linalg_matmul
linalg_vector_norm linear linspace log_sigmoid log_softmax logaddexp logaddexp2 logcumsumexp logsumexp lstm lstm_cell
mH mT matmul max_pool1d max_pool2d max_pool3d median meshgrid mish moveaxis movedim mse_loss multiply mv nan_to_num
narrow native_batch_norm negative new_empty new_full new_ones new_zeros nonzero_numpy norm not_equal numpy_T one_hot
ones_like outer pad pairwise_distance pdist polar positive prelu rad2deg rand_like randn_like ravel real relu6 reshape
reshape_as resolve_conj resolve_neg rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell rot90
scaled_dot_product_attention searchsorted selu sgn signbit silu sinc smooth_l1_loss softmax softplus softshrink
special_erf special_erfc special_exp2 special_expit special_expm1 special_log1p special_logit special_ndtr
special_round special_sinc special_softmax special_xlogy square std std_mean subtract swapaxes swapdims t take
take_along_dim tensor_split tensordot threshold tile to trace transpose tril_indices triu triu_indices true_divide
type_as unbind unflatten unfold unsafe_chunk unsafe_split unsafe_split_with_sizes upsample_bicubic2d upsample_linear1d
upsample_nearest1d upsample_nearest3d upsample_trilinear3d view_as view_as_complex view_as_complex_copy view_as_real
vstack xlogy zero zeros_like
"""
"""Operators of exported models, and operators that backends keep undecomposed."""

_QUANTIZED: Final = """
add add_relu choose_qparams choose_qparams_per_token choose_qparams_per_token_asymmetric choose_qparams_symmetric
_choose_qparams_per_token_asymmetric_impl convert_element_type dequantize_per_channel dequantize_per_channel_group
dequantize_per_tensor dequantize_per_token embedding_2bit embedding_4bit embedding_byte fake_quant_per_channel
mixed_linear mixed_mm quantize_per_channel quantize_per_channel_group quantize_per_tensor quantize_per_token
"""
_TORCHAO: Final = "choose_qparams_affine choose_scale_float8 dequantize_affine quantize_affine"
ADMITTED: Final[dict[str, frozenset[str]]] = {
    "aten": frozenset((_EDGE + _EXPORTED).split()),
    "quantized_decomposed": frozenset(_QUANTIZED.split()),
    "torchao": frozenset(_TORCHAO.split()),
    **{
        library: frozenset(name.split(".")[1] for name in LANGUAGE_OPERATORS if name.startswith(f"{library}."))
        for library in ("llama", "executorch", "kvcache")
    },
}
"""Callable operators by library; only overloads that write nothing."""


_LAYOUTS: Final = ("dim_order_ops", "et_copy")
_PACKED: Final = "data"
"""Overload for packed sequences, which no exported model has."""
_PRIM: Final = "prim_"
"""Prefix of TorchScript's overloads, which take any integer for a dtype or a device."""


def is_admitted(target: str) -> bool:
    parts = target.split(".")
    if len(parts) != 3 or parts[2] == _PACKED or parts[2].startswith(_PRIM):
        return False
    return parts[1] in ADMITTED.get(parts[0], ())


def may_be_lowered(target: str) -> bool:
    return is_admitted(target) or target.partition(".")[0] in _LAYOUTS
