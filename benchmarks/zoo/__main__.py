"""``make zoo``: makes what the cache lacks, judges everything, prints a row for each as it comes, writes the page.

A run that was stopped goes on where it ended: programs are kept until their sources change, judgements until etviz or
the judge does. A program and its plants are made by one process, which asks another one to judge them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from rich.console import Console

from benchmarks.zoo import report, rows
from benchmarks.zoo.rows import CORRECT, FAULT, PLANTED, Row
from tests.zoo import maker
from tests.zoo.made import CACHE
from tests.zoo.plants import PLANTS
from tests.zoo.programs import FAULTY, RECIPES

LIMIT = 60.0


def _chosen(beginnings: list[str]) -> dict[str, list[tuple[str, str]]]:
    """What is asked for, by the program that it is made from."""
    every = [(name, CORRECT, name) for name in RECIPES]
    every += [(plant.base, PLANTED, name) for name, plant in PLANTS.items()]
    every += [(name, FAULT, name) for name in FAULTY]
    groups: dict[str, list[tuple[str, str]]] = {}
    for base, kind, name in every:
        if not beginnings or name.startswith(tuple(beginnings)):
            groups.setdefault(base, []).append((kind, name))
    return groups


def _rows(groups: dict[str, list[tuple[str, str]]], *, processes: int, keep: bool, minutes: float) -> Iterator[Row]:
    """Rows as they come; what was made before begins, then the largest groups."""
    end = time.time() + 60 * minutes
    order = sorted(groups, key=lambda base: (not maker.known(base), -len(groups[base])))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=rows.quiet) as pool:
        for done in as_completed([pool.submit(rows.group, groups[base], keep, end) for base in order]):
            yield from done.result()


def main() -> int:
    """Run; the exit status is 1 if not everything was reached."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs and plants that begin so; all by default")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="%(default)s by default")
    parser.add_argument(
        "--minutes",
        type=float,
        default=LIMIT,
        help="nothing is judged later; %(default)g by default, 0 writes the page",
    )
    parser.add_argument("--keep", action="store_true", help="take programs that were made from other sources")
    parser.add_argument("--no-page", action="store_true", help="leave docs/verdicts.md as it is")
    asked = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    results, missing, started = report.Results(), 0, time.monotonic()
    for kind, name, made, said in _rows(
        _chosen(asked.names), processes=asked.processes, keep=asked.keep, minutes=asked.minutes
    ):
        if made is None or isinstance(said, str):
            missing += 1
            console.print(f"{name}: {said}", markup=False)
            continue
        results.add(kind, made, said)
        spent = (time.monotonic() - started) / 60
        console.print(f"{len(results):3} {spent:5.1f} min  {'  |  '.join(results.row(name))}", markup=False)
    console.print(report.table(report.RATES, results.rates()), markup=False)
    if not asked.no_page and not asked.names:
        results.write()
        console.print(f"written: {report.PAGE} and {CACHE}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
