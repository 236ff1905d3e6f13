"""The command line. Exit status 0: fine, 1: a check failed, 2: bad usage or a bad artifact."""

from __future__ import annotations

import gc
import sys

from etviz import __version__

INTERRUPTED = 130


def main() -> None:
    if sys.argv[1:] == ["--version"]:  # needs none of the imports below
        sys.stdout.write(f"{__version__}\n")
        return
    gc.disable()  # until the command is imported
    try:
        from etviz.cli.commands import main as run

        run()
    except KeyboardInterrupt:  # while its modules are imported
        sys.stderr.write("etviz: interrupted\n")
        sys.exit(INTERRUPTED)
