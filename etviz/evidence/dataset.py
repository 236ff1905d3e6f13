"""The inputs of a study, from any source; an input that can't be read is an entry with the reason."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch.utils._pytree import tree_leaves

from etviz.artifacts.files import open_artifact, parse_json
from etviz.artifacts.inputs import READABLE, read_values
from etviz.artifacts.record.stored_tensors import MOST_HEADER
from etviz.comparison.input_checks import why_not
from etviz.errors import ArtifactError, UsageError
from etviz.graph.ir import Input

_SPREAD: Final = 1 << 24
"""Maximum number of elements that a strided input may span."""
_PATIENCE: Final = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A `problem` if its values are missing or do not fit."""

    index: int
    name: str = ""
    values: tuple[Any, ...] = ()
    label: Any = None
    problem: str = ""


def entries(inputs: Any, takes: Sequence[Input], labels: Sequence[Any] | None = None) -> Iterator[Entry]:
    index = 0
    for name, sample, problem in _items(inputs):
        if problem:
            yield Entry(index, name, problem=problem)
            index += 1
            continue
        for values, label in _arguments(sample, takes):
            given = labels[index] if labels is not None and index < len(labels) else label
            yield Entry(index, name, values, given, why_not(values, takes))
            index += 1


def count_of(inputs: Any) -> int | None:
    if isinstance(inputs, (str, Path)):
        return len(_files(Path(inputs)))
    return len(inputs) if hasattr(inputs, "__len__") else None


def first_item(inputs: Any) -> tuple[tuple[Any, ...] | None, Any]:
    if isinstance(inputs, Iterator):
        taken: list[Any] = []
        first = next(inputs, None)
        taken += [] if first is None else [first]

        def again() -> Iterator[Any]:
            yield from taken
            yield from inputs

        return (None if first is None else _tuple(first)), again()
    for _, sample, problem in _items(inputs):
        if not problem:
            return _tuple(sample), inputs
    return None, inputs


def encode(values: Sequence[Any]) -> bytes:
    """A safetensors file: tensors by position; plain values and strides in the metadata."""
    tensors = {str(at): value.detach().cpu() for at, value in enumerate(values) if isinstance(value, torch.Tensor)}
    plain = {str(at): value for at, value in enumerate(values) if not isinstance(value, torch.Tensor)}
    strides = {name: tensor.stride() for name, tensor in tensors.items() if not tensor.is_contiguous()}
    strides = {name: stride for name, stride in strides.items() if not _why_not_laid(tensors[name].shape, stride)}
    about = json.dumps({"values": plain, "strides": strides, "count": len(values)})
    return save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"etviz": about})


def decode(data: bytes) -> list[Any]:
    """`KeyError` for other data, `ValueError` for damaged data."""
    size = int.from_bytes(data[:8], "little")
    if size > min(len(data), MOST_HEADER):
        raise ValueError("its header reaches beyond the end")
    try:
        made = parse_json(data[8 : 8 + size])["__metadata__"]["etviz"]
        tensors = load(data)
    except (TypeError, SafetensorError) as error:
        raise ValueError(f"it is no safetensors file ({error})") from error
    try:
        about = parse_json(made.encode())
        values = {**about["values"], **tensors}
        values |= {name: _strided(tensors[name], stride) for name, stride in about["strides"].items()}
        if about["count"] != len(values):
            raise ValueError(f"it has {len(values)} values, not {about['count']}")
        return [values[str(at)] for at in range(len(values))]
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its metadata makes no sense ({error})") from error


def _strided(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    if problem := _why_not_laid(tensor.shape, stride):
        raise ValueError(f"the strides {stride} do not fit the shape {list(tensor.shape)}: {problem}")
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)


def _why_not_laid(shape: Sequence[int], stride: Sequence[int]) -> str:
    if len(stride) != len(shape) or not all(isinstance(step, int) and step >= 0 for step in stride):
        return "they are no strides of it"
    last = 0
    for step, size in sorted((step, size) for step, size in zip(stride, shape, strict=True) if size > 1):
        if step <= last:
            return "elements would overlap"
        last += (size - 1) * step
    return "" if last < max(_SPREAD, 2 * math.prod(shape)) else "they are too far apart"


def content(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _items(inputs: Any) -> Iterator[tuple[str, Any, str]]:
    if isinstance(inputs, (str, Path)):
        for path in _files(Path(inputs)):
            try:
                yield path.name, _read(path), ""
            except Exception as error:  # noqa: BLE001 - a file of the user's may be anything
                yield path.name, None, _said(error)
        return
    if isinstance(inputs, Mapping) or not (hasattr(inputs, "__iter__") or hasattr(inputs, "__getitem__")):
        raise UsageError(
            f"inputs must be a list of inputs, a DataLoader, a generator or a folder, found {type(inputs).__name__}"
        )
    if hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__"):
        for at in range(len(inputs)):
            try:
                yield "", inputs[at], ""
            except Exception as error:  # noqa: BLE001 - the data set is the user's
                yield "", None, _said(error)
        return
    yield from _iterated(inputs)


def _iterated(inputs: Iterable[Any]) -> Iterator[tuple[str, Any, str]]:
    source, failed = iter(inputs), 0
    while failed < _PATIENCE:
        try:
            sample = next(source)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - the data set is the user's
            failed += 1
            yield "", None, _said(error)
            continue
        failed = 0
        yield "", sample, ""


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"the data set raised {type(error).__name__}" + (f": {text}" if text else "")


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ArtifactError(folder, "there is no such folder of inputs", "name a folder with one file for each input")
    files = sorted(path for path in folder.iterdir() if path.suffix in READABLE)
    if not files:
        raise ArtifactError(folder, f"there is no input in it ({', '.join(READABLE)})", "name another folder")
    return files


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        data = bytes(open_artifact(path, "an input", "name a folder with one file for each input"))
        with contextlib.suppress(KeyError):
            return tuple(decode(data))
    values = read_values(path)
    return tuple(values.values()) if isinstance(values, dict) and path.suffix != ".pt" else values


def _tuple(sample: Any) -> tuple[Any, ...]:
    return tuple(sample) if isinstance(sample, (list, tuple)) else (sample,)


def _arguments(sample: Any, takes: Sequence[Input]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    given = tree_leaves(_tuple(sample))
    values = tuple(torch.from_numpy(value) if isinstance(value, np.ndarray) else value for value in given)
    label = None
    if len(values) == len(takes) + 1:
        values, label = values[:-1], values[-1]
    size = _batch(values, takes)
    if size is None:
        yield values, _plain(label)
        return
    several = label is not None and getattr(label, "ndim", 0) > 0
    for at in range(size):
        sample_label = label[at] if label is not None and several else label
        yield tuple(value[at : at + 1] for value in values), _plain(sample_label)


def _batch(values: Sequence[Any], takes: Sequence[Input]) -> int | None:
    if not values or len(values) != len(takes):
        return None
    sizes = set()
    for value, declared in zip(values, takes, strict=True):
        shape, expected = getattr(value, "shape", None), declared.meta.shape if declared.meta is not None else None
        if shape is None or expected is None or len(shape) != len(expected) or not shape:
            return None
        if expected[0] != 1 or tuple(shape[1:]) != tuple(expected[1:]):
            return None
        sizes.add(int(shape[0]))
    return sizes.pop() if len(sizes) == 1 and sizes != {1} else None


def _plain(label: torch.Tensor | Any) -> Any:
    item = getattr(label, "item", None)
    count = label.numel() if isinstance(label, torch.Tensor) else np.size(label)
    return item() if callable(item) and getattr(label, "size", None) is not None and count == 1 else label
