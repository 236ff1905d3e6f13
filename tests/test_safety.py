"""The source tree itself: nothing in it reads a file in a way that runs code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import etviz

PACKAGE = Path(etviz.__file__).parent
BANNED_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
BANNED_CALLS = {"sympify", "parse_expr", "parse_etrecord", "deserialize", "read_pickle"}
BANNED_BUILTINS = {"eval", "exec", "compile", "__import__"} | BANNED_CALLS


def trees() -> Iterator[tuple[Path, ast.Module]]:
    paths = sorted(PACKAGE.rglob("*.py"))
    assert paths
    for path in paths:
        yield path.relative_to(PACKAGE), ast.parse(path.read_text(encoding="utf-8"))


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_no_module_that_reads_pickles_is_imported() -> None:
    for path, tree in trees():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not BANNED_MODULES & {name.partition(".")[0] for name in names}, path


def test_torch_reads_weights_only() -> None:
    found = 0
    for path, tree in trees():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            text = ast.unparse(call.func)
            if text == "torch.load":
                found += 1
                options = {option.arg: ast.unparse(option.value) for option in call.keywords}
                assert options.get("weights_only") == "True", path
            if text in ("np.load", "numpy.load"):
                assert all(option.arg != "allow_pickle" for option in call.keywords), path
    assert found > 2


def test_no_text_is_evaluated() -> None:
    """Neither by Python and sympy, nor by the functions of upstream that do so."""
    for path, tree in trees():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            banned = BANNED_BUILTINS if isinstance(call.func, ast.Name) else BANNED_CALLS
            assert name_of(call) not in banned, f"{path}: {ast.unparse(call)[:80]}"
