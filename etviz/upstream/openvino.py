# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
"""OpenVINO's runtime. Imports are in the function: the extra ``openvino`` may not be installed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

_PRECISION: Final = "INFERENCE_PRECISION_HINT"


def run_compiled(content: bytes, inputs: list[torch.Tensor], precision: str = "") -> tuple[list[torch.Tensor], str]:
    """A compiled model's outputs, and the precision in which it computed them.

    `precision` is OpenVINO's name of another one than its default on this processor. `ImportError` without the extra.
    """
    import openvino
    import torch

    model = openvino.Core().import_model(io.BytesIO(content), "CPU", {_PRECISION: precision} if precision else {})
    results = model([value.detach().contiguous().numpy() for value in inputs])
    return [torch.from_numpy(results[out].copy()) for out in model.outputs], model.get_property(_PRECISION).to_string()
