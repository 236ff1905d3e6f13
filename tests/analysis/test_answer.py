"""Whether the answer changed: the classes with the largest scores, against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from etviz.analysis.answer import answer, is_scores
from tests.programs import Executed


def test_top_1_and_top_5_are_numpys() -> None:
    random = np.random.default_rng(0)
    for classes in (2, 5, 6, 40):
        for spread in (0.0, 0.3, 3.0):
            reference = random.normal(size=(1, classes)).astype(np.float32)
            runtime = (reference + spread * random.normal(size=reference.shape)).astype(np.float32)
            found = answer([(torch.from_numpy(reference), torch.from_numpy(runtime))])
            assert found is not None
            text, changed = found
            first, now = int(np.argsort(reference[0])[-1]), int(np.argsort(runtime[0])[-1])
            assert changed == (first != now)
            assert text.startswith(
                f"top-1 changes from {first} to {now}" if changed else f"top-1 is the same ({first})"
            )
            five = [set(np.argsort(side[0])[-5:].tolist()) for side in (reference, runtime)]
            assert ("top-5" in text) == (classes > 5)
            assert ("top-5 the same" in text) == (classes > 5 and five[0] == five[1])


def test_several_executions_are_counted() -> None:
    scores = torch.eye(4)
    pairs = [(scores[k : k + 1], scores[(k + (k == 1)) : (k + (k == 1)) + 1]) for k in range(4)]
    assert answer(pairs) == ("top-1 is the same in 3 of 4 outputs", True)


def test_other_outputs_have_no_answer() -> None:
    values = [
        torch.zeros(1, 3, 4),
        torch.zeros(1, 1),
        torch.zeros(2, 5),
        torch.zeros(1, 5, dtype=torch.int64),
        3.0,
        None,
    ]
    assert not any(map(is_scores, values))
    assert answer(zip(values, values, strict=True)) is None
    assert answer([(torch.full((1, 3), torch.nan), torch.zeros(1, 3))]) is None


def test_it_is_the_first_fact(executed: Callable[[str], Executed]) -> None:
    inspection = executed("residual_cnn").inspection
    expected = int(inspection.analysis.tables.compared.runs[0].comparison.reference_outputs[0].argmax())
    assert inspection.analysis.digest.facts[0].value == f"top-1 is the same ({expected}), top-5 the same"
