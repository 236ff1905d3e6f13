"""What is attributed: the error of one final output, or the difference of a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from etviz.errors import UsageError
from etviz.numerics.cell import Cell

if TYPE_CHECKING:
    import torch

Loss = Callable[[list[Any]], Any]


class ErrorTarget:
    """What is attributed: `seeds` are the derivatives of it by the outputs, `error` its size."""

    def __init__(self, outputs: Sequence[Cell], logged: Sequence[Any], output: int, loss: Loss | None) -> None:
        self.references = [cell.reference for cell in outputs]
        self.middles = [cell.middle for cell in outputs]
        self.reach = self.rounded = 0
        for index, cell in enumerate(outputs):
            if loss is not None or index == output:
                self.reach |= cell.reach
                self.rounded |= cell.rounded
        runtimes = [cell.runtime for cell in outputs]
        if len(logged) == len(outputs):
            runtimes = [_fitting(a, b, c) for a, b, c in zip(logged, self.references, runtimes, strict=True)]
        self.output, self.loss = output, loss
        self.excluded = 0
        self.seeds: list[torch.Tensor | None] = [None] * len(outputs)
        if loss is None:
            self.error = self._output_error(runtimes[output])
        else:
            self.error = self._loss_error(loss, runtimes)

    def _output_error(self, runtime: Any) -> float:
        import torch

        reference = self.references[self.output]
        if not isinstance(reference, torch.Tensor) or not isinstance(runtime, torch.Tensor):
            raise UsageError(f"output {self.output} is not a tensor, so there is no error to attribute")
        if runtime.shape != reference.shape:
            raise UsageError(f"output {self.output} has another shape at runtime, so there is no error to attribute")
        self.delta = runtime.double() - reference.double()
        finite = torch.isfinite(self.delta)
        self.excluded = int((~finite).sum())
        self.delta = torch.where(finite, self.delta, 0.0)
        largest = float(self.delta.abs().max()) if self.delta.numel() else 0.0
        if largest == 0.0:
            return 0.0
        scaled = self.delta / largest
        self.norm = float((scaled * scaled).sum())
        self.seeds[self.output] = scaled / self.norm / largest
        return largest * self.norm**0.5

    def _loss_error(self, loss: Loss, runtimes: Sequence[Any]) -> float:
        """The difference of the loss; its derivatives are taken halfway between the outputs, see `linearize.py`."""
        import torch

        self.base = _scalar(loss(list(self.references)))
        error = float(_scalar(loss(list(runtimes))) - self.base)
        with torch.enable_grad():
            points = [_halfway(a, b) for a, b in zip(self.references, runtimes, strict=True)]
            value = _scalar(loss(list(points)))
            leaves = [p for p in points if isinstance(p, torch.Tensor) and p.requires_grad]
            if not value.requires_grad:
                raise UsageError("loss must be differentiable by an output, found a value without a gradient")
            gradients = iter(torch.autograd.grad(value, leaves, materialize_grads=True))
        if not error:
            return 0.0
        for index, point in enumerate(points):
            if isinstance(point, torch.Tensor) and point.requires_grad:
                self.seeds[index] = next(gradients) / error
        return error

    def effect(self, outputs: Sequence[Any]) -> float:
        """Share of the error that the outputs of a patched reference show."""
        if self.loss is not None:
            return float(_scalar(self.loss(list(outputs))) - self.base) / self.error
        moved = outputs[self.output].double() - self.references[self.output].double()
        largest = float(self.delta.abs().max())
        return float((moved.nan_to_num(0.0, 0.0, 0.0) * (self.delta / largest)).sum()) / self.norm / largest


def _fitting(logged: Any, reference: Any, otherwise: Any) -> Any:
    """A logged output in the type of the reference; what the walk had where it is no tensor of the same shape."""
    import torch

    if not isinstance(logged, torch.Tensor) or not isinstance(reference, torch.Tensor):
        return otherwise
    return logged.to(reference.dtype) if logged.shape == reference.shape else otherwise


def _halfway(reference: Any, runtime: Any) -> Any:
    import torch

    if not isinstance(reference, torch.Tensor) or not reference.is_floating_point():
        return reference
    shift = torch.nan_to_num(runtime - reference, 0.0, 0.0, 0.0) / 2 if runtime.shape == reference.shape else 0.0
    return (reference + shift).detach().requires_grad_()


def _scalar(value: Any) -> torch.Tensor:
    import torch

    if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.is_floating_point():
        found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise UsageError(f"loss must return a floating scalar tensor, found {found}")
    return value.reshape(())
