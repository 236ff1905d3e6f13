"""A debug buffer that lost its end, and programs that really end in zeros."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import etviz
from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.comparison.truncated_buffer import blank_tail
from etviz.loading.artifact_set import ArtifactSet
from etviz.loading.load import read
from tests.programs import FILES, Executed


def cut_and_filled(program: Executed, folder: Path, keep: float) -> Path:
    """A copy whose end was lost and made up with zeros."""
    content = program.path("debug_buffer").read_bytes()
    size = int(len(content) * keep)
    path = folder / "cut.bin"
    path.write_bytes(content[:size] + bytes(len(content) - size))
    return path


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.8])
def test_values_of_a_buffer_that_was_cut_short_are_not_compared(
    keep: float, executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    program = executed("residual_cnn")
    path = cut_and_filled(program, tmp_path, keep)
    found = etviz.load(
        program.path("etdump"),
        etrecord=program.path("etrecord"),
        debug_buffer=path,
        pte=program.path("pte"),
        record=program.path("record"),
    )
    assert "was cut short" in found.summary()
    whole = program.inspection.gaps.set_index(["instruction", "output"])
    for _, gap in found.gaps.iterrows():
        assert gap["mse"] == pytest.approx(whole.loc[(gap["instruction"], gap["output"]), "mse"])
    lost = found.coverage[found.coverage["status"] == "not compared"]
    assert 0 < len(found.gaps) < len(whole)
    assert len(lost) > 1
    assert lost["reason"].str.contains("was lost").all()
    assert found.analysis.digest.level == "unknown"


def test_a_whole_buffer_has_no_blank_end(program: Executed) -> None:
    refs = list(read_etdump(program.path("etdump")).tensor_refs())
    start = blank_tail(DebugBuffer(program.path("debug_buffer")), refs)
    assert start is None
    assert "cut short" not in program.inspection.summary()


class EndsInZeros(nn.Module):
    """Its last three kernels give nothing but zeros."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(-x.abs() - 1)
        return torch.sin(y) * (x.abs() + 1)


def test_zeros_of_the_program_itself_are_compared(tmp_path: Path) -> None:
    found = etviz.debug(EndsInZeros(), (torch.randn(3, 4),), workdir=tmp_path)
    refs = list(read_etdump(tmp_path / "etdump.etdp").tensor_refs())
    assert blank_tail(DebugBuffer(tmp_path / "debug_buffer.bin"), refs) is not None
    assert (found.coverage["status"] == "compared").all()
    assert found.analysis.digest.level == "ok"
    assert "zero" not in found.summary()


class Scaled(nn.Module):
    scale: Tensor

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin((x.abs() + 1) * self.scale)


@pytest.mark.parametrize("ran_here", [True, False])
def test_only_the_end_of_a_buffer_from_elsewhere_is_doubted(ran_here: bool, tmp_path: Path) -> None:
    """The program ends in zeros, its reference does not: of a run made here, these are the runtime's values."""
    inputs = (torch.randn(3, 4),)
    for scale in (0.0, 1.0):
        etviz.debug(Scaled(scale), inputs, workdir=tmp_path / str(scale))
    pte = shutil.copy(tmp_path / "0.0" / FILES["pte"], tmp_path)
    dump, buffer = (tmp_path / "0.0" / FILES[kind] for kind in ("etdump", "debug_buffer"))
    files = ArtifactSet.open(dump, debug_buffer=buffer, pte=pte, etrecord=tmp_path / "1.0" / FILES["etrecord"])
    found = read(files, inputs, None, 1e-6, ran_here=ran_here)
    said = [note for note in found.compared.notes if "debug buffer to its end is zero" in note]
    assert len(said) == (not ran_here)
