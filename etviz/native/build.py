"""Compiles the C files of this folder when etviz is installed, as hatchling's build hook.

``python etviz/native/build.py`` runs it by hand. ``ETVIZ_PURE=1`` skips it, for the wheel of every platform.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "_native.so"
SOURCES = sorted(FOLDER.glob("*.c"))
# Sums may be taken in any order and no element is infinite by then, so loops become vector instructions. No fused
# multiply-add: a threshold must be met by the same elements as in NumPy.
FLAGS = [
    *("-O3", "-shared", "-std=c11", "-ffp-contract=off", "-fassociative-math", "-ffinite-math-only"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
    *([] if sys.platform == "win32" else ["-fPIC"]),
]


def compile_library() -> bool:
    """Compile the library; without a compiler return False and say so on stderr."""
    if os.environ.get("ETVIZ_PURE") == "1":
        LIBRARY.unlink(missing_ok=True)
        return False
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang"))), None)
    if compiler is None:
        sys.stderr.write("etviz: no C compiler, so NumPy computes the metrics (slower, the same numbers)\n")
        return False
    partial = LIBRARY.with_suffix(f".{os.getpid()}.so")
    problem = ""
    for extra in (["-fopenmp"], ["-fopenmp", "-DETVIZ_ONE_TARGET"], [], ["-DETVIZ_ONE_TARGET"]):
        command = [compiler, *FLAGS, *extra, *map(str, SOURCES), "-o", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            partial.replace(LIBRARY)
            return True
        problem = done.stderr
    partial.unlink(missing_ok=True)
    sys.stderr.write(f"etviz: NumPy computes the metrics, since {compiler} failed:\n{problem}\n")
    return False


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the compiled library to wheels and editable installs."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or not compile_library():
            return
        build_data["artifacts"].append("etviz/native/_native.so")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


if __name__ == "__main__":
    sys.exit(0 if compile_library() else 1)
