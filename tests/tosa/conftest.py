"""Without the extra, nothing here is collected: `make test-backends` runs it in an environment of its own."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("tosa_reference_model") else ["test_*.py"]
