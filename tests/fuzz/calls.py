"""Well-formed graphs with hostile calls: another operator, other numbers, other references, calls repeated.

Random damage seldom gets past the readers. These changes do, so that what is tried here is the evaluation.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.mutations import Change

_ATEN = """
full.default empty.memory_format zeros.default ones.default arange.start_step arange.default rand.default eye.default
expand_copy.default expand.default repeat.default constant_pad_nd.default as_strided_copy.default index.Tensor
index_select.default embedding.default gather.default cat.default stack.default mm.default bmm.default addmm.default
linear.default convolution.default upsample_nearest2d.vec upsample_bilinear2d.vec unfold_copy.default one_hot.default
repeat_interleave.self_int repeat_interleave.Tensor tril.default cumsum.default mul.Tensor add.Scalar pow.Scalar
pow.Tensor_Scalar view_copy.default slice_copy.Tensor select_copy.int split_copy.Tensor split_with_sizes_copy.default
unbind_copy.int topk.default sort.default nonzero.default masked_select.default where.self scatter_add.default
index_put.default _softmax.default native_layer_norm.default max_pool2d_with_indices.default avg_pool2d.default
_adaptive_avg_pool2d.default pixel_shuffle.default reflection_pad2d.default grid_sampler_2d.default to_sparse.default
from_file.default copy_.default add_.Tensor _to_copy.default fft_fft.default einsum.default matrix_power.default
cdist.default kron.default tensordot.default linspace.default logspace.default tile.default roll.default
diag_embed.default combinations.default cartesian_prod.default bincount.default histc.default multinomial.default
meshgrid.default
vander.default tril_indices.default hann_window.default stft.default conv_transpose2d.input set_.source_Tensor
resize_.default quantize_per_tensor.default fbgemm_pack_gemm_matrix_fp16.default _sparse_mm.default unique2.default
"""
_PLAIN = """
py.add py.mul py.floordiv py.mod py.lshift py.pow py.max py.sym_int executorch_prim.mul.Scalar os.system getitem cond
delegate observed prims.iota.default higher_order.while_loop quantized_decomposed.quantize_per_tensor.default
quantized_decomposed.dequantize_per_channel.default dim_order_ops._to_dim_order_copy.default builtins.eval
"""
TARGETS = [f"aten.{name}" for name in _ATEN.split()] + _PLAIN.split()
NUMBERS = (0, -1, 1, 2, 3, 64, 4096, 10**6, 10**9, 10**12, 2**31, 2**62, -(2**63), 10**30, 0.5, -1e30, 1e308)


def damage_calls(content: bytes, changes: Sequence[Change]) -> bytes:
    """A record or an ETRecord with other calls in one of its graphs."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
        methods = {info.filename: info.compress_type for info in archive.infolist()}
    for name, data in members.items():
        if data[:1] == b"{":
            body = json.loads(data)
            if name == "record.json":
                _change(body["graphs"][0][1], _of_record, changes)
            elif "graph_module" in body and name.startswith("edge"):
                _change(body["graph_module"]["graph"], _of_export, changes)
            members[name] = json.dumps(body).encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data, methods[name])
    return stream.getvalue()


def _change(
    graph: dict[str, Any], rules: Callable[[Any], tuple[Any, list[Any], Any]], changes: Sequence[Change]
) -> None:
    for what, where, value in changes:
        nodes = graph["nodes"]
        inside = [sub["nodes"] for _, sub in graph.get("subgraphs", [])]
        pool = ([nodes, *inside])[where % (1 + len(inside))] or nodes
        node = pool[where // 7 % len(pool)]
        holder, arguments, target = rules(node)
        kind = what % 5
        if kind == 0:
            holder[target] = _named(rules, TARGETS[value % len(TARGETS)])
        elif kind < 4:
            _number(arguments, where // 11, value)
        else:
            copy = json.loads(json.dumps(node))
            if isinstance(copy, list):
                copy[0], copy[5] = f"{copy[0]}_{value}", -1
            pool.insert(where % (len(pool) + 1), copy)


def _named(rules: object, target: str) -> str:
    return target if rules is _of_record or not target.startswith("aten.") else f"torch.ops.{target}"


def _of_record(node: list[Any]) -> tuple[list[Any], list[Any], int]:
    return node, [node[2], node[3], node[4]], 1


def _of_export(node: dict[str, Any]) -> tuple[dict[str, Any], list[Any], str]:
    return node, [node["inputs"], node["outputs"]], "target"


def _number(value: Any, where: int, pick: int) -> None:
    """Set one number somewhere below `value`, or lengthen a list of numbers."""
    places: list[tuple[Any, Any]] = []

    def collect(item: Any) -> None:
        for key in item if isinstance(item, dict) else range(len(item)):
            child = item[key]
            if isinstance(child, (int, float)) and not isinstance(child, bool):
                places.append((item, key))
            elif isinstance(child, (dict, list)):
                collect(child)

    collect([part for part in value if part])
    if places:
        holder, key = places[where % len(places)]
        holder[key] = NUMBERS[pick % len(NUMBERS)]
        if isinstance(holder, list) and pick % 7 == 0:
            holder += [NUMBERS[pick // 7 % len(NUMBERS)]] * (pick % 5)
