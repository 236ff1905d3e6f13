"""Files with random damage, of every kind and in every combination of arguments."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.conftest import Ask

EXAMPLES = int(os.environ.get("ETVIZ_FUZZ_EXAMPLES", "500"))
LONG = "ETVIZ_FUZZ_EXAMPLES" in os.environ
Sound = Callable[..., dict[str, Path]]

changes = st.lists(
    st.tuples(st.integers(0, 107), st.integers(0, (1 << 40) - 1), st.integers(0, (1 << 32) - 1)).map(list),
    min_size=1,
    max_size=5,
)


def fuzz(share: float) -> settings:
    """As many examples as are this file's share of all."""
    return settings(
        max_examples=max(int(EXAMPLES * share), 5),
        deadline=None,
        derandomize=not LONG,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


PARSED = [
    # reader, program, files, the damaged one, how
    ("etdump", "many_outputs", ("etdump", "debug_buffer"), "etdump", "bytes"),
    ("etdump", "counter", ("etdump", "debug_buffer"), "etdump", "bytes"),
    ("etdump", "half", ("etdump", "debug_buffer"), "etdump", "bytes"),
    ("etdump", "counter", ("etdump", "debug_buffer"), "debug_buffer", "bytes"),
    ("pte", "branches", ("pte",), "pte", "bytes"),
    ("pte", "poisoned", ("pte",), "pte", "bytes"),
    ("bpte", "counter", ("bpte",), "bpte", "bytes"),
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
@fuzz(0.065)
@given(changes=changes)
def test_one_file(
    case: tuple[str, str, tuple[str, ...], str, str], changes: list[list[int]], ask: Ask, sound: Sound
) -> None:
    """An error names the file."""
    reader, program, kinds, damaged, how = case
    files = sound(program, *kinds)
    found = ask(f"{damaged} ({how})", reader, files, damaged, how, changes)
    assert found.kind == "value" or f"{damaged}/{files[damaged].name}" in found.text, found.text


@pytest.mark.fuzz
@pytest.mark.parametrize("case", LOADED, ids=lambda case: f"{case[2]}-{case[0]}-{len(case[1])}-{case[3]}")
@fuzz(0.01)
@given(changes=changes)
def test_everything(
    case: tuple[str, tuple[str, ...], str, str], changes: list[list[int]], ask: Ask, sound: Sound
) -> None:
    program, kinds, damaged, how = case
    ask(f"load with a damaged {damaged} ({how})", "load", sound(program, *kinds), damaged, how, changes)


@pytest.mark.fuzz
@pytest.mark.parametrize("case", UNTRUE, ids=lambda case: f"{case[2]}-{case[0]}-{len(case[1])}-{case[3]}")
@fuzz(0.01)
@given(changes=changes)
def test_everything_that_is_asked(
    case: tuple[str, tuple[str, ...], str, str], changes: list[list[int]], ask: Ask, sound: Sound
) -> None:
    """Sound files that are not true, and every question that an Inspection of them answers."""
    program, kinds, damaged, how = case
    where = f"members:{sound('many_outputs', 'etrecord')['etrecord']}" if how == "members" else how
    ask(f"questions about an untrue {damaged} ({how})", "asked", sound(program, *kinds), damaged, where, changes)
