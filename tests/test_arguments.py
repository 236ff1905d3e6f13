"""What a function is called with is checked where it enters: a value of another type is an error that names it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch

import etviz
from etviz.errors import ArtifactError, EtvizError, UsageError, checked
from etviz.pipeline.execute import execute
from etviz.pipeline.worker import WORKER
from tests.programs import Executed

Make = Callable[[str], Executed]
mpl.use("Agg")

NOT_WORDS: tuple[Any, ...] = (pd.Series([1.0, 2.0]), torch.ones(2), [1], {}, 3, "\ud800", "elsewhere")
NUMBERS: tuple[Any, ...] = (math.nan, 10**400, "10", "\ud800", [math.nan], {}, object(), torch.tensor(math.nan), 1j)
ASKED: dict[str, Callable[[etviz.Inspection, Any], Any]] = {
    "bins": lambda i, value: i.row(0).histogram(bins=value),
    "n": lambda i, value: i.worst(n=value),
    "by": lambda i, value: i.worst(by=value),
    "name": lambda i, value: i.module_total(value),
    "run": lambda i, value: i.ladder(run=value),
    "loss": lambda i, value: i.attribution(loss=value),
    "output": lambda i, value: i.attribution(output=value),
    "axes": lambda i, value: i.row(0).error_map(axes=value),
    "ax": lambda i, value: i.plot.gaps(ax=value),
    "figures": lambda i, value: i.export.figures(value),
    "zoom": lambda i, value: i.zoom(0, timeout=value),
    "repro": lambda i, value: i.repro(0, "nowhere", timeout=value),
    "path": lambda i, value: i.to_html(value),
    "trace": lambda i, value: i.export.chrome_trace(value),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_wrong_type_is_an_error_that_says_so(
    name: str, executed: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inspection = executed("counter").inspection
    found = []
    for value in NUMBERS:
        with contextlib.suppress(EtvizError):
            found.append(ASKED[name](inspection, value))
            continue
        with pytest.raises((UsageError, ArtifactError)) as refused:
            ASKED[name](inspection, value)
        str(refused.value).encode()
    assert len(found) <= 2  # a text that is a path, a number larger than there are rows


@pytest.mark.parametrize("seconds", [math.nan, 0, -1.0, "10", [1]])
def test_every_limit_of_time_is_a_positive_number(seconds: Any, executed: Make) -> None:
    program = executed("counter")
    asked: dict[str, Callable[[], Any]] = {
        "execute": lambda: execute(program.path("pte"), [[]], timeout=seconds),
        "worker": lambda: WORKER.run({"work": "nothing"}, seconds),
        "zoom": lambda: program.inspection.zoom(0, timeout=seconds),
        "diagnosis": lambda: program.inspection.diagnosis(timeout=seconds),
        "debug": lambda: etviz.debug(torch.nn.ReLU(), (torch.ones(1),), timeout=seconds),
        "study": lambda: etviz.study(program.inspection, [], timeout=seconds),
        "census": lambda: etviz.census(program.inspection, (), timeout=seconds),
        "sweep": lambda: etviz.sweep(None, {"a": {}}, [], timeout=seconds),
        "suggest": lambda: etviz.suggest(program.inspection, timeout=seconds),
        "verify": lambda: etviz.verify("nowhere.bpte", timeout=seconds),
    }
    for name, ask in asked.items():
        with pytest.raises(UsageError, match=r"^timeout must be a positive number of seconds"):
            pytest.fail(f"{name} gave {ask()}")


def test_what_fits_is_passed_on() -> None:
    @checked
    def asked(count: int, share: float | None = None, *, name: str = "", flag: bool = False) -> tuple[Any, ...]:
        return count, share, name, flag

    count: Any = np.int64(3)
    share: Any = np.float32(0.5)
    flag: Any = np.True_
    assert asked(count, share, name="a", flag=flag) == (3, 0.5, "a", True)
    assert asked(count=True, share=math.inf) == (True, math.inf, "", False)
    with pytest.raises(UsageError, match="share must be a number or None, found nan"):
        asked(1, math.nan)
    for wrong in (pd.Series([1, 2]), "no", 1, None):
        with pytest.raises(UsageError, match="flag must be True or False, found"):
            asked(1, flag=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        asked(1, other=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("value", NOT_WORDS, ids=[type(value).__name__ for value in NOT_WORDS])
def test_a_word_is_asked_for(executed: Make, value: Any) -> None:
    inspection = executed("plain_cnn").inspection
    with pytest.raises(UsageError, match="sidebar must be True, False, 'left' or 'right'"):
        inspection.show(sidebar=value)
    with pytest.raises(UsageError):
        inspection.against(value)
