"""Fixtures for all tests: every program of `programs.py` and of `kinds/`, made once a test run, and random numbers.

What imports torch is imported where it is needed: not by the process that only gives others their tests.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.exhaustive import is_left_out
from tests.shelf import Shelf

if TYPE_CHECKING:
    from xdist.remote import Producer

    from tests.cpp_runner import CppRunner
    from tests.kernels import Kernels
    from tests.kinds.making import Made
    from tests.programs import Executed, Recipe
    from tests.scheduling import ByProgram
    from tests.zoo.programs import Recipe as Kind

os.environ.setdefault("ETVIZ_ISOLATION", "never")  # the tests of isolation ask for it
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # a second of each process, for formats of no schema here
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / f"etviz-state-{os.getuid()}")
LONG = ("browser", "slow", "fuzz")
"""Marks of what takes long: it is begun first, so that no process waits for it at the end."""
COLLECTED = pytest.StashKey[dict[str, bool]]()
"""By name, whether `make test` has it."""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByProgram:
    """Keep together what shares a program or a file."""
    from tests.scheduling import ByProgram

    return ByProgram(config, log)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each program in turn for whoever asks for `program`, each kind for `kind`; not for who names them otherwise."""
    own = {
        name for mark in metafunc.definition.iter_markers("parametrize") for name in re.split(r"\W+", str(mark.args[0]))
    }
    asked = set(metafunc.fixturenames) - own
    if "program" in asked:
        from tests.programs import RECIPES

        _all_of(metafunc, "program", RECIPES)
    if "kind" in asked:
        from tests.zoo.programs import KINDS

        _all_of(metafunc, "kind", KINDS)


def _all_of(metafunc: pytest.Metafunc, name: str, recipes: Mapping[str, Recipe | Kind]) -> None:
    quick = [pytest.param(key, marks=() if recipe.quick else pytest.mark.matrix) for key, recipe in recipes.items()]
    metafunc.parametrize(name, quick, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what `make test` leaves out."""
    if is_left_out(item.nodeid):
        item.add_marker("matrix")
    item.config.stash.setdefault(COLLECTED, {})[item.nodeid] = item.get_closest_marker("matrix") is None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, and end with the documentation's examples, which take no time."""
    places = {item.path: at for at, item in enumerate(items)}
    items.sort(key=lambda item: (not any(map(item.get_closest_marker, LONG)), -places[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: the garbage collector need not look for it meanwhile."""
    gc.disable()
    found = yield
    gc.enable()
    return found


def pytest_collection_finish() -> None:
    """Nor again and again afterwards, nor often at the rest.

    pytest listens to each logger that does not propagate. torch writes every graph as text where someone listens.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    logging.getLogger("torch.__trace").propagate = True
    if "executorch.backends.xnnpack.quantizer" in sys.modules:
        from tests.upstream_memo import keep_results

        keep_results()


@pytest.fixture(autouse=True)
def _forget_metrics() -> Iterator[None]:
    from etviz import metrics

    before = set(metrics)
    yield
    for name in set(metrics) - before:
        if name in metrics.registered:
            metrics.unregister(name)
        else:
            del metrics[name]


@pytest.fixture(autouse=True)
def _seed() -> None:
    """A test draws the same numbers, whatever ran before it."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _prepare_no_zoom() -> None:
    """An idle child process would import for four seconds what only a zoom needs; it does when it is asked for one."""
    from etviz.pipeline.worker import WORKER

    WORKER.prepares = False


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """What the processes of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return Shelf((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shelf")


@pytest.fixture(scope="session")
def executed(shelf: Shelf) -> Callable[[str], Executed]:
    """Any program of `programs.py` by name."""
    from tests.programs import run

    return functools.cache(lambda name: run(name, shelf))


@pytest.fixture
def refuse_operators(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From a call of it on, this process walks no graph and calls no operator of one."""
    from etviz.evaluation.interpreter import GraphInterpreter
    from etviz.evaluation.limits import Limits
    from etviz.evaluation.operator_rules import Operator

    def refuse() -> None:
        for owner in (Limits, GraphInterpreter, Operator):
            for name in ("call", "admitted", "__call__", "check"):
                if name in vars(owner):
                    monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("evaluated in this process"))

    return refuse


@pytest.fixture
def program(request: pytest.FixtureRequest, executed: Callable[[str], Executed]) -> Executed:
    """The program that the test is parametrized with."""
    return executed(request.param)


@pytest.fixture(scope="session")
def made(shelf: Shelf) -> Callable[[str], Made]:
    """The program of any kind of `kinds/` by name."""
    from tests.kinds.making import make

    @functools.cache
    def get(name: str) -> Made:
        return make(name, shelf, get)

    return get


@pytest.fixture
def kind(request: pytest.FixtureRequest, made: Callable[[str], Made]) -> Made:
    """The program of the kind that the test is parametrized with."""
    return made(request.param)


@pytest.fixture(scope="session")
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    """A process that forks the kernels of JupyterLab and of the notebooks, which lower models."""
    from tests.kernels import Kernels

    lowers = any(item.nodeid.startswith("tests/test_notebooks.py::test_runs") for item in request.session.items)
    kernels = Kernels(tmp_path_factory.mktemp("kernels"), lowers=lowers)
    yield kernels
    kernels.stop()


@pytest.fixture(autouse=True, scope="session")
def _begin_the_runner(request: pytest.FixtureRequest, shelf: Shelf) -> None:
    """Long before a test needs it, if another process has the first tests."""
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" and any(
        "runner" in getattr(item, "fixturenames", ()) for item in request.session.items
    ):
        from tests.cpp_runner import begin

        begin(shelf)


@pytest.fixture(scope="session")
def runner(shelf: Shelf) -> CppRunner:
    """The C++ runner."""
    from tests.cpp_runner import build

    return build(shelf, tracer=True)


@pytest.fixture(scope="session")
def release_runner(shelf: Shelf) -> CppRunner:
    """The C++ runner as a release build has it: without the event tracer."""
    from tests.cpp_runner import build

    return build(shelf, tracer=False)
