"""No operator that etviz calls for a graph can end the process, whatever the graph gives it."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
import torch

from etviz.evaluation.limits import Limits, TooLargeError
from etviz.evaluation.operator_rules import ArgumentError, UnknownOperatorError, resolve
from etviz.pipeline.service import spared_memory
from tests.fuzz.conftest import Attempts
from tests.fuzz.operators import EDGES, admitted
from tests.fuzz.test_mutations import share, start
from tests.fuzz.worker import Try

X = torch.ones(2, 3)
UNFIT: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "a number for a dtype": ("aten._to_copy.default", [X], {"dtype": 6}),
    "a text for a tensor": ("aten.relu.default", ["x"], {}),
    "a tensor for a list": ("aten.cat.default", [X], {}),
    "too many": ("aten.relu.default", [X, X], {}),
    "too few": ("aten.mm.default", [X], {}),
    "an unknown name": ("aten.relu.default", [X], {"out": X}),
    "one twice": ("aten.relu.default", [X], {"self": X}),
    "sparse": ("aten.relu.default", [X.to_sparse()], {}),
    "a number beyond 64 bits": ("aten.add.Scalar", [X, 1 << 70], {}),
    "a window without end": ("aten.max_pool2d.default", [torch.ones(1, 1, 4, 4), [(1 << 63) - 1]], {}),
    "no statistics": ("aten._native_batch_norm_legit.no_stats", [X, None, None, False, 0.1, 1e-5], {}),
    "weights of another shape": ("aten.lstm.input", [X, [X, X], [X] * 4, True, 1, 0.0, False, False, False], {}),
    "pairs of more than rows": ("aten._pdist_forward.default", [torch.ones(8, 1, 0), 2.0], {}),
    "attention to nothing": ("aten._scaled_dot_product_attention_math.default", [torch.ones(1, 2, 0, 3)] * 3, {}),
    "groups of nothing": ("aten.group_norm.default", [torch.ones(2, 0, 3), 1 << 30], {}),
}


@pytest.mark.parametrize("case", UNFIT)
def test_arguments_that_do_not_fit(case: str) -> None:
    """They are refused before the kernel sees them."""
    target, args, kwargs = UNFIT[case]
    with pytest.raises(ArgumentError):
        Limits().call(target, args, kwargs)


@pytest.mark.parametrize(
    "target",
    [
        *("aten._stack.default", "aten.special_laguerre_polynomial_l.default"),
        *("aten.to.prim_dtype", "aten.to.prim_Device", "aten.to.prim_other"),
    ],
)
def test_operators_of_no_program(target: str) -> None:
    with pytest.raises(UnknownOperatorError):
        resolve(target)


def test_axes_without_an_index_and_those_of_a_mask_count_once() -> None:
    """As of a picture that is resized by indices, behind its channels."""
    x, rows = torch.rand(2, 3, 300, 300), torch.arange(0, 300, 2)
    resized = Limits().call("aten.index.Tensor", [x, [None, None, rows[:, None], rows]], {})
    assert torch.equal(resized, x[:, :, ::2, ::2])
    x = x.permute(2, 3, 0, 1)
    mask = x[:, :, 0, 0] > 0.5
    assert torch.equal(Limits().call("aten.index.Tensor", [x, [mask]], {}), x[mask])


@pytest.mark.parametrize(
    ("target", "fits", "large", "refusal"),
    [
        ("aten.repeat_interleave.Tensor", [torch.tensor([3])], [torch.tensor([1 << 40])], TooLargeError),
        ("aten.one_hot.default", [torch.tensor([3])], [torch.tensor([1 << 40])], TooLargeError),
        ("aten.full.default", [[4], 1.0], [[1 << 30, 1 << 20], 1.0], TooLargeError),
        ("aten.full.default", [[1], 1.0], [[True], 1.0], None),
        ("aten.select.int", [torch.ones(3), 0, 1], [torch.ones(3), 0, 1.0], ArgumentError),
        ("aten.neg.default", [torch.ones(3)], [torch.ones(3).to_sparse()], ArgumentError),
    ],
)
def test_what_was_admitted_admits_nothing_else(
    target: str, fits: list[Any], large: list[Any], refusal: type[Exception] | None
) -> None:
    """Checks are remembered for arguments of the same shapes, types and plain values."""
    first = Limits().call(target, fits, {})
    assert torch.equal(first, Limits().call(target, fits, {}))
    if refusal is None:
        assert torch.equal(first, Limits().call(target, large, {}))
        return
    with pytest.raises(refusal):
        Limits().call(target, large, {})
    assert torch.equal(first, Limits().call(target, fits, {}))


MOVES: dict[str, dict[str, Any]] = {
    "aten.view_copy.default": {"size": [3, 16]},
    "aten.unsqueeze_copy.default": {"dim": 0},
    "aten.expand_copy.default": {"size": [16, 3], "implicit": False},
    "dim_order_ops._clone_dim_order.default": {"dim_order": [0, 1]},
}


@pytest.mark.parametrize("target", MOVES)
def test_a_copy_in_the_same_order_takes_no_memory(target: str) -> None:
    """Arguments by place, as exported programs have them, and by name, as delegates do."""
    x, others = torch.rand(16, 3), MOVES[target]
    named = Limits().call(target, [], {"self": x, **others})
    assert named.data_ptr() == x.data_ptr()
    assert torch.equal(named.flatten(), x.flatten())
    by_place = [x] if "dim_order" in target else [x, next(iter(others.values()))]
    placed = Limits().call(target, by_place, others if "dim_order" in target else {})
    assert placed.data_ptr() == x.data_ptr()
    assert placed.shape == named.shape
    turned = Limits().call("aten.permute_copy.default", [], {"self": x, "dims": [1, 0]})
    assert turned.data_ptr() != x.data_ptr()
    assert turned.is_contiguous()
    assert torch.equal(turned, x.T)


def _end_with(megabytes: int) -> str:
    try:
        with spared_memory(megabytes << 20):
            Limits().call("aten.tensor_split.sections", [torch.ones(4), 1 << 17], {})
    except TooLargeError:
        return "too large"
    return "value"


def test_more_tensors_than_memory_holds() -> None:
    """C++ or Python notices it, which makes an object for each. A process of its own has no memory to reuse."""
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        ends = set(fresh.map(_end_with, range(16, 80, 4)))
    assert ends == {"value", "too large"}


@pytest.mark.fuzz
def test_no_arguments_end_the_process(ask: Attempts) -> None:
    """Every operator, with arguments that don't fit, mostly."""
    targets = admitted()
    assert len(targets) > 400
    count = max(3, math.ceil(share(0.38) / len(targets)))
    seeds = [start() + number for number in range(count)] + [-1 - number for number in range(EDGES)]
    tries = [Try("call", {}, how=target, changes=[seed]) for target in targets for seed in seeds]
    ask.all(f"arguments of {len(targets)} operators", tries)


def test_copy_that_changes_nothing_is_not_made() -> None:
    """It would take memory, and leave a hole that no later value of its size fits. Kernels need aligned memory."""
    x = torch.arange(24.0).reshape(4, 6)
    whole, moved = Limits().call("aten.view_copy.default", [x, [2, 12]], {}), [[1, 0], [0, 1]]
    assert whole.data_ptr() == x.data_ptr()
    assert torch.equal(whole, x.reshape(2, 12))
    turned, same = (Limits().call("aten.permute_copy.default", [x, order], {}) for order in moved)
    assert same.data_ptr() == x.data_ptr() != turned.data_ptr()
    assert turned.is_contiguous()
    assert Limits().call("aten.expand_copy.default", [x[:, None], [4, 2, 6]], {}).shape == (4, 2, 6)
    odd = torch.arange(25.0)[1:]
    copied = Limits().call("aten.unsqueeze_copy.default", [odd, 0], {})
    assert copied.data_ptr() != odd.data_ptr()
    assert torch.equal(copied[0], odd)
