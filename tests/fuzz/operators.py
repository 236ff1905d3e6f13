"""Every operator that etviz calls, with arguments that don't fit."""

from __future__ import annotations

import random
from typing import Any

LIBRARIES = ("aten", "quantized_decomposed", "torchao", "llama", "et_vk", "dim_order_ops")
_SHAPES = ((), (0,), (1,), (3,), (4, 4), (2, 0, 3), (1, 2, 3), (2, 3, 4, 4), (1, 4, 6, 6), (1, 2, 3, 4, 5), (8, 8))
_DTYPES = ("float32", "float32", "float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
_INTEGERS = (
    0,
    0,
    1,
    1,
    1,
    2,
    2,
    3,
    4,
    -1,
    -1,
    -2,
    -3,
    7,
    64,
    127,
    255,
    10**6,
    2**31,
    2**62,
    2**63 - 1,
    -(2**63),
    2**64,
)
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-3, 1e308, float("inf"), float("nan"), 10**400)
_TEXTS = (
    "",
    "none",
    "mean",
    "nearest",
    "bilinear",
    "constant",
    "floor",
    "trunc",
    "ij,jk->ik",
    "ij->ji",
    "a" * 300,
    "\0",
)


class RefusedError(Exception):
    """The kernel itself did not take the arguments."""


def load_libraries() -> None:
    """Register the operators of all libraries."""
    from etviz.upstream.libraries import load_operator_library

    for library in LIBRARIES:
        load_operator_library(library)


def admitted() -> list[str]:
    """Names of the operators of this machine that etviz resolves."""
    import torch

    from etviz.errors import EtvizError
    from etviz.evaluation.operator_rules import resolve

    load_libraries()
    found = []
    for kernel in sorted(torch._C._dispatch_get_all_op_names()):  # type: ignore[attr-defined]
        namespace, _, rest = kernel.partition("::")
        name, _, overload = rest.partition(".")
        target = f"{namespace}.{name}.{overload or 'default'}"
        if namespace in LIBRARIES:
            try:
                resolve(target)
            except EtvizError:
                continue
            found.append(target)
    return found


class Arguments:
    """Draws arguments: mostly of the types that the schema asks for, some of any."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shape: tuple[int, ...] = ()
        self.kind = "float32"

    def of(self, schema: Any) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments."""
        args, kwargs = [], {}
        self.shape, self.kind = self.random.choice(_SHAPES), self.random.choice(_DTYPES)
        wild = self.random.random() < 0.3
        for argument in schema.arguments:
            if argument.has_default_value() and self.random.random() < 0.5:
                if not argument.kwarg_only:
                    break
                continue
            real = str(getattr(argument, "real_type", argument.type))
            value = self.any() if wild and self.random.random() < 0.3 else self.value(real)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def value(self, kind: str) -> Any:
        pick = self.random.choice
        if kind.startswith("Optional[") or kind.endswith("?"):
            inner = kind[9:-1] if kind.startswith("Optional[") else kind[:-1]
            return None if self.random.random() < 0.4 else self.value(inner)
        if kind.startswith("List["):
            return [self.value(kind[5:-1]) for _ in range(pick((0, 1, 1, 2, 2, 2, 3, 4, 5)))]
        known = {
            "Tensor": self.tensor,
            "int": lambda: pick(_INTEGERS),
            "SymInt": lambda: pick(_INTEGERS),
            "float": lambda: pick(_FLOATS),
            "bool": lambda: pick((True, False)),
            "number": lambda: pick((*_INTEGERS, *_FLOATS)),
            "Scalar": lambda: pick((*_INTEGERS, *_FLOATS)),
            "str": lambda: pick(_TEXTS),
            "ScalarType": self.dtype,
            "Device": lambda: __import__("torch").device("cpu"),
        }
        return known[kind]() if kind in known else self.any()

    def dtype(self) -> Any:
        import torch

        return getattr(torch, self.random.choice((*_DTYPES, "complex64", "qint8", "float8_e4m3fn", "uint16")))

    def tensor(self) -> Any:
        import torch

        if self.random.random() < 0.6:  # several of one kind get further than several of different kinds
            return torch.ones(self.shape).mul(self.random.choice((0, 1, 3))).to(getattr(torch, self.kind))
        shape, dtype = self.random.choice(_SHAPES), getattr(torch, self.random.choice(_DTYPES))
        value = torch.zeros(shape, dtype=dtype) if self.random.random() < 0.3 else torch.ones(shape).mul(3).to(dtype)
        if self.random.random() < 0.1 and value.dim():
            value = value.transpose(0, -1)
        return torch.tensor(self.random.choice(_INTEGERS[:20])) if self.random.random() < 0.05 else value

    def any(self) -> Any:
        import torch

        pick = self.random.choice
        return pick(
            (
                *(None, True, 0, -1, 5, 2**62, 10**30, 0.5, float("nan"), "x", [], [0], [-1, 2**40], [[1]], [None], {}),
                *(torch.float32, torch.int8, torch.qint8, torch.channels_last, torch.strided, torch.device("cpu")),
                *([self.tensor()], [self.tensor(), None], self.tensor(), ["a"], [True], [0.5], (1, 2)),
            )
        )


EDGES = 9
"""Calls of each operator whose tensors are all of one edge: no axis, an empty one, or another type than it takes."""


def edge(number: int, schema: Any) -> tuple[list[Any], dict[str, Any]]:
    """Every argument of an operator, with tensors of one edge: the first ones have no axis, the next are empty."""
    import torch

    shapes = ((), (0,), (2, 0), (8, 1, 0), (0, 3, 4), (1, 2, 0, 3), (1, 2, 0, 3), (2, 3), (2, 3, 4, 4))
    dtypes = ("float32", "float32", "float32", "float32", "float32", "float32", "int64", "bool", "complex64")
    draw = Arguments(number)
    draw.tensor = lambda: torch.ones(shapes[number], dtype=getattr(torch, dtypes[number]))
    args, kwargs = [], {}
    for argument in schema.arguments:
        value = draw.value(str(getattr(argument, "real_type", argument.type)))
        mistyped = number >= 6 and not isinstance(value, torch.Tensor) and draw.random.random() < 0.5
        if argument.kwarg_only:
            kwargs[argument.name] = 6 if mistyped else value
        else:
            args.append(6 if mistyped else value)
    return args, kwargs


def call(target: str, seed: int, _files: object = None) -> str:
    """Call it with the arguments that follow from a number; a `RefusedError` with what the kernel says.

    The numbers below 0 stand for the calls with `edge`.
    """
    import torch

    from etviz.errors import EtvizError
    from etviz.evaluation.limits import Limits

    namespace, name, overload = target.split(".")
    schema = getattr(getattr(getattr(torch.ops, namespace), name), overload)._schema
    args, kwargs = Arguments(seed).of(schema) if seed >= 0 else edge(-seed - 1, schema)
    limits = Limits()
    limits.begin([])
    try:
        with torch.no_grad():
            limits.call(target, args, kwargs)
    except (EtvizError, MemoryError):
        raise
    except Exception as error:
        raise RefusedError(str(error)) from error
    return target
