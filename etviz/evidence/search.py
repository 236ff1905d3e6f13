"""Searches the operators to keep in float, on the quantized model in eager mode, where a trial takes milliseconds.

Rounding values at the quantizer's observers is an estimate; `suggestion` measures the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from etviz.analysis.tasks import TASKS
from etviz.pipeline.environment_child import kept_state
from etviz.upstream.executorch import quietly

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from etviz.evidence.variants import Values


@dataclass(frozen=True, slots=True)
class Unit:
    """Operators that are quantized together, such as a convolution and its activation."""

    names: tuple[str, ...]
    module: str = ""

    @property
    def label(self) -> str:
        return f"{self.module} ({', '.join(self.names)})" if self.module else ", ".join(self.names)


class Simulation:
    def __init__(
        self,
        model: Any,
        quantizer: Any,
        calibration: Sequence[Values],
        inputs: Sequence[Values],
        expected: Sequence[Any],
        measure: str = "rmse",
    ) -> None:
        with quietly():
            from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

            exported = model if hasattr(model, "graph_signature") else torch.export.export(model, tuple(inputs[0]))
            self._prepared: GraphModule = prepare_pt2e(exported.module(), quantizer)
        self._buffers = [name for name, _ in exported.named_buffers()]
        with torch.no_grad(), kept_state(self._prepared, self._buffers):
            for batch in calibration:
                self._prepared(*batch)
        self._inputs, self._expected, self._measure = inputs, expected, measure
        self._requests = _requests(self._prepared)
        self._grids: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self.units = _units(self._prepared)
        self.trials = 0

    def error(self, kept: Sequence[Unit]) -> float:
        """RMSE of the outputs over all inputs, or their mean KL divergence; a model with state begins anew."""
        from torch.utils._pytree import tree_leaves

        self.trials += 1
        names = {name for unit in kept for name in unit.names}
        active = {target for target, requests in self._requests.items() if requests - names}
        rounded = _Rounded(self._prepared, active, self._grids)
        with torch.no_grad(), kept_state(self._prepared, self._buffers):
            outputs = [tree_leaves(rounded.run(*tree_leaves(tuple(values)))) for values in self._inputs]
        if self._measure != "rmse":
            measure = TASKS[self._measure]
            return fmean(measure(wanted, found, None) for wanted, found in zip(self._expected, outputs, strict=True))
        pairs = [pair for item in zip(outputs, self._expected, strict=True) for pair in zip(*item, strict=False)]
        pairs = [pair for pair in pairs if all(isinstance(output, torch.Tensor) for output in pair)]
        total = math.fsum(float((found.double() - wanted.double()).square().sum()) for found, wanted in pairs)
        count = sum(found.numel() for found, _ in pairs)
        return math.sqrt(total / count) if count else math.nan


class _Rounded(fx.Interpreter):
    def __init__(
        self, model: GraphModule, active: set[str], grids: dict[str, tuple[torch.Tensor, torch.Tensor]]
    ) -> None:
        super().__init__(model)
        self._active, self._grids = active, grids

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module: Any = self.module.get_submodule(target)
        if not _is_observer(module):
            return super().call_module(target, args, kwargs)
        if target not in self._active:
            return args[0]
        if not getattr(module, "is_dynamic", False) and target not in self._grids:
            self._grids[target] = module.calculate_qparams()  # histograms search for it
        return _round(module, args[0], self._grids.get(target))


def _is_observer(module: Any) -> bool:
    from torchao.quantization.pt2e import ObserverBase

    return isinstance(module, ObserverBase)


def _round(observer: Any, value: torch.Tensor, grid: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
    low, high = observer.quant_min, observer.quant_max
    if low is None or high is None:
        info = torch.iinfo(observer.dtype)
        low, high = info.min, info.max
    if grid is None:
        least, most = min(float(value.min()), 0.0), max(float(value.max()), 0.0)
        scale = max((most - least) / (high - low), torch.finfo(torch.float32).eps)
        return torch.fake_quantize_per_tensor_affine(value, scale, round(low - least / scale), low, high)
    scale, zero = grid
    axis = getattr(observer, "ch_axis", None)
    if scale.numel() > 1 and axis is not None:
        return torch.fake_quantize_per_channel_affine(value, scale.float(), zero.int(), axis, low, high)
    return torch.fake_quantize_per_tensor_affine(value, float(scale), int(zero), low, high)


def _requests(model: GraphModule) -> dict[str, set[str]]:
    by_target: dict[str, set[str]] = {}
    for node in model.graph.nodes:
        if node.op != "call_module" or not _is_observer(model.get_submodule(node.target)):
            continue
        (source, *_) = node.args
        of_source = _annotation(source)
        requests = {source.name} if of_source is not None and of_source.output_qspec is not None else set()
        for user in node.users:
            annotation = _annotation(user)
            if annotation is not None and annotation.input_qspec_map.get(source) is not None:
                requests.add(user.name)
        by_target.setdefault(str(node.target), set()).update(requests)
    return by_target


def _annotation(node: Any) -> Any:
    return getattr(node, "meta", {}).get("quantization_annotation")


def _units(model: GraphModule) -> list[Unit]:
    taken: set[str] = set()
    units = []
    for node in model.graph.nodes:
        annotation = _annotation(node)
        if node.op != "call_function" or annotation is None or node.name in taken:
            continue
        names, last = [node.name], node
        while _annotation(last) is not None and _annotation(last).output_qspec is None and len(last.users) == 1:
            last = next(iter(last.users))
            if last.op != "call_function" or _annotation(last) is None or _annotation(last).input_qspec_map:
                break
            names.append(last.name)
        taken |= set(names)
        units.append(Unit(tuple(names), _module(node)))
    return units


def _module(node: Any) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    return path.removeprefix("L['self']").removeprefix(".")


def ddmin(items: Sequence[Unit], holds: Callable[[Sequence[Unit]], bool]) -> list[Unit]:
    """A minimal part of `items` for which `holds` is true: false without any one of its items.

    `holds` must be true for all items (A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
    2002).

    Examples
    --------
    >>> ddmin(list(range(20)), lambda part: {3, 11} <= set(part))
    [3, 11]
    """
    kept, pieces = list(items), 2
    while len(kept) >= 2:
        size = math.ceil(len(kept) / pieces)
        parts = [kept[at : at + size] for at in range(0, len(kept), size)]
        smaller = next((part for part in parts if len(part) < len(kept) and holds(part)), None)
        if smaller is not None:
            kept, pieces = smaller, 2
            continue
        rests = ([unit for unit in kept if unit not in part] for part in parts)
        rest = next((rest for rest in rests if rest and holds(rest)), None)
        if rest is not None:
            kept, pieces = rest, max(pieces - 1, 2)
            continue
        if pieces >= len(kept):
            break
        pieces = min(len(kept), 2 * pieces)
    return kept
