"""The C++ runner of `examples/cpp_runner`, built once a test run, with the backend of `tests/backend` linked in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forks import fork
from tests.shelf import Shelf

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "examples" / "cpp_runner"
BACKENDS = sorted((ROOT / "tests" / "backend").glob("*.cpp"))
TOOLS = ("cmake", "g++")


@dataclass(frozen=True)
class CppRunner:
    """An executable."""

    path: Path

    def __call__(self, folder: Path, *arguments: object, status: int = 0) -> str:
        """What it printed, run in `folder`; it must end with `status`."""
        command = [str(self.path), *map(str, arguments)]
        ended = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
        said = (ended.stdout + ended.stderr).decode(errors="replace")
        assert ended.returncode == status, (ended.returncode, said[-4000:])
        return said


def build(shelf: Shelf, *, tracer: bool) -> CppRunner:
    """The runner, with or without the event tracer; skips where there are no tools to build it."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the C++ runner can't be built here: there is no {' and no '.join(missing)}")

    def make(folder: Path) -> None:
        options = {
            "Python3_EXECUTABLE": sys.executable,
            "CMAKE_BUILD_TYPE": "Debug",
            **{"CMAKE_CXX_FLAGS_DEBUG": "-O0", "CMAKE_UNITY_BUILD": "ON"},  # half the time
            "EVENT_TRACER": "ON" if tracer else "OFF",
            "BACKENDS": ";".join(map(str, BACKENDS)),
        }
        flags = [f"-D{name}={value}" for name, value in options.items()]
        for command in (["cmake", "-S", str(SOURCES), "-B", str(folder), *flags], ["cmake", "--build", str(folder)]):
            ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]

    return CppRunner(shelf.folder("runner" if tracer else "release-runner", make) / "etviz_runner")


def begin(shelf: Shelf) -> None:
    """Build it in a process that takes what the tests leave of the cores."""
    if all(map(shutil.which, TOOLS)):
        with Path(os.devnull).open("r+b") as nothing:
            fork(lambda: (os.nice(19), build(shelf, tracer=True)), *[nothing.fileno()] * 3)
