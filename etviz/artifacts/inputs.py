"""Files with the inputs of a run: arrays, tensors, raw bytes, or a list of raw files."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.artifacts.files import PathLike, open_artifact
from etviz.artifacts.program.raw_values import read_number, read_tensor
from etviz.artifacts.scalar_types import SCALAR_TYPES
from etviz.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from etviz.artifacts.program.program import Method
    from etviz.graph.ir import Graph

_ADVICE: Final = "give a .safetensors, .npz, .npy, .pt or raw file, or a list of raw files (.txt)"
_RAW: Final = re.compile(r"(?P<path>.+):(?P<dtype>[a-z]+[0-9a-z_]*):(?P<shape>(?:\d+(?:[x,]\d+)*)?)")
_DTYPES: Final = frozenset(item.name for item in SCALAR_TYPES.values())
_LARGEST: Final = 4 << 30
"""Bytes that packed arrays may unpack to."""
_NUMBERS: Final = ("int", "double", "bool")


def is_file_name(given: Any) -> bool:
    """True if inputs are named by files and not given themselves."""
    if isinstance(given, (str, os.PathLike)):
        return True
    return isinstance(given, (list, tuple)) and bool(given) and all(isinstance(i, (str, os.PathLike)) for i in given)


def read_inputs(
    path: PathLike | Sequence[PathLike], method: Method | None = None, graph: Graph | None = None
) -> list[tuple[Any, ...]]:
    """The inputs of each execution that files hold.

    Parameters
    ----------
    path
        One file or several. ``.safetensors``, ``.npz`` or a dict in a ``.pt``: the tensors of one execution, by the
        names of the method's inputs, else in the order of the numbers in their names, else of their names. ``.npy``:
        one tensor. ``.pt``: a tensor, or a tuple or list of them; a list of tuples holds several executions. A text
        file (``input_list.txt``): a line for each execution, with the paths of raw files (or ``name:=path``) beside it.
        Anything else is the raw file of one input, which may say what it holds: ``x.bin:float32:1x3x224x224``. Of
        several files, those with one input each make an execution when there are as many as the method takes.
    method, graph
        Tell the names of the inputs, and dtype and shape of what a raw file holds.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged, too large, or has another length than its input.
    UsageError
        If a raw file's dtype or shape is not known, or files of one input each do not fill the last execution.
    """
    if isinstance(path, (str, os.PathLike)):
        return _read(os.fspath(path), 0, method, graph)
    count = len(graph.user_inputs()) if graph is not None else len(method.inputs) if method is not None else 1
    runs: list[tuple[Any, ...]] = []
    single: list[Any] = []
    for item in path:
        found = _read(os.fspath(item), len(single), method, graph)
        if len(found) != 1 or len(found[0]) != 1 or count == 1:
            runs += found
            continue
        single += found[0]
        if len(single) == count:
            runs.append(tuple(single))
            single = []
    if single:
        raise UsageError(f"inputs: the method takes {count} inputs, the files end after {len(single)} of them")
    return runs


def _read(path: str, at: int, method: Method | None, graph: Graph | None) -> list[tuple[Any, ...]]:
    """The executions of one file; where it is raw, it is the input `at`."""
    told = _RAW.fullmatch(path)
    if told is not None and not Path(path).exists():
        if told["dtype"] not in _DTYPES:
            raise UsageError(f"inputs: {told['dtype']!r} is no dtype; there are {', '.join(sorted(_DTYPES))}")
        shape = [int(size) for size in re.split("[x,]", told["shape"]) if size]
        return [(read_tensor(Path(told["path"]), told["dtype"], shape),)]
    name = Path(path)
    reader = _READERS.get(name.suffix.lower())
    names = [item.name for item in graph.user_inputs()] if graph is not None else []
    try:
        if reader is not None:
            return reader(name, names)
    except (ValueError, KeyError, EOFError, OSError, RuntimeError, zipfile.BadZipFile) as error:
        if isinstance(error, FileNotFoundError):
            raise ArtifactError(path, "there is no such file", _ADVICE) from None
        raise ArtifactError(path, f"the inputs can't be read ({str(error).splitlines()[0][:200]})", _ADVICE) from error
    runs = _listed(name) if name.suffix.lower() == ".txt" else [[name]]
    return [tuple(_raw(item, at + offset, method, graph) for offset, item in enumerate(run)) for run in runs]


def _safetensors(path: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    from safetensors import SafetensorError, safe_open

    open_artifact(path, "a file with inputs", _ADVICE).close()
    try:
        with safe_open(path, "pt") as file:
            return [tuple(file.get_tensor(name) for name in _ordered(list(file.keys()), names))]
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _npz(path: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    import torch

    with zipfile.ZipFile(path) as packed:
        size = sum(info.file_size for info in packed.infolist())
    if size > _LARGEST:
        raise ValueError(f"they unpack to {size:,} bytes, more than {_LARGEST:,}")
    with np.load(path) as archive:
        return [tuple(torch.from_numpy(archive[name].copy()) for name in _ordered(list(archive.files), names))]


def _npy(path: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    import torch

    return [(torch.from_numpy(np.load(path)),)]


def _pt(path: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    import torch

    try:
        found = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise
        raise ValueError("it holds more than tensors, numbers, lists and dicts") from None
    if isinstance(found, list) and found and all(isinstance(item, tuple) for item in found):
        return found
    if isinstance(found, dict):
        return [tuple(found[name] for name in _ordered(list(found), names))]
    return [tuple(found) if isinstance(found, (list, tuple)) else (found,)]


_READERS: Final[dict[str, Callable[[Path, Sequence[str]], list[tuple[Any, ...]]]]] = {
    ".safetensors": _safetensors,
    ".npz": _npz,
    ".npy": _npy,
    ".pt": _pt,
    ".pth": _pt,
}


def _ordered(names: list[str], expected: Sequence[str]) -> list[str]:
    """Names as they are expected; else in the order of their last numbers if all have one, else as they are sorted."""
    if set(names) == set(expected):
        return list(expected)
    numbers = [re.findall(r"\d+", name) for name in names]
    if all(numbers) and len({found[-1] for found in numbers}) == len(names):
        return sorted(names, key=lambda name: int(re.findall(r"\d+", name)[-1]))
    return sorted(names)


def _listed(path: Path) -> list[list[Path]]:
    """The raw files of each line of a list."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ArtifactError(path, "there is no such file", _ADVICE) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(path, f"the list can't be read ({error})", _ADVICE) from error
    runs = [[part.rpartition(":=")[2] for part in line.split()] for line in lines if line.strip()]
    runs = [run for run in runs if not run[0].startswith(("#", "%"))]
    if not runs:
        raise ArtifactError(path, "the list names no files", _ADVICE)
    return [[_beside(path, Path(item)) for item in run] for run in runs]


def _beside(path: Path, item: Path) -> Path:
    """A file of a list where it is now: as it is named, or beside the list where it was named on another machine."""
    near = path.parent / item
    return near if near.is_file() else path.parent / item.name


def _raw(path: Path, at: int, method: Method | None, graph: Graph | None) -> Any:
    if method is not None and at < len(method.inputs):
        value = method.values[method.inputs[at]]
        if value.kind in _NUMBERS:
            return read_number(path, value.kind)
        if value.tensor is not None and value.tensor.dynamism == "static":
            return read_tensor(path, value.tensor.dtype, value.tensor.sizes, value.tensor.dim_order)
    if graph is not None:
        users = graph.user_inputs()
        meta = users[at].meta if at < len(users) else None
        if meta is not None and all(isinstance(size, int) for size in meta.shape):
            return read_tensor(path, meta.dtype, _static(meta.shape))
    raise UsageError(f"{path}: dtype and shape of input {at} are not known; give pte=, or the inputs as tensors")


def _static(shape: Sequence[int | str]) -> list[int]:
    return [size for size in shape if isinstance(size, int)]
