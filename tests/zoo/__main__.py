"""``make zoo``: makes what the cache lacks, judges everything, prints a row for each as it comes, writes the page.

A run that was stopped goes on where it ended: programs are kept until their sources change, judgements until etviz or
the judge does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from tests.zoo import judge, maker, report
from tests.zoo.maker import CACHE, WAYS, Made
from tests.zoo.plants import PLANTS
from tests.zoo.programs import FAULTY, RECIPES

LIMIT = 3600.0
"""Seconds that a run may take."""
T = TypeVar("T")


class Zoo:
    """One run.

    Parameters
    ----------
    keep
        Take programs that were made from other sources.
    """

    def __init__(self, *, keep: bool) -> None:
        self.keep = keep
        self.console = Console(highlight=False, soft_wrap=True)
        self.started = time.monotonic()
        self.results = report.Results()
        self.engine = _digest(*sorted((Path(maker.__file__).parents[2] / "etviz").rglob("*.py")))

    def correct(self, name: str) -> None:
        """Make and judge a correct program."""
        made = maker.make(RECIPES[name], keep=self.keep)
        said = self._judged(made, lambda fields: judge.Said(**fields), lambda way: judge.judge(made, way))
        self.results.correct[name] = said
        self._show(made, report.correct_row(made, said))

    def planted(self, name: str) -> None:
        """Make and judge a planted fault."""
        made = maker.make_plant(PLANTS[name], keep=self.keep)
        self.results.planted[name] = self._fault(made)

    def faulty(self, name: str) -> None:
        """Make and judge a program that executorch gets wrong."""
        made = maker.make(FAULTY[name], keep=self.keep)
        self.results.faulty[name] = self._fault(made)

    def _fault(self, made: Made) -> dict[str, judge.Named]:
        named = self._judged(made, _named, lambda way: judge.judge_fault(made, way))
        self._show(made, report.fault_row(made, named))
        return named

    def _show(self, made: Made, row: list[str]) -> None:
        self.results.made[made.name] = made
        spent = (time.monotonic() - self.started) / 60
        self.console.print(f"{len(self.results):3} {spent:5.1f} min  {'  |  '.join(row)}", markup=False)

    def _judged(self, made: Made, read: Callable[[dict[str, Any]], T], ask: Callable[[str], T]) -> dict[str, T]:
        """What is said in each way of loading; it is kept beside the program until etviz or the judge changes."""
        path = made.folder / "judged.json"
        key = [made.facts["key"], self.engine, _digest(Path(judge.__file__))]
        kept = json.loads(path.read_text()) if path.exists() else {}
        if kept.get("key") == key:
            return {way: read(fields) for way, fields in kept["ways"].items()}
        found: dict[str, Any] = {way: ask(way) for way in WAYS}
        path.write_text(json.dumps({"key": key, "ways": {way: asdict(item) for way, item in found.items()}}))
        return found


def _named(fields: dict[str, Any]) -> judge.Named:
    return judge.Named(**{**fields, "said": judge.Said(**fields["said"])})


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def main() -> int:
    """Run; the exit status is 1 if not everything was reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs and plants that begin so; all by default")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds; %(default)g by default")
    parser.add_argument("--keep", action="store_true", help="take programs that were made from other sources")
    parser.add_argument("--no-page", action="store_true", help="leave docs/verdicts.md as it is")
    asked = parser.parse_args()
    os.environ["TQDM_DISABLE"] = "1"
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    zoo = Zoo(keep=asked.keep)
    wanted = [(name, zoo.correct) for name in RECIPES]
    wanted += [(name, zoo.planted) for name in PLANTS] + [(name, zoo.faulty) for name in FAULTY]
    chosen = [(n, do) for n, do in wanted if not asked.names or n.startswith(tuple(asked.names))]
    missing = 0
    for name, do in chosen:
        if time.monotonic() - zoo.started > asked.limit:
            zoo.console.print(f"The limit of {asked.limit:g} s is reached before {name!r}; run again to go on.")
            missing += 1
            break
        try:
            do(name)
        except Exception as error:  # noqa: BLE001 - one program that can't be made must not cost the others
            missing += 1
            zoo.console.print(f"{name}: {type(error).__name__}: {error}", markup=False)
    zoo.console.print(report.table(report.RATES, zoo.results.rates()), markup=False)
    if not asked.no_page and not asked.names:
        zoo.results.write()
        zoo.console.print(f"written: {report.PAGE} and {CACHE}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
