"""Programs that belong together, such as an encoder and a decoder, are the methods of one Inspection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import etviz
from etviz.errors import UsageError
from tests.programs import Executed

Get = Callable[[str], Executed]


def _files(program: Executed) -> dict[str, Any]:
    return {kind: program.path(kind) for kind in ("etdump", "debug_buffer", "pte", "etrecord", "record")}


@pytest.fixture
def together(executed: Get) -> etviz.Inspection:
    return etviz.load({"encoder": _files(executed("encoder")), "counter": _files(executed("counter"))})


def test_each_program_is_a_method(together: etviz.Inspection, executed: Get, tmp_path: Path) -> None:
    other = together.method("counter")
    assert together.methods == other.methods == ["encoder", "counter"]
    assert other is together.method("counter")
    assert other.method("encoder") is together
    for name, found in (("encoder", together), ("counter", other)):
        pd.testing.assert_frame_equal(found.gaps, etviz.load(**_files(executed(name))).gaps)
        assert found.summary().startswith(etviz.load(**_files(executed(name))).summary().splitlines()[0])
    payload, _ = together.widget().payload()
    assert (payload["method"], payload["methods"]) == ("encoder", ["encoder", "counter"])
    assert together.to_html(tmp_path / "report.html").stat().st_size > 0


@pytest.mark.parametrize(
    ("given", "named", "problem"),
    [
        ({}, {}, "a dict of programs by name"),
        ({"a": {"etdmp": "x"}}, {}, "a: load has no argument 'etdmp'"),
        ({"a": "x"}, {"pte": "model.pte"}, "pte= belongs to one program"),
    ],
)
def test_bad_programs_are_refused(given: Any, named: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        etviz.load(given, **named)


def test_an_unknown_program_is_named(together: etviz.Inspection) -> None:
    with pytest.raises(UsageError, match="method must be one of encoder, counter"):
        together.method("decoder")
