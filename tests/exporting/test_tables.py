"""`gaps` as CSV and Parquet: every number comes back, and shapes are still there."""

from __future__ import annotations

import ast
from pathlib import Path

import pandas as pd
import pytest

from etviz.tensors.metrics import METRICS
from tests.programs import Executed

NUMBERS = [*METRICS, *(f"introduced_{name}" for name in METRICS), "latency_ms"]


def test_csv_holds_every_number_and_shape(program: Executed, tmp_path: Path) -> None:
    gaps = program.inspection.gaps
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    read = pd.read_csv(tmp_path / "gaps.csv", dtype=str)
    assert list(read.columns) == list(gaps.columns)
    assert read["shape"].map(ast.literal_eval).tolist() == gaps["shape"].tolist()
    for name in NUMBERS:
        pd.testing.assert_series_equal(read[name].astype(float), gaps[name].astype(float), check_exact=True)
    for name in ("instruction", "output", "event_block", "reference_nan", "runtime_inf"):
        assert read[name].astype(float).equals(gaps[name].astype(float))
    for name in ("op", "status", "dtype"):
        assert read[name].tolist() == gaps[name].tolist()


def test_parquet_holds_every_number_and_shape(program: Executed, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not a dependency")
    gaps = program.inspection.gaps
    gaps.to_parquet(tmp_path / "gaps.parquet")
    read = pd.read_parquet(tmp_path / "gaps.parquet")
    assert [tuple(shape) for shape in read["shape"]] == gaps["shape"].tolist()
    pd.testing.assert_frame_equal(read.drop(columns="shape"), gaps.drop(columns="shape"), check_dtype=False)
