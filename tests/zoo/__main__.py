"""``make zoo``: makes what the cache lacks, judges everything, prints a row for each as it comes, writes the page.

A run that was stopped goes on where it ended: programs are kept until their sources change, judgements until etviz or
the judge does. A program and its plants are made by one process, which asks another one to judge them.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import logging
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from tests.zoo import judge, maker, report
from tests.zoo.made import CACHE, WAYS, Made
from tests.zoo.plants import PLANTS
from tests.zoo.programs import FAULTY, RECIPES

LIMIT = 3600.0
"""Seconds that a run may take."""
CORRECT, PLANTED, FAULT = "correct", "planted", "faulty"
T = TypeVar("T")
Row = tuple[str, str, Made | None, dict[str, Any] | str]
"""Kind and name of a program, where it is, and what is said of it by way of loading, or why it could not be made."""


def group(names: list[tuple[str, str]], keep: bool) -> list[Row]:
    """Make and judge programs that are made from the same one; runs in a process of the pool."""
    return [_row(kind, name, keep) for kind, name in names]


def _row(kind: str, name: str, keep: bool) -> Row:
    try:
        if kind == PLANTED:
            made = maker.make_plant(PLANTS[name], keep=keep)
        else:
            made = maker.make((RECIPES | FAULTY)[name], keep=keep)
        if kind == CORRECT:
            return kind, name, made, _judged(made, lambda fields: judge.Said(**fields), _judge().judge)
        return kind, name, made, _judged(made, _named, _judge().judge_fault)
    except Exception as error:  # noqa: BLE001 - one program that can't be made must not cost the others
        return kind, name, None, f"{type(error).__name__}: {error}"


@functools.cache
def _judge() -> judge.JudgeProcess:
    return judge.JudgeProcess()


def _judged(made: Made, read: Callable[[dict[str, Any]], T], ask: Callable[[Made, str], T]) -> dict[str, T]:
    """What is said in each way of loading; it is kept beside the program until etviz or the judge changes."""
    path = made.folder / "judged.json"
    key = [_engine(), _digest(Path(judge.__file__))]
    kept = json.loads(path.read_text()) if path.exists() else {}
    if kept.get("key") == key:
        return {way: read(fields) for way, fields in kept["ways"].items()}
    found: dict[str, Any] = {way: ask(made, way) for way in WAYS}
    path.write_text(json.dumps({"key": key, "ways": {way: asdict(item) for way, item in found.items()}}))
    return found


def _named(fields: dict[str, Any]) -> judge.Named:
    return judge.Named(**{**fields, "said": judge.Said(**fields["said"])})


@functools.cache
def _engine() -> str:
    return _digest(*sorted((Path(maker.__file__).parents[2] / "etviz").rglob("*.py")))


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _quiet() -> None:
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")


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


def _rows(groups: dict[str, list[tuple[str, str]]], *, processes: int, keep: bool) -> Iterator[Row]:
    """Rows as they come; the largest groups begin."""
    order = sorted(groups, key=lambda base: -len(groups[base]))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_quiet) as pool:
        for done in as_completed([pool.submit(group, groups[base], keep) for base in order]):
            yield from done.result()


def main() -> int:
    """Run; the exit status is 1 if not everything was reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs and plants that begin so; all by default")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="%(default)s by default")
    parser.add_argument("--keep", action="store_true", help="take programs that were made from other sources")
    parser.add_argument("--no-page", action="store_true", help="leave docs/verdicts.md as it is")
    asked = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    results, missing, started = report.Results(), 0, time.monotonic()
    for kind, name, made, said in _rows(_chosen(asked.names), processes=asked.processes, keep=asked.keep):
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
