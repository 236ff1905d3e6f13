"""Files with inputs are read as what they hold, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from etviz.artifacts.inputs import read_inputs
from etviz.artifacts.program.program import read_program
from etviz.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from tests.artifacts.conftest import Run

TENSORS = (torch.arange(6.0).view(2, 3), torch.tensor([3, 1]), torch.ones(1, dtype=torch.bool))


def _equal(found: Any, expected: Any) -> bool:
    return len(found) == len(expected) and all(
        torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(found, expected, strict=True)
    )


def test_every_kind_of_file_gives_its_tensors_in_order(tmp_path: Path):
    save_file({f"input.{at}": tensor for at, tensor in enumerate(TENSORS)}, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", arg10=TENSORS[2], arg8=TENSORS[0], arg9=TENSORS[1])
    torch.save(TENSORS, tmp_path / "a.pt")
    for name in ("a.safetensors", "a.npz", "a.pt"):
        (found,) = read_inputs(tmp_path / name)
        assert _equal(found, TENSORS), name
    np.save(tmp_path / "a.npy", TENSORS[0].numpy())
    assert _equal(read_inputs(tmp_path / "a.npy")[0], TENSORS[:1])
    torch.save([(TENSORS[0],), (TENSORS[0] + 1,)], tmp_path / "two.pt")
    assert [run[0][0, 0].item() for run in read_inputs(tmp_path / "two.pt")] == [0, 1]


def test_raw_files_are_read_as_the_program_says(runs: dict[str, Run], tmp_path: Path):
    method = read_program(runs["channels_last"].pte).method()
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    (tmp_path / "image_0.raw").write_bytes(image.permute(0, 2, 3, 1).contiguous().numpy().tobytes())
    (tmp_path / "input_list.txt").write_text("/on/the/phone/image_0.raw\nx:=image_0.raw\n")
    found = read_inputs(tmp_path / "input_list.txt", method)
    assert len(found) == 2
    for (tensor,) in [*found, *read_inputs(tmp_path / "image_0.raw", method)]:
        assert torch.equal(tensor, image)
        assert tensor.stride() == image.stride()
    with pytest.raises(UsageError, match="dtype and shape of input 0 are not known"):
        read_inputs(tmp_path / "image_0.raw")


BAD = {
    "a.safetensors": b"{not json",
    "a.npz": b"PK\x03\x04 nothing",
    "a.npy": b"\x93NUMPY",
    "a.pt": b"\x80\x02c__builtin__\neval\n.",
    "input_list.txt": b"\n\n",
    "other.txt": b"\xff\xfe",
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_files_are_refused(name: str, tmp_path: Path):
    (tmp_path / name).write_bytes(BAD[name])
    with pytest.raises(ArtifactError, match=name):
        read_inputs(tmp_path / name)


@pytest.mark.parametrize("name", [*BAD, "a.raw"])
def test_missing_files_are_named(name: str, runs: dict[str, Run], tmp_path: Path):
    with pytest.raises(ArtifactError, match="there is no such file"):
        read_inputs(tmp_path / name, read_program(runs["channels_last"].pte).method())


def test_arrays_of_objects_are_refused(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ArtifactError, match="the inputs can't be read"):
        read_inputs(tmp_path / "a.npy")
