"""Parameters are matched by their numbers, whatever their names, order and scale."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import etviz
from etviz.errors import PairingError, UsageError
from etviz.parity.parameters import interleaving, match_parameters


def _random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", [(24, 16), (16, 16), (32, 8, 3)])
def test_relations(seed: int, shape: tuple[int, ...]) -> None:
    a, b = _random(seed, *shape), _random(seed + 100, *shape)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(shape[0], generator=generator)
    reference = {"a": a, "b": b}
    cases = {
        "equal": a,
        "permuted": a[order],
        "interleaved": a[interleaving(shape[0], 8)],
        "scaled": a * 0.125,
        "rounded": a.to(torch.bfloat16),
        "part": a[2:7],
        "fused": torch.cat([b, a]),
    }
    if len(shape) == 2:
        cases["transposed"] = a.T.contiguous()
    for relation, value in cases.items():
        (found,) = match_parameters({"x": value}, reference)
        assert found.relation == relation
        assert found.sources == (("b", "a") if relation == "fused" else ("a",))
        expected = found.expected(reference)
        if found.rows is not None and relation not in ("transposed",):
            expected = expected[found.rows]
        expected = expected.T if relation == "transposed" and len(shape) == 2 else expected
        torch.testing.assert_close(
            value.float(), expected * found.factor, atol=0, rtol=1e-2 if relation == "rounded" else 1e-6
        )


@pytest.mark.parametrize("size", [5, 64])
def test_vectors(size: int) -> None:
    a, order = _random(1, size), torch.randperm(size, generator=torch.Generator().manual_seed(2))
    for relation, value in {"equal": a, "offset": a + 1, "scaled": a * 3, "permuted": a[order]}.items():
        (found,) = match_parameters({"x": value}, {"other": _random(3, size), "a": a})
        assert (found.relation, found.sources) == (relation, ("a",))
    assert match_parameters({"x": _random(9, size)}, {"a.b": a})[0].relation == "unmatched" or size


def test_unrelated_numbers_do_not_match() -> None:
    reference = {f"m{at}.weight": _random(at, 32, 16) for at in range(40)}
    for seed in range(40):
        (found,) = match_parameters({"deep.inner.weight": _random(1000 + seed, 32, 16)}, reference)
        assert found.by == "place" or not found.sources


def test_columns_in_another_order() -> None:
    a, order = _random(1, 12, 16), torch.randperm(16, generator=torch.Generator().manual_seed(2))
    (found,) = match_parameters({"x": a[:, order]}, {"a": a})
    assert (found.relation, found.detail) == ("permuted", "columns")
    assert found.columns is not None
    assert torch.equal(found.columns, order)


def test_tied_parameters_both_match() -> None:
    shared = _random(1, 20, 8)
    found = match_parameters({"in": shared, "out": shared.clone()}, {"embed": shared, "head": shared})
    assert [match.sources for match in found] == [("embed",), ("head",)]
    found = match_parameters({"in": shared, "out": shared.clone()}, {"embed": shared})
    assert [match.sources for match in found] == [("embed",), ("embed",)]


class _Net(nn.Module):
    def __init__(self, seed: int, width: int = 12) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.one = nn.Linear(width, 20)
        self.two = nn.Linear(20, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x)))


def test_parameters_that_match_twice_are_called_ambiguous() -> None:
    """Two layers with equal numbers; the numbers do not tell which one a parameter is. Tied ones are one parameter."""
    reference = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 6))
    reference[2].load_state_dict(reference[0].state_dict())
    found = etviz.parity(copy.deepcopy(reference), reference, _random(0, 3, 6))
    rows = found.parameters.set_index("parameter")
    assert {rows.loc["0.weight", "reference"], rows.loc["2.weight", "reference"]} == {"0.weight", "2.weight"}
    assert rows.loc["0.weight", "also"] == rows.loc["2.weight", "reference"]
    assert rows.loc["3.weight", "also"] == ""
    assert "4 are ambiguous (0.weight holds the numbers of 0.weight and 2.weight)" in found.summary()
    assert found.agrees
    a = _random(1, 4, 4)
    (tied,) = match_parameters({"x": a.clone()}, {"a": a, "b": a.view(4, 4)})
    assert not tied.twins


def test_other_weights_are_refused() -> None:
    with pytest.raises(PairingError, match="none of the 4 parameters of _Net has the numbers of one of the 4"):
        etviz.parity(_Net(0), _Net(1), torch.randn(3, 12))


def test_one_layer_with_other_weights() -> None:
    model, reference = _Net(0), _Net(0)
    model.two.weight.data += 0.1 * _random(5, 12, 20)
    found = etviz.parity(model, reference, torch.randn(3, 12))
    assert found.hypothesis is not None
    assert found.hypothesis.hypothesis.name == "other weights"
    assert found.hypothesis.hypothesis.where == "two.weight"


def test_bad_arguments() -> None:
    net = _Net(0)
    with pytest.raises(UsageError, match="_Net fails on its arguments: RuntimeError"):
        etviz.parity(net, net, torch.randn(3, 11))
    with pytest.raises(UsageError, match="inputs must be a tensor, a list of token ids"):
        etviz.parity(net, net, "text")
    with pytest.raises(UsageError, match="model must be a"):
        etviz.parity("model", net, torch.randn(3, 12))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        etviz.parity(net, net, torch.randn(3, 12), mapping={})  # pyright: ignore[reportCallIssue]
