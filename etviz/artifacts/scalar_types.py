"""The scalar type codes of `executorch/schema/scalar_type.fbs`, and their NumPy dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class ScalarType:
    """`numpy` is the little-endian dtype of an element's bytes; for bfloat16 and float8, of its bits."""

    code: int
    name: str
    numpy: str

    @property
    def itemsize(self) -> int:
        return int(self.numpy[2:])


SCALAR_TYPES: dict[int, ScalarType] = {
    item.code: item
    for item in (
        ScalarType(0, "uint8", "<u1"),
        ScalarType(1, "int8", "<i1"),
        ScalarType(2, "int16", "<i2"),
        ScalarType(3, "int32", "<i4"),
        ScalarType(4, "int64", "<i8"),
        ScalarType(5, "float16", "<f2"),
        ScalarType(6, "float32", "<f4"),
        ScalarType(7, "float64", "<f8"),
        ScalarType(9, "complex64", "<c8"),
        ScalarType(10, "complex128", "<c16"),
        ScalarType(11, "bool", "<b1"),
        ScalarType(12, "qint8", "<i1"),
        ScalarType(13, "quint8", "<u1"),
        ScalarType(14, "qint32", "<i4"),
        ScalarType(15, "bfloat16", "<u2"),
        ScalarType(22, "bits16", "<u2"),
        ScalarType(23, "float8_e5m2", "<u1"),
        ScalarType(24, "float8_e4m3fn", "<u1"),
        ScalarType(25, "float8_e5m2fnuz", "<u1"),
        ScalarType(26, "float8_e4m3fnuz", "<u1"),
        ScalarType(27, "uint16", "<u2"),
        ScalarType(28, "uint32", "<u4"),
        ScalarType(29, "uint64", "<u8"),
    )
}
ITEM_SIZES = {item.name: item.itemsize for item in SCALAR_TYPES.values()}
_OPAQUE: Final = frozenset(("qint8", "quint8", "qint32", "bits16"))
"""Types without computation in torch. Viewing bytes as a type that needs a scale ends the process."""
READ_TYPES = {item.name: item for item in SCALAR_TYPES.values() if item.name not in _OPAQUE}


def torch_dtype(name: str) -> torch.dtype | None:
    """None for types that torch can't read.

    Examples
    --------
    >>> torch_dtype("bfloat16"), torch_dtype("qint32")
    (torch.bfloat16, None)
    """
    import torch

    dtype = getattr(torch, name, None) if name in READ_TYPES else None
    return dtype if isinstance(dtype, torch.dtype) else None


def scalar_type_name(code: int) -> str:
    """Names unknown types, too.

    Examples
    --------
    >>> scalar_type_name(15), scalar_type_name(99)
    ('bfloat16', 'unknown(99)')
    """
    known = SCALAR_TYPES.get(code)
    return known.name if known else f"unknown({code})"
