"""Files with random damage, of every kind and in every combination of arguments."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fuzz.conftest import Attempts
from tests.fuzz.worker import Try

EXAMPLES = int(os.environ.get("ETVIZ_FUZZ_EXAMPLES", "500"))
SEED = int(os.environ.get("ETVIZ_FUZZ_SEED", "0"))
Sound = Callable[..., dict[str, Path]]


def share(part: float) -> int:
    """So many of all tries."""
    return math.ceil(EXAMPLES * part)


def start() -> int:
    """A number for the first of some tries, from which the others follow."""
    return SEED * 1_000_000


def changes(case: object, count: int) -> Iterator[list[list[int]]]:
    """Changes of a file, the same ones for the same case; positions of every magnitude."""
    draw = random.Random(f"{SEED} {case}")
    for _ in range(count):
        yield [
            [draw.randrange(108), draw.getrandbits(draw.randrange(1, 41)), draw.getrandbits(draw.randrange(1, 33))]
            for _ in range(draw.choice((1, 1, 1, 2, 3, 5)))
        ]


PARSED = [
    # reader, program, files, the damaged one, how
    ("etdump", "many_outputs", ("etdump", "debug_buffer"), "etdump", "bytes"),
    ("etdump", "counter", ("etdump", "debug_buffer"), "etdump", "bytes"),
    ("etdump", "half", ("etdump", "debug_buffer"), "etdump", "bytes"),
    ("etdump", "counter", ("etdump", "debug_buffer"), "debug_buffer", "bytes"),
    ("pte", "branches", ("pte",), "pte", "bytes"),
    ("pte", "poisoned", ("pte",), "pte", "bytes"),
    ("bpte", "counter", ("bpte",), "bpte", "bytes"),
    ("log", "counter", ("log",), "log", "bytes"),
    ("parquet", "counter", ("parquet",), "parquet", "bytes"),
    ("lost", "half", ("etdump", "debug_buffer", "pte"), "etdump", "bytes"),
    ("lost", "half", ("etdump", "debug_buffer", "pte"), "pte", "bytes"),
    ("etrecord", "counter", ("etrecord",), "etrecord", "archive"),
    ("etrecord", "poisoned", ("etrecord",), "etrecord", "bytes"),
    ("record", "branches", ("record",), "record", "archive"),
    ("record", "poisoned", ("record",), "record", "bytes"),
]
WHOLE = ("etdump", "etrecord", "debug_buffer", "pte", "record")
LOADED = [
    ("counter", WHOLE, "record", "archive"),
    ("branches", ("etdump", "debug_buffer", "pte", "record"), "record", "archive"),
    ("poisoned", WHOLE, "record", "archive"),
    ("counter", WHOLE, "record", "calls"),
    ("branches", ("etdump", "debug_buffer", "pte", "record"), "record", "calls"),
    ("poisoned", WHOLE, "record", "calls"),
    ("counter", ("etdump", "etrecord", "debug_buffer", "pte"), "etrecord", "calls"),
    ("poisoned", ("etdump", "etrecord", "debug_buffer"), "etrecord", "calls"),
    ("counter", ("etdump", "etrecord", "debug_buffer", "pte"), "etrecord", "archive"),
    ("poisoned", ("etdump", "etrecord", "debug_buffer"), "etrecord", "archive"),
    ("counter", ("etdump", "etrecord", "debug_buffer"), "etrecord", "calls"),
    ("counter", ("etdump", "etrecord", "debug_buffer"), "etrecord", "archive"),
    ("counter", ("etdump", "etrecord", "debug_buffer"), "etdump", "bytes"),
    ("poisoned", WHOLE, "etdump", "bytes"),
    ("counter", ("etdump", "etrecord", "debug_buffer", "pte"), "etdump", "bytes"),
    ("counter", ("etdump", "etrecord", "debug_buffer", "pte"), "pte", "bytes"),
    ("poisoned", ("etdump", "etrecord", "debug_buffer", "pte"), "pte", "bytes"),
    ("counter", WHOLE, "debug_buffer", "bytes"),
]
UNTRUE = [
    # program, files, the one that does not tell the truth, how
    ("many_outputs", ("etdump", "debug_buffer", "pte", "record"), "etdump", "tensors"),
    ("counter", ("etdump", "etrecord", "debug_buffer", "record"), "etdump", "tensors"),
    ("counter", ("etdump", "etrecord", "debug_buffer"), "etdump", "tensors"),
    ("counter", ("etdump", "etrecord", "debug_buffer", "record"), "record", "graph"),
    ("branches", ("etdump", "debug_buffer", "record"), "record", "graph"),
    ("many_outputs", ("etdump", "etrecord", "debug_buffer", "record"), "record", "graph"),
    ("counter", ("etdump", "etrecord", "debug_buffer", "pte"), "etrecord", "members"),
    ("counter", ("etdump", "etrecord", "debug_buffer"), "etrecord", "members"),
]


@pytest.mark.fuzz
@pytest.mark.parametrize("case", PARSED, ids=lambda case: f"{case[0]}-{case[1]}-{case[3]}-{case[4]}")
def test_one_file(case: tuple[str, str, tuple[str, ...], str, str], ask: Attempts, sound: Sound) -> None:
    """An error names the file."""
    reader, program, kinds, damaged, how = case
    files = sound(program, *kinds)
    drawn = changes(case, max(share(0.5 / len(PARSED)), 20))
    ask.all(f"{damaged} ({how})", [Try(reader, files, damaged, how, item) for item in drawn], named=True)


@pytest.mark.fuzz
@pytest.mark.parametrize("case", LOADED, ids=lambda case: f"{case[2]}-{case[0]}-{len(case[1])}-{case[3]}")
def test_everything(case: tuple[str, tuple[str, ...], str, str], ask: Attempts, sound: Sound) -> None:
    program, kinds, damaged, how = case
    files = sound(program, *kinds)
    drawn = changes(case, max(share(0.1 / len(LOADED)), 5))
    name = f"load with a damaged {damaged} ({how})"
    ask.all(name, [Try("load", files, damaged, how, item) for item in drawn])


@pytest.mark.fuzz
@pytest.mark.parametrize("case", UNTRUE, ids=lambda case: f"{case[2]}-{case[0]}-{len(case[1])}-{case[3]}")
def test_everything_that_is_asked(case: tuple[str, tuple[str, ...], str, str], ask: Attempts, sound: Sound) -> None:
    """Sound files that are not true, and every question that an Inspection of them answers."""
    program, kinds, damaged, how = case
    where = f"members:{sound('many_outputs', 'etrecord')['etrecord']}" if how == "members" else how
    files = sound(program, *kinds)
    drawn = changes(case, max(share(0.02 / len(UNTRUE)), 5))
    name = f"questions about an untrue {damaged} ({how})"
    ask.all(name, [Try("asked", files, damaged, where, item) for item in drawn])
