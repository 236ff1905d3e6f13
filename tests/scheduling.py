"""Which tests go to the same process with `pytest -n`: those of one program, and else those of one file."""

from __future__ import annotations

import re

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

from tests.kinds.recipes import KINDS
from tests.programs import RECIPES

KERNELS = ("tests/browser/", "tests/test_notebooks.py")
_PROGRAMS = {name: name for name in RECIPES} | {name: kind.same_as or name for name, kind in KINDS.items()}


def scope_of(nodeid: str) -> str:
    """The program that a test is about, or its file; all tests that share a browser, or kernels, are one scope.

    >>> scope_of("tests/graph/test_tree.py::test_preorder[modules-encoder]")
    'encoder'
    >>> scope_of("tests/test_docs.py::test_names_exist[architecture]")
    'tests/test_docs.py'
    """
    file, _, test = nodeid.partition("::")
    if file.startswith(KERNELS):
        return KERNELS[0]
    return next((_PROGRAMS[part] for part in re.split(r"[\[\]-]", test) if part in _PROGRAMS), file)


class ByProgram(LoadScopeScheduling):
    """Gives a process one scope after the other, in the order of the tests."""

    def __init__(self, config: pytest.Config, *rest: object) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, *rest)  # pyright: ignore[reportArgumentType]

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
