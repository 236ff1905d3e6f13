"""The ledger against counts, bytes and times that come from elsewhere."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn

import etviz
from tests.programs import Executed

Make = Callable[[str], Executed]


@pytest.mark.parametrize("name", ["residual_cnn", "many_outputs", "branches", "digits_int8", "plain_cnn"])
def test_counts_are_those_of_the_delegation(executed: Make, name: str) -> None:
    inspection = executed(name).inspection
    frame = inspection.time.ledger("instruction")
    delegates = frame[frame["kind"] == "delegate"]
    assert inspection.delegation is not None
    assert len(delegates) == inspection.delegation.num_delegated_subgraphs
    assert list(frame["instruction"]) == sorted(inspection.coverage["instruction"].unique())
    assert (frame.loc[frame["kind"] == "kernel", "operator_count"] == 1).all()
    assert delegates["operator_count"].sum() <= inspection.delegation.num_delegated_nodes


@pytest.mark.parametrize("name", ["residual_cnn", "many_outputs", "plain_cnn"])
def test_bytes_are_those_of_the_tensors(executed: Make, name: str) -> None:
    """What an instruction gives is as large as the tensors that the runtime logged of it."""
    inspection = executed(name).inspection
    frame = inspection.time.ledger().set_index("instruction")
    values = {row: inspection.tensors(row)[1] for row in inspection.gaps.index}
    sizes = {row: value.numel() * value.element_size() for row, value in values.items()}
    gaps = inspection.gaps
    for instruction, rows in gaps.groupby("instruction"):
        if len(rows) == frame["outputs"][instruction]:
            assert frame["bytes_out"][instruction] == sum(sizes[row] for row in rows.index)
    image = sum(leaf.numel() * leaf.element_size() for leaf in executed("plain_cnn").inputs)
    assert name != "plain_cnn" or frame["bytes_in"].iloc[list(frame.index).index(frame.index.min())] == image


def test_times_and_errors_are_those_of_the_tables(executed: Make) -> None:
    inspection = executed("residual_cnn").inspection
    frame = inspection.time.ledger()
    assert list(frame["latency_ms"]) == sorted(frame["latency_ms"], reverse=True)
    assert frame["latency_share"].sum() == pytest.approx(1.0)
    gaps = inspection.gaps.groupby("instruction")
    for _, row in frame.iterrows():
        assert row["latency_ms"] == inspection.time.latency[row["instruction"]]
        assert row["severity_out"] == gaps.get_group(row["instruction"])["severity"].max()
        assert row["introduced_severity"] == gaps.get_group(row["instruction"])["introduced_severity"].max()
    ordered = inspection.time.ledger("instruction")
    assert ordered["severity_in"].iloc[0] == 0
    assert ordered["severity_in"].iloc[1] == ordered["severity_out"].iloc[0]


def test_what_is_not_known_is_not_made_up(executed: Make) -> None:
    frame = executed("residual_cnn").load(debug_buffer=None).time.ledger()
    assert np.isnan(frame[["introduced_severity", "severity_out"]].to_numpy(float)).all()
    assert frame["latency_ms"].notna().all()
    with pytest.raises(etviz.errors.UsageError, match="by must be a column of the ledger"):
        executed("casts").inspection.time.ledger("nothing")


class Strided(nn.Module):
    """A pooling that XNNPACK leaves out, and says why."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool2d(torch.relu(x), 2, 3) + 1


def test_why_a_partitioner_left_it_out() -> None:
    frame = etviz.debug(Strided(), (torch.randn(1, 2, 7, 7),), partitioner=[XnnpackPartitioner()]).time.ledger(
        "instruction"
    )
    pooled = frame[frame["operators"].str.contains("max_pool2d")]
    assert "must be less than or equal to kernel size" in pooled["refused"].iloc[0]
    assert (frame.loc[frame["kind"] == "delegate", "refused"] == "").all()


@pytest.mark.parametrize("form", ["one table", "a member for each"])
def test_what_a_backend_told_of_its_delegate(form: str, executed: Make, tmp_path: Path) -> None:
    made = executed("residual_cnn")
    etrecord = tmp_path / "etrecord.bin"
    etrecord.write_bytes(made.path("etrecord").read_bytes())
    told = {"forward/lowered_module_0": {"blob": 17}, "other/lowered_module_1": {"blob": 18}}
    members = {"delegate_info": told} if form == "one table" else {f"delegate_info/{k}": v for k, v in told.items()}
    with zipfile.ZipFile(etrecord, "a") as archive:
        for name, value in members.items():
            archive.writestr(name, json.dumps(value))
    inspection = made.load(etrecord=etrecord)
    frame = inspection.time.ledger("instruction")
    delegates = frame[frame["kind"] == "delegate"]
    assert delegates["delegate_info"].tolist() == [{"blob": 17}, *[None] * (len(delegates) - 1)]
    assert len(inspection.time.ledger("delegate_info")) == len(frame)
