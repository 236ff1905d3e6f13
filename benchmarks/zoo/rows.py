"""A line of the zoo's tables: a program is made, and another process judges it. Runs in processes of a pool."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from tests.zoo import judge, maker
from tests.zoo.made import WAYS, Made
from tests.zoo.plants import PLANTS
from tests.zoo.programs import FAULTY, RECIPES

CORRECT, PLANTED, FAULT = "correct", "planted", "faulty"
_JUDGED = "judged.json"
T = TypeVar("T")
Row = tuple[str, str, Made | None, dict[str, Any] | str]
"""Kind and name of a program, where it is, and what is said of it by way of loading, or why it could not be made."""


def group(names: list[tuple[str, str]], keep: bool, end: float) -> list[Row]:
    """Make and judge programs that are made from the same one; runs in a process of the pool.

    After the `end` only what was judged before is taken.
    """
    return [_row(kind, name, keep) for kind, name in names if time.time() < end or _is_judged(name)]


def _is_judged(name: str) -> bool:
    known = maker.known(name)
    return bool(known) and _judgement(known[-1].parent).get("key") == _judges()


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
        _judge.cache_clear()
        return kind, name, None, f"{type(error).__name__}: {error}"


@functools.cache
def _judge() -> judge.JudgeProcess:
    return judge.JudgeProcess()


def _judged(made: Made, read: Callable[[dict[str, Any]], T], ask: Callable[[Made, str], T]) -> dict[str, T]:
    """What is said in each way of loading; it is kept beside the program until etviz or the judge changes."""
    kept = _judgement(made.folder)
    if kept.get("key") == _judges():
        return {way: read(fields) for way, fields in kept["ways"].items()}
    found: dict[str, Any] = {way: ask(made, way) for way in WAYS}
    ways = {way: asdict(item) for way, item in found.items()}
    (made.folder / _JUDGED).write_text(json.dumps({"key": _judges(), "ways": ways}))
    return found


def _judgement(folder: Path) -> dict[str, Any]:
    path = folder / _JUDGED
    return json.loads(path.read_text()) if path.exists() else {}


def _judges() -> list[str]:
    """What a judgement depends on."""
    return [_engine(), _digest(Path(judge.__file__))]


def _named(fields: dict[str, Any]) -> judge.Named:
    return judge.Named(**{**fields, "said": judge.Said(**fields["said"])})


@functools.cache
def _engine() -> str:
    return _digest(*sorted((Path(maker.__file__).parents[2] / "etviz").rglob("*.py")))


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def quiet() -> None:
    """Let no library speak."""
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
