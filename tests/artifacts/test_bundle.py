"""Bundled programs give back what was bundled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from etviz.artifacts.program.bundled_program import BundledTensor, read_bundled_program
from etviz.artifacts.program.program import read_program

if TYPE_CHECKING:
    from pathlib import Path

    from tests.artifacts.conftest import Bundle


def test_cases_hold_the_inputs_and_the_expected_outputs(bundle: Bundle):
    path, inputs, expected = bundle
    cases = read_bundled_program(path).suites["forward"]
    assert len(cases) == 3
    for case, (image, factor), outputs in zip(cases, inputs, expected, strict=True):
        stored, number = case.inputs
        assert isinstance(stored, BundledTensor)
        assert stored.dtype == "float32"
        np.testing.assert_array_equal(stored.data, image.numpy())
        assert number == factor
        for tensor, output in zip(case.expected_outputs, outputs, strict=True):
            assert isinstance(tensor, BundledTensor)
            np.testing.assert_array_equal(tensor.data, output.detach().numpy())


def test_program_inside_can_be_read_and_written(bundle: Bundle, tmp_path: Path):
    bundled = read_bundled_program(bundle[0])
    path = tmp_path / "inside.pte"
    path.write_bytes(bundled.program_bytes)
    assert read_program(path).methods == bundled.program().methods
