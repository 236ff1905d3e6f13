"""Values as JSON and one file of tensors, exchanged between two processes without pickle.

Unpacking runs no code: a dataclass gets its fields, and no constructor is called. Objects of both processes (nodes,
tensors in the debug buffer) travel by the name that a `Known` gives them.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final

import numpy as np
import torch

from etviz.errors import EtvizError
from etviz.tensors.digest import octets

Json = Any

_ALIGNMENT: Final = 64
_MAPPED: Final = 1 << 20
_PLAIN: Final = (bool, int, float, str, type(None))
_CONTAINERS: Final = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class Known:
    def name(self, value: Any, packer: Packer) -> Json | None:
        """None if the value itself has to travel."""
        return None

    def find(self, name: Json, unpacker: Unpacker) -> Any:
        raise LookupError(name)


class Packer:
    def __init__(self, path: Path, known: Known) -> None:
        self._path, self._known = path, known
        self._file: BinaryIO | None = None
        self._seen: dict[int, tuple[int, Any]] = {}

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def pack(self, value: Any) -> Json:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if id(value) in self._seen:
            return ["again", self._seen[id(value)][0]]
        name = self._known.name(value, self)
        if name is not None:
            return ["known", name]
        if kind in _CONTAINERS.values():
            return [kind.__name__, *map(self.pack, value)]
        if kind is dict:
            return ["dict", *(self.pack(item) for pair in value.items() for item in pair)]
        return self._object(value)

    def _object(self, value: Any) -> Json:
        kind = type(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["record", kind.__module__, kind.__qualname__, *map(self.pack, value)]
        if isinstance(value, torch.dtype):
            return ["dtype", str(value).removeprefix("torch.")]
        if isinstance(value, PurePath):
            return ["path", str(value)]
        if isinstance(value, bytes):
            return ["bytes", base64.b64encode(value).decode()]
        if isinstance(value, np.generic):
            return self.pack(value.item())
        if isinstance(value, float) and kind.__module__.startswith("etviz."):
            members = {name: getattr(value, name) for name in getattr(kind, "__slots__", ())}
            return ["number", kind.__module__, kind.__qualname__, float(value), self.pack(members)]
        if isinstance(value, EtvizError):
            return ["error", kind.__module__, kind.__qualname__, self.pack(value.args), self.pack(vars(value))]
        number = len(self._seen)
        self._seen[id(value)] = number, value  # it is held, so its id stays its own
        if isinstance(value, torch.Tensor):
            return ["tensor", number, *self._tensor(value)]
        if isinstance(value, np.ndarray):
            return ["array", number, *self._array(value)]
        if dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
            return [
                "object",
                number,
                kind.__module__,
                kind.__qualname__,
                *((name, self.pack(getattr(value, name))) for name in fields),
            ]
        if kind.__name__ == "DataFrame":
            return ["table", number, *self._columns(value)]
        raise TypeError(f"a value of type {kind.__name__} can't be handed to another process")

    def _columns(self, value: Any) -> list[Json]:
        return [
            len(value),
            *([str(name), str(value[name].dtype), self.pack(value[name].tolist())] for name in value.columns),
        ]

    def _array(self, value: np.ndarray[Any, Any]) -> list[Json]:
        if value.dtype == object:
            return ["items", list(value.shape), *map(self.pack, value.reshape(-1))]
        raw = torch.from_numpy(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        return [str(value.dtype), list(value.shape), *self._tensor(raw)]

    def _tensor(self, value: torch.Tensor) -> list[Json]:
        if value.layout is not torch.strided or value.is_quantized or value.device.type != "cpu":
            raise TypeError(f"a tensor of layout {value.layout} on {value.device} can't be handed to another process")
        stored = value.detach().resolve_conj().resolve_neg()
        order = sorted(range(stored.dim()), key=lambda axis: (-stored.stride(axis), -stored.shape[axis]))
        dense = stored.permute(order)
        if not dense.is_contiguous():
            stored = dense = stored.contiguous()
        dtype = str(stored.dtype).removeprefix("torch.")
        return [dtype, list(stored.shape), list(stored.stride()), self._write(dense)]

    def _write(self, dense: torch.Tensor) -> int:
        if not dense.numel():
            return 0
        if self._file is None:
            self._file = self._path.open("wb")
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        start = self._file.tell()
        self._file.write(octets(dense).numpy().data)
        return start


class Unpacker:
    def __init__(self, path: Path, known: Known) -> None:
        self._known = known
        self._raw = _content(path)
        self._seen: dict[int, Any] = {}

    def unpack(self, packed: Json) -> Any:
        if not isinstance(packed, list):
            return packed
        kind, *rest = packed
        if kind in _CONTAINERS:
            return _CONTAINERS[kind](self._all(rest))
        return self._known.find(rest[0], self) if kind == "known" else getattr(self, f"_{kind}")(*rest)

    def _all(self, items: Sequence[Json]) -> list[Any]:
        return [self.unpack(item) for item in items]

    def _dict(self, *items: Json) -> dict[Any, Any]:
        flat = self._all(items)
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def _again(self, number: int) -> Any:
        return self._seen[number]

    def _dtype(self, name: str) -> Any:
        return _dtype(name)

    def _path(self, text: str) -> Path:
        return Path(text)

    def _bytes(self, text: str) -> bytes:
        return base64.b64decode(text)

    def _record(self, module: str, name: str, *items: Json) -> Any:
        return _class(module, name)(*self._all(items))

    def _number(self, module: str, name: str, value: float, members: Json) -> float:
        kind = _class(module, name)
        made = float.__new__(kind, value)
        for member, content in self.unpack(members).items():
            setattr(made, member, content)
        return made

    def _error(self, module: str, name: str, args: Json, members: Json) -> EtvizError:
        kind = _class(module, name)
        error = kind.__new__(kind)
        error.args = self.unpack(args)
        vars(error).update(self.unpack(members))
        return error

    def _object(self, number: int, module: str, name: str, *fields: Json) -> Any:
        kind = _class(module, name)
        made = self._seen[number] = object.__new__(kind)
        for field in dataclasses.fields(kind):
            if field.name.startswith("_") and field.default is not dataclasses.MISSING:
                object.__setattr__(made, field.name, field.default)
        for field, value in fields:
            object.__setattr__(made, field, self.unpack(value))
        return made

    def _tensor(self, number: int, *place: Json) -> torch.Tensor:
        made = self._seen[number] = self._at(*place)
        return made

    def _array(self, number: int, dtype: str, shape: list[int], *rest: Json) -> Any:
        if dtype == "items":
            made = np.empty(len(rest), object)
            made[:] = self._all(rest)
        else:
            made = self._at(*rest).numpy().view(dtype)
        made = self._seen[number] = made.reshape(shape)
        return made

    def _table(self, number: int, rows: int, *columns: Json) -> Any:
        import pandas as pd

        columns_by_name = {name: pd.Series(self.unpack(values), dtype=dtype) for name, dtype, values in columns}
        made = self._seen[number] = pd.DataFrame(columns_by_name, index=range(rows))
        return made

    def _at(self, dtype: str, shape: list[int], strides: list[int], start: int) -> torch.Tensor:
        kind = _dtype(dtype)
        if 0 in shape:
            return torch.empty(shape, dtype=kind)
        size = kind.itemsize * (1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)))
        return self._raw[start : start + size].view(kind).as_strided(shape, strides)


def _content(path: Path) -> torch.Tensor:
    """A mapping needs no descriptor and lasts longer than the file."""
    size = path.stat().st_size if path.exists() else 0
    if size >= _MAPPED:
        return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8) if size else torch.empty(0)


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"torch.{name} is no dtype")
    return dtype


def _class(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module) if module.startswith("etviz.") else None
    for part in name.split("."):
        found = getattr(found, part, None)
    is_own = isinstance(found, type) and issubclass(found, (EtvizError, float))
    if not (is_own or dataclasses.is_dataclass(found) or hasattr(found, "_fields")):
        raise TypeError(f"{module}.{name} can't be handed to another process")
    return found
