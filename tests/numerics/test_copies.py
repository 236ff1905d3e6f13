"""Copies of all elements in their order are views, with the bits, strides and alignment of the copy."""

import pytest
import torch

from etviz.evaluation.limits import Limits
from etviz.upstream.operators import operator_of

COPIES = {
    "aten.view_copy.default": [(4, 6), [3, 8]],
    "aten.expand_copy.default": [(4, 6), [1, 4, 6]],
    "aten.unsqueeze_copy.default": [(4, 6), 1],
    "aten.squeeze_copy.dims": [(4, 1, 6), [1]],
    "aten.select_copy.int": [(1, 4, 6), 0, 0],
    "aten.slice_copy.Tensor": [(4, 6), 0, 0, 4],
    "aten.permute_copy.default": [(1, 4, 6), [1, 0, 2]],
    "aten.transpose_copy.int": [(4, 1), 0, 1],
    "aten.t_copy.default": [(1, 4)],
    "aten.clone.default": [(4, 6)],
    "aten.alias_copy.default": [(4, 6)],
}
REAL_COPIES = {
    "aten.expand_copy.default": [(1, 6), [4, 6]],
    "aten.select_copy.int": [(3, 4, 6), 0, 1],
    "aten.slice_copy.Tensor": [(4, 6), 0, 1, 4],
    "aten.permute_copy.default": [(4, 6), [1, 0]],
    "aten._to_copy.default": [(4, 6)],
}


def _call(target: str, x: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
    value, wanted = Limits().call(target, [x, *args], kwargs), operator_of(target)(x, *args, **kwargs)
    assert torch.equal(value, wanted)
    assert value.stride() == wanted.stride()
    assert value.data_ptr() % 64 == 0
    return value


def _is_view(value: torch.Tensor, x: torch.Tensor) -> bool:
    return value.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize("target", COPIES)
def test_a_copy_of_all_elements_in_their_order_takes_no_memory(target: str) -> None:
    shape, *args = COPIES[target]
    x = torch.randn(shape)
    assert _is_view(_call(target, x, *args), x)


@pytest.mark.parametrize("target", REAL_COPIES)
def test_other_copies_are_copies(target: str) -> None:
    shape, *args = REAL_COPIES[target]
    x = torch.randn(shape)
    assert not _is_view(_call(target, x, *args), x)


@pytest.mark.parametrize("target", COPIES)
def test_unaligned_or_strided_values_are_copied(target: str) -> None:
    shape, *args = COPIES[target]
    unaligned = torch.randn(25)[1:].view(-1)[: torch.Size(shape).numel()].view(shape)
    assert not _is_view(_call(target, unaligned, *args), unaligned)
    strided = torch.randn(*shape, 2)[..., 0]
    assert not _is_view(_call(target, strided, *args), strided)


def test_another_memory_format_is_a_copy() -> None:
    x = torch.randn(2, 3, 4, 5)
    assert not _is_view(_call("aten.clone.default", x, memory_format=torch.channels_last), x)
    assert _is_view(_call("aten.clone.default", x, memory_format=torch.contiguous_format), x)


def test_a_gradient_goes_through_the_copy() -> None:
    x = torch.randn(4, 6, requires_grad=True)
    assert not _is_view(_call("aten.clone.default", x), x)


def test_a_further_axis_is_seen_by_the_copy_alone() -> None:
    x = torch.randn(5, 4, 6)
    value = torch.vmap(lambda lane: Limits().call("aten.view_copy.default", [lane, [3, 8]], {}))(x)
    assert torch.equal(value, x.view(5, 3, 8))
