"""Without an extra, nothing here is collected: `make test-backends` runs it in an environment for each."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = ["test_*.py"]
if importlib.util.find_spec("tosa_reference_model"):
    collect_ignore_glob = ["test_coreai.py"]
elif importlib.util.find_spec("coreai"):
    collect_ignore_glob = ["test_emulated.py", "test_held.py"]
