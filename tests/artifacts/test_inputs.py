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


def test_a_list_names_no_file_outside_of_its_folder(runs: dict[str, Run], tmp_path: Path):
    method = read_program(runs["channels_last"].pte).method()
    folder = tmp_path / "sent"
    (folder / "inner").mkdir(parents=True)
    image, secret = torch.randn(2, 3, 4, 5), torch.zeros(2, 3, 4, 5)
    for path, value in ((tmp_path / "secret.raw", secret), (folder / "inner" / "image.raw", image)):
        path.write_bytes(value.permute(0, 2, 3, 1).contiguous().numpy().tobytes())
    (folder / "link.raw").symlink_to(tmp_path / "secret.raw")
    for name in ("../secret.raw", str(tmp_path / "secret.raw"), "link.raw"):
        (folder / "list.txt").write_text(f"{name}\n")
        with pytest.raises(ArtifactError, match=r"it names .*, which is not below its folder"):
            read_inputs(folder / "list.txt", method)
    (folder / "list.txt").write_text("inner/image.raw\n")
    assert torch.equal(read_inputs(folder / "list.txt", method)[0][0], image)
    (folder / "secret.raw").write_bytes((folder / "inner" / "image.raw").read_bytes())
    (folder / "list.txt").write_text("../secret.raw\n")
    assert torch.equal(read_inputs(folder / "list.txt", method)[0][0], image)


def test_any_order_of_bytes_and_of_memory_is_understood(tmp_path: Path):
    values = np.arange(6.0, dtype=">f4").reshape(2, 3)
    np.save(tmp_path / "a.npy", np.asfortranarray(values))
    assert torch.equal(read_inputs(tmp_path / "a.npy")[0][0], TENSORS[0])


def test_what_unpacks_to_more_is_read(tmp_path: Path):
    np.savez_compressed(tmp_path / "a.npz", np.zeros(100_000))
    assert len(read_inputs(tmp_path / "a.npz")[0][0]) == 100_000


@pytest.mark.parametrize("shape", ["9" * 30, "9" * 5000, "x".join("1" * 100), "0x" + "9" * 18, "9x" * 1000 + "9"])
def test_absurd_shapes_of_raw_files(shape: str, tmp_path: Path):
    (tmp_path / "a").write_bytes(b"" if shape[0] == "0" else bytes(48))
    with pytest.raises((ArtifactError, UsageError), match=r"no tensor has|the file has 48 bytes"):
        read_inputs(f"{tmp_path / 'a'}:float32:{shape}")


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_values_of_raw_files_stay_when_these_change(tmp_path: Path):
    """Nor do they hold descriptors: a list may name thousands."""
    values, open_before = np.arange(6.0, dtype=np.float32), _descriptors()
    values.tofile(tmp_path / "a.bin")
    save_file({"x": TENSORS[0]}, tmp_path / "a.safetensors")
    np.save(tmp_path / "a.npy", values)
    names = [f"{tmp_path / 'a.bin'}:float32:2x3", tmp_path / "a.safetensors", tmp_path / "a.npy"]
    found = [read_inputs(name)[0][0] for name in names]
    for path in tmp_path.iterdir():
        with path.open("r+b") as file:
            file.truncate(0)
    assert all(torch.equal(tensor.reshape(2, 3), TENSORS[0]) for tensor in found)
    assert _descriptors() == open_before
