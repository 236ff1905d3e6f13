"""A backend with true values inside: its ahead-of-time part is `loops.py`, its runtime part `loops.cpp`."""
