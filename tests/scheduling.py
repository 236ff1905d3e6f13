"""Which tests go to the same process with `pytest -n`: those of one program, and else those of one file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

KERNELS = ("tests/browser/", "tests/test_notebooks.py")
_RECIPES = ("programs.py", "zoo/programs.py")
_MADE_BY = ("Recipe", "_kind")


def _programs() -> Iterator[tuple[str, str]]:
    """Names of recipes, and of what each is the same program as.

    They are read, not imported: that would bring torch into the process that only hands out tests.
    """
    for file in _RECIPES:
        for node in ast.walk(ast.parse((Path(__file__).parent / file).read_text("utf-8"))):
            pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
            pairs = [(node.args[0], node)] if isinstance(node, ast.Call) and node.args else pairs
            for key, made in pairs:
                if isinstance(key, ast.Constant) and isinstance(made, ast.Call) and ast.unparse(made.func) in _MADE_BY:
                    name = str(key.value)
                    yield name, next((ast.literal_eval(k.value) for k in made.keywords if k.arg == "same_as"), name)


PROGRAMS = dict(_programs())


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
    return next((PROGRAMS[part] for part in re.split(r"[\[\]-]", test) if part in PROGRAMS), file)


class ByProgram(LoadScopeScheduling):
    """Gives a process one scope after the other, in the order of the tests."""

    def __init__(self, config: pytest.Config, *rest: object) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, *rest)  # pyright: ignore[reportArgumentType]

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
