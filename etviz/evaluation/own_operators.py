"""A reference in which the user's functions compute some operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from etviz.evaluation.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class OwnFunctions:
    """By operator, ``aten.gelu.default`` or ``aten.gelu`` for every overload.

    A function takes the operator's arguments, and may return `NotImplemented`. `problems` has the reasons of failures.
    """

    functions: Mapping[str, Callable[..., Any]]
    problems: dict[str, str] = field(default_factory=dict)

    def find(self, target: str) -> Callable[..., Any] | None:
        return self.functions.get(target) or self.functions.get(target.rpartition(".")[0])


class OwnOperators(Limits):
    """If the user's function fails, the operator itself is called."""

    def __init__(self, functions: OwnFunctions, files: int = 0) -> None:
        super().__init__(files)
        self._own = functions

    def is_plain(self, target: str) -> bool:
        return self._own.find(target) is None

    def call(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value = super().call(target, args, kwargs)
        function = self._own.find(target)
        if function is None:
            return value
        try:
            result = function(*args, **kwargs)
            return value if result is NotImplemented else _fitted(result, value)
        except Exception as error:  # noqa: BLE001 - the user's function may fail in its own way
            self._own.problems.setdefault(target, f"reference= fails on {target}: {error or type(error).__name__}")
            return value


def _fitted(result: Any, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        if not isinstance(result, (list, tuple)) or len(result) != len(value):
            raise TypeError(f"it must return {len(value)} values, found {type(result).__name__}")
        return type(value)(_fitted(*pair) for pair in zip(result, value, strict=True))
    if not isinstance(value, torch.Tensor):
        return result
    if not isinstance(result, torch.Tensor) or result.shape != value.shape:
        got = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
        raise TypeError(f"it must return a tensor of shape {tuple(value.shape)}, found {got}")
    return result.detach().to(value.dtype)
