"""Versions of torch, executorch and Python that etviz works with; `make matrix` tries them in separate environments."""
