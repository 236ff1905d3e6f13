"""Operators for which torch has no kernel of 16 bits on the CPU."""

import pytest
import torch

from etviz.evaluation.limits import Limits


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_reference_is_float32s_result_rounded(dtype: torch.dtype) -> None:
    x, y = torch.randn(5, 7).to(dtype), torch.randn(3, 7).to(dtype)
    with pytest.raises(RuntimeError, match="not implemented for"):
        torch.ops.aten._cdist_forward.default(x, y, 2.0, None)
    value = Limits().call("aten._cdist_forward.default", [x, y, 2.0, None], {})
    assert torch.equal(value, torch.cdist(x.float(), y.float()).to(dtype))
