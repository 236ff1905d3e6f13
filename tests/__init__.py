"""Tests on real models that are exported, lowered and executed.

Threads of two processes on two cores would spin for one another, so torch has one in each, unless a test sets more. And
nothing looks into delegates unasked, here or in a kernel that a test starts.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["ETVIZ_LOOK_INSIDE"] = "never"
