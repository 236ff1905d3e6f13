"""One run of an eager model, with the values that its modules receive and return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from etviz.errors import UsageError
from etviz.evaluation.noise import Rounding
from etviz.graph.ir import Node

LANES: Final = 3


class Point(NamedTuple):
    """A value that a module receives or returns; `side` is ``input`` or ``output``."""

    module: str
    side: str
    call: int = 0


@dataclass(slots=True)
class Arguments:
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Any, name: str) -> Arguments:
        """From a tensor or ids, a tuple of arguments, or a dictionary of them; else `UsageError`."""
        if isinstance(given, torch.Tensor):
            return cls((given,))
        if isinstance(given, Mapping):
            return cls((), dict(given))
        if isinstance(given, list) and given and all(type(token) is int for token in given):
            return cls((torch.tensor([given]),))
        if isinstance(given, tuple) and given:
            return cls(given)
        raise UsageError(
            f"{name} must be a tensor, a list of token ids, a tuple of arguments or a dictionary of them, "
            f"found {type(given).__name__}"
        )

    def longer(self, first: torch.Tensor) -> Arguments:
        """More token ids in front of the first tensor, and positions that go on after the last one."""
        more, length = first.shape[-1], self.args[0].shape[-1] if self.args else 0
        ids = torch.cat([first.to(self.args[0].dtype), self.args[0]], -1)
        return Arguments((ids, *[_extended(argument, length, more) for argument in self.args[1:]]), self.kwargs)


def _extended(value: Any, length: int, more: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _extended(item, length, more) for name, item in value.items()}
    if isinstance(value, torch.Tensor) and not value.is_floating_point() and value.shape[-1:] == (length,):
        return torch.arange(length + more, dtype=value.dtype).expand(*value.shape[:-1], -1)
    return value


@dataclass(slots=True)
class Edits:
    """Changes of a model that leave the model itself as it is.

    `outputs` change the first tensor of a module's output; `functions` wrap torch's, which they take with the
    arguments; `prefix` are token ids before the inputs.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: dict[str, list[Callable[[torch.Tensor], torch.Tensor]]] = field(default_factory=dict)
    attributes: dict[tuple[str, str], Any] = field(default_factory=dict)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    prefix: torch.Tensor | None = None

    def joined(self, other: Edits) -> Edits:
        outputs = {name: list(changes) for name, changes in self.outputs.items()}
        for name, changes in other.outputs.items():
            outputs.setdefault(name, []).extend(changes)
        return Edits(
            self.tensors | other.tensors,
            outputs,
            self.attributes | other.attributes,
            self.functions | other.functions,
            other.prefix if other.prefix is not None else self.prefix,
        )


@dataclass(slots=True)
class Trace:
    values: dict[Point, torch.Tensor]
    output: torch.Tensor

    def less(self, other: Trace) -> Trace:
        gaps = {point: value.double() - other.values[point].double() for point, value in self.values.items()}
        return Trace(gaps, self.output.double() - other.output.double())


def tensor_in(value: Any) -> torch.Tensor | None:
    """The first floating-point tensor, also within containers."""
    if isinstance(value, torch.Tensor):
        return value if value.is_floating_point() else None
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((tensor for item in value if (tensor := tensor_in(item)) is not None), None)
    return None


def replaced(value: Any, new: torch.Tensor) -> Any:
    old = tensor_in(value)

    def change(part: Any) -> Any:
        if part is old:
            return new
        if isinstance(part, Mapping):
            for name, inner in part.items():
                part[name] = change(inner)  # pyright: ignore[reportIndexIssue]
            return part
        if isinstance(part, (tuple, list)):
            changed = [change(inner) for inner in part]
            return type(part)(*changed) if hasattr(part, "_fields") else type(part)(changed)
        return part

    return change(value)


def run(
    model: torch.nn.Module,
    arguments: Arguments,
    edits: Edits | None = None,
    *,
    seed: int | None = None,
    only: Sequence[Point] | None = None,
) -> Trace:
    """Run a model once, from its present state, which does not change.

    `seed` perturbs each result as another correct implementation may (`etviz.evaluation.noise.Rounding`). `UsageError`
    if the model fails on the arguments, or returns no floating-point tensor.
    """
    edits = edits or Edits()
    if edits.prefix is not None:
        arguments = arguments.longer(edits.prefix)
    state = {name: buffer.clone() for name, buffer in model.named_buffers()} | edits.tensors
    with ExitStack() as stack:
        values = _watched(model, edits, None if only is None else set(only), stack)
        for (path, name), value in edits.attributes.items():
            module = model.get_submodule(path)
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        stack.enter_context(torch.no_grad())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if edits.functions:
            stack.enter_context(_Functions(edits.functions))
        if seed is not None:
            stack.enter_context(_Perturbed(seed))
        try:
            output = torch.func.functional_call(model, state, arguments.args, arguments.kwargs, strict=False)
        except Exception as error:
            raise UsageError(
                f"{type(model).__name__} fails on its arguments: {type(error).__name__}: {error}"
            ) from error
    result = tensor_in(output)
    if result is None:
        raise UsageError(f"{type(model).__name__} returns no floating-point tensor, found {type(output).__name__}")
    return Trace(values, result.detach().clone())


def _watched(
    model: torch.nn.Module, edits: Edits, wanted: set[Point] | None, stack: ExitStack
) -> dict[Point, torch.Tensor]:
    values: dict[Point, torch.Tensor] = {}
    calls: dict[str, int] = {}

    def keep(point: Point, value: Any) -> None:
        tensor = tensor_in(value) if wanted is None or point in wanted else None
        if tensor is not None:
            values[point] = tensor.detach().clone()

    def before(path: str, _: Any, args: Any, kwargs: Any) -> None:
        calls[path] = calls.get(path, -1) + 1
        keep(Point(path, "input", calls[path]), (args, kwargs))

    def after(path: str, _: Any, args: Any, kwargs: Any, output: Any) -> Any:
        for change in edits.outputs.get(path, ()):
            value = tensor_in(output)
            output = output if value is None else replaced(output, change(value))
        keep(Point(path, "output", calls[path]), output)
        return output

    for path, module in model.named_modules():
        stack.callback(module.register_forward_pre_hook(partial(before, path), with_kwargs=True).remove)
        stack.callback(module.register_forward_hook(partial(after, path), with_kwargs=True).remove)
    return values


class _Functions(TorchFunctionMode):
    def __init__(self, wrappers: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__()
        self._wrappers = wrappers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wrapper = self._wrappers.get(getattr(func, "__name__", ""))
        return wrapper(func, *args, **(kwargs or {})) if wrapper else func(*args, **(kwargs or {}))


class _Perturbed(TorchDispatchMode):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rounding = Rounding(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(item.alias_info is not None for item in func._schema.arguments):
            return func(*args, **kwargs)

        def call(_: str, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
            return func(*given, **named)

        return self._rounding.call(call, Node("", str(func)), args, kwargs)


def noise_of(model: torch.nn.Module, arguments: Arguments, plain: Trace) -> Iterator[Trace]:
    for seed in range(LANES):
        yield run(model, arguments, seed=seed).less(plain)
