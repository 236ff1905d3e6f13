"""What upstream has in memory is taken as it is: bytes, ETRecord objects, their reference outputs, time scales."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.devtools.etrecord import parse_etrecord
from executorch.devtools.inspector import TimeScale
from torch import Tensor, nn

import etviz
from etviz.errors import UsageError

FILES = ("etdump.etdp", "debug_buffer.bin", "etrecord.bin")


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(torch.tanh(self.linear(x)), -1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module, tuple[Tensor, ...]]:
    folder = tmp_path_factory.mktemp("made")
    torch.manual_seed(0)
    model, inputs = Small().eval(), (torch.randn(3, 6),)
    etviz.debug(model, inputs, workdir=folder / "all")
    for name in FILES:
        shutil.copy(folder / "all" / name, folder)
    return folder, model, inputs


def test_bytes_and_an_etrecord_in_memory(made: tuple[Path, nn.Module, tuple[Tensor, ...]]) -> None:
    folder, _, _ = made
    etdump, buffer, etrecord = (folder / name for name in FILES)
    expected = etviz.load(etdump, debug_buffer=buffer, etrecord=etrecord)
    found = etviz.load(
        etdump.read_bytes(),
        debug_buffer=bytearray(buffer.read_bytes()),
        etrecord=parse_etrecord(str(etrecord)),
        source_time_scale=TimeScale.NS,
    )
    columns = [name for name in expected.gaps.columns if name not in ("latency_ms", "noise", "introduced_noise")]
    assert len(found.gaps)
    assert found.gaps["mse"].tolist() == expected.gaps["mse"].tolist()
    assert found.gaps[columns].shape == expected.gaps[columns].shape
    assert found.events["avg_ms"].tolist() == expected.events["avg_ms"].tolist()
    slow = etviz.load(etdump, debug_buffer=buffer, etrecord=etrecord, source_time_scale=TimeScale.US)
    assert slow.events["avg_ms"].tolist() == pytest.approx([1000 * ms for ms in expected.events["avg_ms"]])


def test_an_object_that_can_not_be_saved_is_named(made: tuple[Path, nn.Module, tuple[Tensor, ...]]) -> None:
    class Broken:
        def save(self, path: str) -> None:
            raise RuntimeError("no room")

    with pytest.raises(UsageError, match="the etrecord in memory can't be saved"):
        etviz.load(made[0] / FILES[0], etrecord=Broken())


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_reference_outputs_are_compared(
    made: tuple[Path, nn.Module, tuple[Tensor, ...]], shift: float, tmp_path: Path
) -> None:
    folder, model, inputs = made
    record: Any = parse_etrecord(str(folder / "etrecord.bin"))
    with torch.no_grad():
        record.update_reference_outputs([[model(*inputs) + shift]])
    record.save(str(tmp_path / "with_outputs.bin"))
    found = etviz.load(
        folder / "etdump.etdp", debug_buffer=folder / "debug_buffer.bin", etrecord=tmp_path / "with_outputs.bin"
    )
    said = [note for note in found.summary().splitlines() if "reference output 0" in note]
    if shift:
        assert "differs from the evaluated reference by up to 0.5" in said[0]
        assert "the runtime is off by up to 0.5" in said[0]
    else:
        assert not said


def test_debug_handles_are_a_column(made: tuple[Path, nn.Module, tuple[Tensor, ...]]) -> None:
    folder, _, _ = made
    found = etviz.load(folder / FILES[0], debug_buffer=folder / FILES[1], etrecord=folder / FILES[2])
    upstream: Any = parse_etrecord(str(folder / "etrecord.bin"))
    handles = upstream._debug_handle_map["forward"]
    known = {int(at): set(own if isinstance(own, list) else [own]) for at, own in handles.items()}
    for frame in (found.gaps, found.coverage):
        for _, row in frame.iterrows():
            assert set(row["debug_handles"]) == known[row["instruction"]] - {-1, 0}
