"""Small functions that put a fact into words, beside the one example that each has in its docstring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from etviz.comparison.gap import shared_with
from etviz.evidence.census import where
from etviz.graph.labels import operator_label, short_name, source_line
from etviz.pipeline.worker import how_it_ended
from etviz.tensors.changes import describe_change


def _mask() -> np.ndarray[Any, Any]:
    mask = np.zeros((4, 16), bool)
    mask[2, 8:16] = True
    return mask


WEIGHT = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (where(_mask()), "8 of 64 elements: axis 0 at 2; axis 1 at 8 to 15"),
        (describe_change("w", WEIGHT, WEIGHT.roll(1, 1)), "w is rolled by 1 along axis 1"),
        (shared_with("severity is relative to measured noise"), ""),
        (short_name("layer.3.attention.self · scaled_dot", 14), "scaled_dot"),
        (short_name("linear, relu, softmax", 10), "linear, r…"),
        (operator_label("kernel", "aten::topk.values", "topk", 1), "topk.values [1]"),
        (source_line('  File "/venv/site-packages/torch/_dynamo/export.py", line 232, in forward'), ""),
        (how_it_ended(3), "The child process failed with exit status 3"),
    ],
)
def test_a_fact_in_words(found: str, expected: str) -> None:
    assert found == expected
