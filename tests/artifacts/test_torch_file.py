"""Weights inside of an ETRecord: read from the file that was opened, whatever happens to its name."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from etviz.artifacts.files import open_artifact
from etviz.artifacts.record.torch_file import TensorFile
from etviz.errors import FileChangedError


def written(path: Path, tensors: dict[str, torch.Tensor], shift: int) -> Path:
    """A file of tensors that begins `shift` bytes behind where its tensors would be aligned."""
    saved = io.BytesIO()
    torch.save(tensors, saved)
    path.write_bytes(bytes(64 + shift) + saved.getvalue())
    return path


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"weight": torch.randn(300, 200), "steps": torch.arange(300_000), "empty": torch.zeros(0, 3)}


@pytest.mark.parametrize("shift", [0, 1, 2, 63])
@pytest.mark.parametrize("after", ["nothing", "replaced", "gone"])
def test_every_value_is_the_one_that_was_saved(
    tensors: dict[str, torch.Tensor], shift: int, after: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "weights", tensors, shift)
    data = memoryview(open_artifact(path, "weights", "save them"))
    found = TensorFile(data[64 + shift :], str(path), "weights")
    if after == "replaced":
        others = {name: tensor + 1 for name, tensor in tensors.items()}
        written(tmp_path / "others", others, shift).replace(path)
    elif after == "gone":
        path.unlink()
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
        assert found[name].data_ptr() % tensor.element_size() == 0
        assert torch.equal(found.in_place(name).view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 100), lambda path: os.utime(path, (1, 1))])
def test_a_file_that_was_written_to_is_refused(
    tensors: dict[str, torch.Tensor], change: Callable[[Path], None], tmp_path: Path
) -> None:
    path = written(tmp_path / "weights", tensors, 1)
    data = memoryview(open_artifact(path, "weights", "save them"))
    found = TensorFile(data[65:], str(path), "weights")
    assert torch.equal(found["weight"], tensors["weight"])
    change(path)
    with pytest.raises(FileChangedError, match="cut or written to"):
        found["weight"]
