"""Ratios between etviz and the upstream Inspector, measured on the same files in one run: ``python -m benchmarks``."""

import os

os.environ["ETVIZ_LOOK_INSIDE"] = "never"  # nothing else runs beside what is measured
