"""Without an extra, nothing here is collected: `make test-backends` runs it in an environment for each."""

from __future__ import annotations

import importlib.util

NEEDS = {
    "test_emulated.py": "tosa_reference_model",
    "test_held.py": "tosa_reference_model",
    "test_coreai.py": "coreai",
    "test_openvino.py": "openvino",
}
collect_ignore = [name for name, package in NEEDS.items() if importlib.util.find_spec(package) is None]
