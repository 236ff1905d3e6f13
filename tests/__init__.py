"""Tests on real models that are exported, lowered and executed.

Threads of two processes on two cores would spin for one another, so torch has one in each, unless a test sets more.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
