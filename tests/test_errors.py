"""Errors say which file, what is wrong and what to do, and survive the way between processes."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import etviz
from etviz.errors import ArtifactError, EtvizError, ExecutionError, PairingError, UsageError


def test_artifact_error_reads_as_sentences() -> None:
    error = ArtifactError("run.etdp", "the file is empty", "run the model again", where=0, expected=8)
    assert str(error) == "run.etdp: the file is empty. Run the model again."
    assert (error.where, error.found, error.expected) == (0, None, 8)


def test_execution_error_shows_the_last_lines() -> None:
    error = ExecutionError("the child process was aborted", -6, ["check failed", "Aborted"])
    assert str(error) == "the child process was aborted. Its last lines:\n  check failed\n  Aborted"
    assert error.exit_status == -6


def test_usage_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="bins"):
        raise UsageError("bins must be positive")


@pytest.mark.parametrize(
    "error",
    [
        ArtifactError("run.etdp", "the file is empty", "run the model again", where=3),
        PairingError("the files belong to different programs", "give the ETRecord of this program"),
        ExecutionError("timeout", None, ["line"]),
        UsageError("bins must be positive"),
    ],
)
def test_errors_can_come_from_another_process(error: EtvizError) -> None:
    twin = copy.copy(error)  # takes the way of a pickle
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)


def test_what_is_quoted_is_shown_in_part() -> None:
    endless = "x" * 1_000_000
    for error in (ArtifactError(endless, endless), PairingError(endless), UsageError(endless)):
        assert len(str(error)) < 2500


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "a\0b", "\ud800"], ids=["name", "path", "null", "surrogate"])
@pytest.mark.parametrize("kind", ["etdump", "pte", "record", "etrecord", "debug_buffer", "data", "outputs"])
def test_a_name_that_no_file_can_have(kind: str, name: str) -> None:
    given: dict[str, Any] = {"record": __file__} if kind == "outputs" else {"etdump": __file__}
    given[kind] = name
    with pytest.raises(ArtifactError, match="no file can have this name"):
        etviz.load(**given)


def test_a_notebook_shows_the_sentence_the_users_line_and_where_the_trace_is() -> None:
    """IPython prints what `_render_traceback_` returns in place of a trace."""
    shell = InteractiveShell.instance()
    with capture_output() as shown:
        shell.run_cell("import etviz\nwrong = 'nothing.etdp'\netviz.load(wrong)")
    text = re.sub(r"\x1b\[\d*m", "", shown.stdout)
    assert "ArtifactError: nothing.etdp: there is no such file" in text
    assert re.search(r"Cell In\[\d+\], line 3\n    etviz\.load\(wrong\)", text)
    assert "traceback.print_exception(sys.last_value)" in text
    assert text.count("\n") < 12
    assert "etviz/loading" not in text
