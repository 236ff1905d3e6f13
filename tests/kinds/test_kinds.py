"""Of every kind of program, every value that the runtime logged is compared, and every gap is right.

The runtime's values come from upstream's parser (from the runtime's own outputs where the ETDump can't hold them), the
reference's from torch's interpreter on the lowered program, and the metrics from NumPy in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import etviz
from etviz.errors import UsageError
from tests import scheduling
from tests.kinds.making import WAYS, Made
from tests.oracles import same
from tests.programs import RECIPES
from tests.zoo.programs import KINDS

GROUPED = "grouped with instruction"
Place = tuple[int, int, int]


def places(program: Made) -> set[Place]:
    """Execution, instruction and output of every value that the runtime logged and that has elements."""
    return {
        (run, instruction, output)
        for run, truth in enumerate(program.truth)
        for instruction, values in truth.runtime.items()
        for output, value in enumerate(values)
        if value.numel()
    }


def rows(found: etviz.Inspection) -> dict[Place, int]:
    """The gap row of each place."""
    blocks = sorted(found.coverage["event_block"].unique())
    gaps = found.gaps
    keys = zip(gaps["event_block"].map(blocks.index), gaps["instruction"], gaps["output"], strict=True)
    return {key: index for index, key in enumerate(keys)}


INTRODUCED = {
    "rotary_dynamic_int8": 8 / 9,
    "masked_transformer": 11 / 12,
    "decoder": 24 / 33,
    "decoder_portable": 10 / 16,
    "dynamic_portable": 6 / 9,
    "cond": 4 / 5,
    "cond_portable": 4 / 5,
    "cond_diverging": 4 / 5,
    "half_beside_float": 2 / 3,
    "nonfinite": 0.0,
    "outputs": 7 / 8,
}
"""Share of the rows by debug handle whose introduced gap is known, where it is not all of them."""


def assert_right(program: Made, found: etviz.Inspection) -> None:
    """Each row has the runtime's value, its own reference, and the gap between them."""
    gaps = found.gaps
    for (run, instruction, output), index in rows(found).items():
        truth, where = program.truth[run], f"{program.name}, run {run}, instruction {instruction}, output {output}"
        known = truth.reference.get(program.nodes[instruction])
        if known is None:
            assert_unpaired(found, index)
            continue
        reference, runtime = found.tensors(index)
        if instruction in truth.runtime:
            assert same(runtime, truth.runtime[instruction][output]), where
        expected = known[output]
        assert reference.dtype == expected.dtype, where
        torch.testing.assert_close(reference, expected, rtol=1e-4, atol=1e-5, equal_nan=True, msg=where)
        assert_metrics(gaps.loc[index], reference, runtime, where)


def assert_unpaired(found: etviz.Inspection, index: int) -> None:
    """No number is made up where the reference has no such value."""
    assert found.gaps.loc[index, ["mse", "rmse", "max_abs", "severity"]].isna().all()
    assert found.gaps["reason"][index]
    with pytest.raises(UsageError, match="other branch"):
        found.tensors(index)


def assert_metrics(row: object, reference: torch.Tensor, runtime: torch.Tensor, where: str) -> None:
    """MSE, RMSE and the largest error, over the elements that are finite in both."""
    r, q = (tensor.detach().double().numpy().ravel() for tensor in (reference, runtime))
    both = np.isfinite(r) & np.isfinite(q)
    d = q[both] - r[both]
    found = [getattr(row, name) for name in ("mse", "rmse", "max_abs")]
    if not len(d):
        assert all(value == 0 if not len(r) else np.isnan(value) for value in found), where
        return
    expected = [np.mean(d * d), np.sqrt(np.mean(d * d)), np.abs(d).max()]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0, err_msg=where)


def test_processes_are_given_the_tests_by_these_names() -> None:
    recipes = {name: name for name in RECIPES} | {name: kind.same_as or name for name, kind in KINDS.items()}
    assert recipes == scheduling.PROGRAMS


def test_every_logged_value_is_compared(kind: Made) -> None:
    found = kind.load("exact")
    if kind.recipe.told:
        assert set(found.coverage["status"]) == {"compared"}
    else:
        assert set(rows(found)) == places(kind)
    assert set(found.gaps["pairing"]) == {"exact"}
    rest = found.coverage[~found.coverage["status"].isin(["compared", "empty"])]
    silent = {"the runtime logged no value for it", "it was not executed: another branch was taken"}
    assert set(rest["reason"]) <= silent


@pytest.mark.parametrize("way", WAYS)
def test_every_gap_is_right(kind: Made, way: str) -> None:
    found = kind.load(way)
    assert len(rows(found)) == len(found.gaps)
    assert_right(kind, found)
    rest = found.coverage[found.coverage["status"] != "compared"]
    assert (rest["reason"] != "").all()


def test_derived_pairing_reaches_every_value(kind: Made) -> None:
    found, exact = kind.load("derived"), kind.load("exact")
    assert len(found.gaps) == len(exact.gaps)
    assert set(found.gaps["pairing"]) == {"derived"}


def test_what_is_introduced_by_debug_handle(kind: Made) -> None:
    """What one instruction introduced is what exact pairing says; of several together, it is said that it is theirs."""
    inspection = kind.load("handles")
    found, exact = inspection.gaps, kind.load("exact").gaps
    places = ["event_block", "instruction", "output"]
    expected = exact.set_index(places)
    known = found[found["introduced_allclose"].notna()]
    assert len(known) >= INTRODUCED.get(kind.name, 1.0) * len(found)
    assert (
        found.loc[found.index.difference(known.index), "reason"].str.startswith("what it introduced is not known").all()
    )
    for index, row in known[~known["reason"].str.contains("together")].iterrows():
        place = tuple(row[places])
        assert_same_introduced(row, expected.loc[place], inspection.tensors(index)[1], f"{kind.name} {place}")


def assert_same_introduced(found: Any, expected: Any, value: torch.Tensor, where: str) -> None:
    """Every number, or the errors within the rounding of the value: two copies of a weight may give products that
    differ by it."""
    assert found["non_finite"] == expected["non_finite"], where
    errors = [f"introduced_{name}" for name in ("rmse", "mean_abs", "max_abs")]
    own, other = (np.array([row[name] for name in errors], float) for row in (found, expected))
    if value.is_floating_point() and not np.allclose(own, other, rtol=1e-6, atol=0, equal_nan=True):
        rounding = torch.finfo(value.dtype).eps * 2 * float(value[value.isfinite()].abs().max())
        np.testing.assert_allclose(own, other, rtol=0, atol=rounding, err_msg=where)
        return
    measured = "severity" if not math.isnan(found["introduced_noise"]) else "noise"
    numbers = [
        name for name in found.index if name.startswith("introduced_") and not name.endswith(("noise", measured))
    ]
    own, other = (np.array([row[name] for name in numbers], float) for row in (found, expected))
    np.testing.assert_allclose(own, other, rtol=1e-6, atol=0, err_msg=where)


@pytest.mark.parametrize("way", WAYS)
def test_final_outputs(kind: Made, way: str) -> None:
    """Plain numbers, lists, booleans and empty tensors are final outputs like any other."""
    found = kind.load(way).outputs
    if way == "handles" and kind.recipe.told:
        return
    for run, results in enumerate(kind.outputs):
        block = sorted(found["event_block"].unique())[run]
        table = found[found["event_block"] == block].reset_index(drop=True)
        assert len(table) == len(results) == len(kind.truth[run].results)
        assert set(table["status"]) <= {"compared", "non-finite mismatch"}
        for index, (value, reference) in enumerate(zip(results, kind.truth[run].results, strict=True)):
            exact = [torch.as_tensor(item, dtype=None) for item in (reference, value)]
            r, q = (item.detach().double().numpy().ravel() for item in exact)
            both = np.isfinite(r) & np.isfinite(q)
            expected = np.abs(q[both] - r[both]).max(initial=0.0)
            if both.any():
                np.testing.assert_allclose(table["max_abs"][index], expected, rtol=1e-3, atol=1e-6 * np.abs(r).max())
            assert (table["runtime_nan"][index], table["reference_nan"][index]) == (
                np.isnan(q).sum(),
                np.isnan(r).sum(),
            )


def test_executions_of_one_etdump_are_compared_with_their_own_inputs_and_state(made: Callable[[str], Made]) -> None:
    for name in ("decoder", "different", "same_twice", "nan_twice", "dynamic_shapes"):
        program = made(name)
        found = program.load("exact")
        runs = program.runs
        assert found.gaps["event_block"].nunique() == len(runs)
        assert found.outputs["matches"].all()
        counts = found.gaps["event_block"].value_counts()
        assert counts.nunique() == 1
    twice = made("same_twice").load("exact").gaps
    first, second = (
        part.drop(columns=["name", "event_block", "input_index"]) for _, part in twice.groupby("event_block")
    )
    assert (
        first.drop(columns="latency_ms")
        .reset_index(drop=True)
        .equals(second.drop(columns="latency_ms").reset_index(drop=True))
    )
