"""Files with the inputs of a run: arrays, tensors, raw bytes, or a list of raw files."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import safe_open

from etviz.artifacts.files import PathLike, as_file, open_archive, open_artifact
from etviz.artifacts.program.program import Method
from etviz.artifacts.program.raw_values import read_number, read_tensor
from etviz.artifacts.record.stored_tensors import MOST_HEADER
from etviz.artifacts.record.torch_file import load_all
from etviz.artifacts.scalar_types import READ_TYPES
from etviz.errors import ArtifactError, UsageError
from etviz.graph.ir import Graph

_ADVICE: Final = "give a .safetensors, .npz, .npy, .pt or raw file, or a list of raw files (.txt)"
_RAW: Final = re.compile(r"(?P<path>.+):(?P<dtype>[a-z]+[0-9a-z_]*):(?P<shape>(?:\d+(?:[x,]\d+)*)?)")
_UNPACKED: Final = 256 << 20
"""Maximum bytes of packed arrays beyond the size of their file."""
_LARGEST_LIST: Final = 4 << 20
_MOST_FILES: Final = 20_000
_BLOCK: Final = 1 << 20
_MOST_DIMENSIONS: Final = 64
_MOST_DIGITS: Final = 18
_NUMBERS: Final = ("int", "double", "bool")


def is_file_name(given: Any) -> bool:
    if isinstance(given, (str, os.PathLike)):
        return True
    return isinstance(given, (list, tuple)) and bool(given) and all(isinstance(i, (str, os.PathLike)) for i in given)


def read_inputs(
    path: PathLike | Sequence[PathLike], method: Method | None = None, graph: Graph | None = None
) -> list[tuple[Any, ...]]:
    """The inputs of each execution that files hold.

    ``.safetensors``, ``.npz`` or a dict in a ``.pt``: one execution, by the method's input names, else in the order of
    the numbers in their names, else of their names. ``.npy``: one tensor. ``.pt``: a tensor, or a tuple or list of
    them; a list of tuples holds several executions. A text file (``input_list.txt``): for each execution a line with
    paths of raw files (or ``name:=path``) beside it. Anything else is the raw file of one input, which may state its
    type: ``x.bin:float32:1x3x224x224``. Files with one input each make an execution when there are as many as the
    method takes.

    An `ArtifactError` if a file is too large or has another length than its input, a `UsageError` if a raw file's dtype
    or shape is not known, or the last execution is incomplete.
    """
    if isinstance(path, (str, os.PathLike)):
        return _read(os.fspath(path), 0, method, graph)
    count = len(graph.user_inputs()) if graph is not None else len(method.inputs) if method is not None else 1
    runs: list[tuple[Any, ...]] = []
    single: list[Any] = []
    for file in path:
        runs_of_file = _read(os.fspath(file), len(single), method, graph)
        if len(runs_of_file) != 1 or len(runs_of_file[0]) != 1 or count == 1:
            runs += runs_of_file
            continue
        single += runs_of_file[0]
        if len(single) == count:
            runs.append(tuple(single))
            single = []
    if single:
        raise UsageError(f"inputs: the method takes {count} inputs, the files end after {len(single)} of them")
    return runs


def _read(path: str, at: int, method: Method | None, graph: Graph | None) -> list[tuple[Any, ...]]:
    told = _RAW.fullmatch(path)
    if told is not None and not os.path.exists(path):  # noqa: PTH110 - which takes a name of any length
        if told["dtype"] not in READ_TYPES:
            raise UsageError(f"inputs: {told['dtype']!r} is no dtype; there are {', '.join(sorted(READ_TYPES))}")
        digits = [size for size in re.split("[x,]", told["shape"]) if size]
        if len(digits) > _MOST_DIMENSIONS or max(map(len, digits), default=0) > _MOST_DIGITS:
            raise UsageError(f"inputs: no tensor has a shape such as {told['shape'][:40]}…")
        return [(read_tensor(Path(told["path"]), told["dtype"], [*map(int, digits)]),)]
    name = Path(path)
    if name.suffix.lower() in _READERS:
        names = [placeholder.name for placeholder in graph.user_inputs()] if graph is not None else []
        return _runs(read_values(name), names)
    runs = _listed(name) if name.suffix.lower() == ".txt" else [[name]]
    return [tuple(_raw(value, at + offset, method, graph) for offset, value in enumerate(run)) for run in runs]


def _runs(values: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    if isinstance(values, list) and values and all(isinstance(item, tuple) for item in values):
        return values
    if isinstance(values, dict):
        named = {str(name): value for name, value in values.items()}
        return [tuple(named[name] for name in _ordered(list(named), names))]
    return [tuple(values) if isinstance(values, (list, tuple)) else (values,)]


def read_values(path: PathLike) -> Any:
    reader = _READERS[Path(path).suffix.lower()]
    with memoryview(open_artifact(path, "a file with inputs", _ADVICE)) as data:
        try:
            return reader(data, os.fspath(path))
        except ArtifactError:
            raise
        except Exception as error:
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise ArtifactError(path, f"the inputs can't be read ({reason})", _ADVICE) from error


def read_in_order(path: PathLike) -> Any:
    values = read_values(path)
    return tuple(values.values()) if isinstance(values, dict) else values


def _safetensors(data: memoryview, path: str) -> dict[str, Any]:
    if int.from_bytes(data[:8], "little") > MOST_HEADER:
        raise ValueError("its header is larger than that of any file with inputs")
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - it is no dict


def _npz(data: memoryview, _path: str) -> dict[str, Any]:
    with open_archive(data) as (archive, members):
        size = sum(info.file_size for info in members.values())
        if size > len(data) + _UNPACKED:
            raise ValueError(f"they unpack to {size:,} bytes, far more than the file has; give them unpacked, as .npy")
        arrays = {}
        for name, info in members.items():
            content = bytearray(info.file_size)
            with archive.open(info) as member:
                at = 0
                while block := member.read(_BLOCK):
                    content[at : at + len(block)] = block
                    at += len(block)
            arrays[name.removesuffix(".npy")] = _array(memoryview(content))
        return arrays


def _array(data: memoryview) -> torch.Tensor:
    file = as_file(data)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it has version {version} of the format; known are 1.0 and 2.0")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_column, dtype = read(file)
    if dtype.kind not in "biufc":
        raise ValueError(f"it is an array of {dtype.name}, not of numbers")
    start, count = file.tell(), math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize != len(data) - start:
        raise ValueError(f"an array of the shape {shape} has not {len(data) - start} bytes")
    flat = np.frombuffer(data, dtype, count, start) if count else np.empty(0, dtype)
    array = flat.reshape(shape, order="F" if by_column else "C")
    array = array if dtype.isnative else array.astype(dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _pt(data: memoryview, path: str) -> Any:
    return load_all(data, path, "the file with inputs", "save it again with torch.save()")


_READERS: Final[dict[str, Callable[[memoryview, str], Any]]] = {
    ".safetensors": _safetensors,
    ".npz": _npz,
    ".npy": lambda data, _: _array(data).clone(),
    ".pt": _pt,
    ".pth": _pt,
}
READABLE: Final = tuple(_READERS)


def _ordered(names: list[str], expected: Sequence[str]) -> list[str]:
    if set(names) == set(expected):
        return list(expected)
    numbers = [re.findall(r"\d+", name) for name in names]
    if all(numbers) and len({match[-1] for match in numbers}) == len(names):
        return sorted(names, key=lambda name: int(re.findall(r"\d+", name)[-1]))
    return sorted(names)


def _listed(path: Path) -> list[list[Path]]:
    data = open_artifact(path, "a list of raw files", _ADVICE)
    if len(data) > _LARGEST_LIST:
        raise ArtifactError(path, f"the list has {len(data):,} bytes, more than any list of inputs", _ADVICE)
    try:
        lines = bytes(data).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ArtifactError(path, f"the list can't be read ({error})", _ADVICE) from error
    runs = [[part.rpartition(":=")[2] for part in line.split()] for line in lines if line.strip()]
    runs = [run for run in runs if not run[0].startswith(("#", "%"))]
    if not runs:
        raise ArtifactError(path, "the list names no files", _ADVICE)
    if sum(map(len, runs)) > _MOST_FILES:
        raise ArtifactError(path, f"the list names more than {_MOST_FILES:,} files", "give a part of it")
    return [[_beside(path, Path(file)) for file in run] for run in runs]


def _beside(path: Path, named: Path) -> Path:
    near, beside, folder = path.parent / named, path.parent / named.name, path.parent.resolve()
    there = [candidate for candidate in (near, beside) if os.path.isfile(candidate)]  # noqa: PTH113 - takes a name of any length
    inside = [candidate for candidate in there if candidate.resolve().is_relative_to(folder)]
    if there and not inside:
        raise ArtifactError(path, f"it names {named}, which is not below its folder", "copy that file beside the list")
    return inside[0] if inside else beside


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
        if meta is not None and meta.sizes is not None:
            return read_tensor(path, meta.dtype, meta.sizes)
    raise UsageError(f"{path}: dtype and shape of input {at} are not known; give pte=, or the inputs as tensors")
