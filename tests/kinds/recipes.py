"""How the program of each kind is exported and lowered, and on which inputs it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from tests.kinds import models

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Kind:
    """A kind of program.

    Attributes
    ----------
    programs
        Exports its methods.
    runs
        Inputs of each execution; the first ones are the ETRecord's.
    partitioners
        What lowers it to a backend; none for portable kernels.
    told
        The ETDump can't hold its values, so every value is an output of the program.
    same_as
        The kind that has the same program, and of whose first execution the inputs are the ETRecord's.
    quick
        Part of `make test`.
    """

    programs: Callable[[], dict[str, ExportedProgram]]
    runs: Callable[[], list[Inputs]]
    partitioners: Callable[[], list[Any] | None] = lambda: [XnnpackPartitioner()]
    method: str = "forward"
    told: bool = False
    same_as: str = ""
    quick: bool = True


def _none() -> None:
    return None


def openvino() -> list[Any]:
    """OpenVINO's partitioner for the CPU; the test is skipped where it is not installed."""
    pytest.importorskip("openvino", reason="OpenVINO comes with the extra `openvino` of etviz")
    module = pytest.importorskip(
        "executorch.backends.openvino.partitioner",
        reason="executorch's OpenVINO backend needs nncf, which comes with the extra `openvino` of etviz",
        exc_type=ImportError,
    )
    return [module.OpenvinoPartitioner([CompileSpec("device", b"CPU")])]


def plain(make: Callable[[], nn.Module], inputs: Callable[[], Inputs], **options: Any) -> Callable[[], Any]:
    """Export of one method."""
    return lambda: {"forward": export(make().eval(), inputs(), **options)}


def quantized(dynamic: bool, make: Callable[[], nn.Module], inputs: Callable[[], Inputs]) -> Callable[[], Any]:
    """PT2E quantization with XNNPACK's quantizer, exported again."""

    def programs() -> dict[str, ExportedProgram]:
        config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
        prepared = prepare_pt2e(export(make().eval(), inputs()).module(), XNNPACKQuantizer().set_global(config))
        prepared(*inputs())
        return {"forward": export(convert_pt2e(prepared), inputs())}

    return programs


def weight_only(make: Callable[[], nn.Module], inputs: Callable[[], Inputs]) -> Callable[[], Any]:
    """int8 weights that are dequantized before they are used."""

    def programs() -> dict[str, ExportedProgram]:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        model = make().eval()
        quantize_(model, Int8WeightOnlyConfig())
        return {"forward": export(model, inputs())}

    return programs


def two_methods() -> dict[str, ExportedProgram]:
    """Two entry points of one file."""
    first, second = models.Feed().eval(), models.ConvNet().eval()
    return {"embed": export(first, (torch.randn(2, 16),)), "forward": export(second, (torch.randn(1, 3, 4, 4),))}


def _normal(*shape: int, seed: int = 1, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def _one(*shape: int) -> Callable[[], Inputs]:
    return lambda: (_normal(*shape),)


def _tokens() -> Inputs:
    return torch.tensor([[1, 4, 2, 9, 0]]), torch.tensor([[1, 1, 1, 0, 0]])


def _nested() -> Inputs:
    return {"x": _normal(3, 4), "unused": _normal(1)}, (_normal(4), torch.tensor(2.5))


def _steps(count: int) -> list[Inputs]:
    return [(torch.tensor([[3 + i]]), torch.tensor([i])) for i in range(count)]


def _conditions(*signs: int) -> list[Inputs]:
    return [(torch.full((2, 4), 3.0 * sign) + _normal(2, 4, scale=0.1),) for sign in signs]


_BIG = {"x": {1: Dim("length", min=2, max=16)}}
_HUGE = torch.tensor([[-1e38, 0.5, -0.25, 1.0], [2.0, -1.0, 0.0, 3.0]])
_WITH_NAN = torch.where(torch.arange(16) == 3, float("nan"), _normal(1, 16))
_row = plain(models.Feed, _one(1, 16))

KINDS = {
    "delegate_fp32": Kind(plain(models.ConvNet, _one(1, 3, 4, 4)), lambda: [(_normal(1, 3, 4, 4),)]),
    "delegate_int8": Kind(quantized(False, models.ConvNet, _one(1, 3, 4, 4)), lambda: [(_normal(1, 3, 4, 4),)]),
    "recurrent": Kind(plain(models.Recurrent, _one(1, 4, 4)), lambda: [(_normal(1, 4, 4),)], quick=False),
    "bidirectional": Kind(plain(models.Bidirectional, _one(1, 3, 4)), lambda: [(_normal(1, 3, 4),)], quick=False),
    "rotary_dynamic_int8": Kind(
        quantized(True, models.Rotary, _one(1, 4, 16)), lambda: [(_normal(1, 4, 16),)], quick=False
    ),
    "mobile_int8": Kind(
        quantized(False, models.MobileBlock, _one(1, 4, 4, 4)), lambda: [(_normal(1, 4, 4, 4),)], quick=False
    ),
    "weight_only_portable": Kind(
        weight_only(models.Feed, _one(1, 5, 16)), lambda: [(_normal(1, 5, 16),)], partitioners=_none, quick=False
    ),
    "several": Kind(plain(models.Several, _one(3, 6)), lambda: [(_normal(3, 6),)]),
    "openvino": Kind(
        plain(models.Feed, _one(5, 16)), lambda: [(_normal(5, 16),), (_normal(5, 16, seed=2),)], partitioners=openvino
    ),
    "openvino_whole": Kind(
        plain(models.ConvNet, _one(1, 3, 4, 4)), lambda: [(_normal(1, 3, 4, 4),)], partitioners=openvino
    ),
    "masked_transformer": Kind(plain(models.MaskedTransformer, _tokens), lambda: [_tokens()]),
    "dynamic_int8": Kind(quantized(True, models.Feed, _one(5, 16)), lambda: [(_normal(5, 16),)]),
    "weight_only_torchao": Kind(weight_only(models.Feed, _one(5, 16)), lambda: [(_normal(5, 16),)]),
    "weight_only": Kind(plain(models.WeightOnly, _one(5, 16)), lambda: [(_normal(5, 16),)], quick=False),
    "decoder": Kind(plain(models.Decoder, lambda: _steps(1)[0], strict=True), lambda: _steps(3)),
    "decoder_portable": Kind(
        plain(models.Decoder, lambda: _steps(1)[0], strict=True), lambda: _steps(3), partitioners=_none
    ),
    "channels_last": Kind(
        plain(models.ConvNet, lambda: (_normal(1, 3, 4, 4).to(memory_format=torch.channels_last),)),
        lambda: [(_normal(1, 3, 4, 4).to(memory_format=torch.channels_last),)],
    ),
    "dynamic_shapes": Kind(
        plain(models.Pooled, _one(2, 3, 6), dynamic_shapes=_BIG), lambda: [(_normal(2, n, 6),) for n in (3, 9)]
    ),
    "dynamic_portable": Kind(
        plain(models.Pooled, _one(2, 3, 6), dynamic_shapes=_BIG),
        lambda: [(_normal(2, 7, 6),)],
        partitioners=_none,
        quick=False,
    ),
    "cond": Kind(plain(models.BranchesOfTensors, _one(2, 4)), lambda: _conditions(1, -1, 1)),
    "cond_portable": Kind(
        plain(models.BranchesOfTensors, _one(2, 4)), lambda: _conditions(-1), partitioners=_none, quick=False
    ),
    "cond_diverging": Kind(plain(models.DivergingBranches, _one(2, 4)), lambda: [(_HUGE.clone(),)]),
    "method_forward": Kind(two_methods, lambda: [(_normal(1, 3, 4, 4),)]),
    "method_embed": Kind(two_methods, lambda: [(_normal(2, 16),)], method="embed", same_as="method_forward"),
    "half": Kind(
        plain(models.Low, lambda: (_normal(2, 5).half(),)),
        lambda: [(_normal(2, 5).half(),)],
        partitioners=_none,
        told=True,
    ),
    "bfloat16": Kind(
        plain(models.Low, lambda: (_normal(2, 5).bfloat16(),)),
        lambda: [(_normal(2, 5).bfloat16(),)],
        partitioners=_none,
        told=True,
        quick=False,
    ),
    "half_beside_float": Kind(
        plain(models.Mixed, _one(2, 5)), lambda: [(_normal(2, 5),)], partitioners=_none, told=True
    ),
    "nonfinite": Kind(plain(models.NonFinite, _one(2, 5)), lambda: [(_normal(2, 5),)]),
    "nonfinite_portable": Kind(
        plain(models.NonFinite, _one(2, 5)), lambda: [(_normal(2, 5),)], partitioners=_none, quick=False
    ),
    "outputs": Kind(plain(models.Outputs, _nested), lambda: [_nested()]),
    "same_twice": Kind(_row, lambda: [(_normal(1, 16),)] * 2),
    "different": Kind(_row, lambda: [(_normal(1, 16, seed=s),) for s in (1, 2, 3)], same_as="same_twice"),
    "nan_twice": Kind(_row, lambda: [(_WITH_NAN,)] * 2, same_as="same_twice"),
    "stack": Kind(plain(lambda: models.Stack(4), _one(3, 8)), lambda: [(_normal(3, 8),)], quick=False),
    "stack_portable": Kind(
        plain(lambda: models.Stack(4), _one(3, 8)), lambda: [(_normal(3, 8),)], partitioners=_none, quick=False
    ),
}
