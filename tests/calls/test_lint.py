"""Recorded calls compared with a driver's: each way in which apps have called a correct program wrongly."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import etviz
from etviz.cli.app import app
from etviz.errors import ArtifactError, UsageError
from etviz.pipeline.lower import lower
from tests.calls.decoders import ROOM, WORDS, driver, masked_driver, single_program
from tests.shelf import Shelf

Calls = list[tuple[Any, ...]]
IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def _steps(make: Callable[..., tuple[Any, ...]] = driver) -> Calls:
    """A prompt of three tokens in one call, then token by token."""
    return [make(IDS[:3], 0), *(make([IDS[at]], at) for at in range(3, len(IDS)))]


def _changed(calls: Calls, call: int, place: int, change: Callable[[torch.Tensor], Any]) -> Calls:
    """The same calls, with another input from one call on."""
    return [
        tuple(change(value) if at == place and number >= call else value for at, value in enumerate(each))
        for number, each in enumerate(calls)
    ]


def _said(calls: Calls, make: Any = driver, **more: Any) -> list[tuple[int, str, str, str]]:
    table = etviz.lint_calls(calls, driver=make, **more)
    return list(table[["call", "what", "found", "expected"]].itertuples(index=False, name=None))


@pytest.mark.parametrize("make", [driver, masked_driver])
def test_right_calls(make: Any) -> None:
    assert _said(_steps(make), make) == []


def test_position_off_by_one() -> None:
    """The position stands still once: pytorch/executorch#15286, whose runner did not count generated tokens."""
    found = _said(_changed(_steps(), 4, 1, lambda value: value - 1))
    assert found == [(4, "input 1", "5", "6")]


def test_one_wrong_position_does_not_accuse_the_next_call() -> None:
    calls = _steps()
    calls[2] = driver([IDS[4]], 3)
    assert _said(calls) == [(2, "input 1", "3", "4")]
    calls[2] = calls[2][:1]
    assert _said(calls) == [(2, "inputs", "1 inputs", "2")]


def test_batch() -> None:
    """Several sequences side by side; their tokens may differ."""

    def pairs(ids: Any, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([list(ids)] * 2), torch.tensor([position])

    calls: Calls = [(torch.tensor([[token], [token + 1]]), torch.tensor([at])) for at, token in enumerate(IDS)]
    assert _said(calls, pairs) == []
    assert _said(_changed(calls, 3, 1, lambda value: value + 1), pairs) == [(3, "input 1", "4", "3")]


def test_wrong_type_and_shape_of_a_mask() -> None:
    """A mask in another type or layout than the program's: pytorch/executorch#18812 builds one by hand in the app."""
    half = _said(_changed(_steps(masked_driver), 2, 2, torch.Tensor.half), masked_driver)
    assert (2, "input 2", "float16 [1, 12]", "float32 [1, 12]") in half
    assert len(half) == 4
    flat = _said(_changed(_steps(masked_driver), 5, 2, torch.Tensor.flatten), masked_driver)
    assert flat == [(5, "input 2", "shape [12]", "shape [1, 12]")]
    boolean = _said(_changed(_steps(masked_driver), 5, 2, lambda value: value == 0), masked_driver)
    assert boolean == [(5, "input 2", "bool [1, 12]", "float32 [1, 12]")]


def test_window_of_a_mask() -> None:
    """The mask hides one position too much: pytorch/executorch#22285."""

    def narrow(value: torch.Tensor) -> torch.Tensor:
        changed = value.clone()
        changed[-1, 4] = -1e4
        return changed

    found = _said(_changed(_steps(masked_driver), 4, 2, narrow), masked_driver)
    assert found[0] == (4, "input 2", "-10000 at [0, 4] (1 elements differ)", "0")


def test_no_reset_between_prompts() -> None:
    """The runner of pytorch/executorch#19447 did not reset between the prompts of its loop."""
    calls = [
        *(driver([token], at) for at, token in enumerate(IDS[:4])),
        *(driver([token], 4 + at) for at, token in enumerate([7, 7])),
    ]
    assert _said(calls) == []  # one conversation
    found = _said(calls, prompts=[IDS[:4], [7, 7]])
    assert (4, "reset", "none before prompt 1", "a reset, and position 0, for another prompt") in found
    assert (4, "input 1", "4", "0") in found
    assert {row[0] for row in found} == {4}


def test_missing_blank() -> None:
    """A transducer's predictor begins with the blank; the runner of pytorch/executorch#16509 left it out."""
    blank = 23
    right = [driver([token], at) for at, token in enumerate([blank, *IDS[:3]])]
    assert _said(right, prompts=[[blank]]) == []
    found = _said([driver([token], at) for at, token in enumerate(IDS[:3])], prompts=[[blank]])
    assert found == [(0, "input 0", "token 3", "token 23, number 0 of prompt 0")]


def test_a_second_generate_without_a_reset(tmp_path: Path) -> None:
    with etviz.record_calls(tmp_path) as recorder:
        for text in ("generate: one", "generate: two"):
            recorder._writer.note(text)  # pyright: ignore[reportPrivateUsage]
            recorder.call(driver([1], 0))
    table = etviz.lint_calls(tmp_path, driver=driver)
    assert table[["call", "what", "level"]].values.tolist() == [[1, "reset", "note"]]


def test_beyond_the_room() -> None:
    bounded = etviz.Driver(driver, chunk=ROOM, room=6)
    found = _said(_steps(), bounded)
    assert found[0] == (4, "window", "positions up to 6", "at most 5")


def test_chunk_longer_than_the_program_takes() -> None:
    """A prompt in one chunk that is longer than the window: pytorch/executorch#21384."""
    bounded = etviz.Driver(driver, chunk=2, room=ROOM)
    assert _said(_steps(), bounded) == [(0, "input 0", "3 tokens", "at most 2")]


def test_nan_and_unknown_tokens() -> None:
    broken = _changed(_steps(masked_driver), 3, 2, lambda value: value * math.nan)
    assert (3, "input 2", "12 NaN", "numbers") in _said(broken, masked_driver)
    assert _said(_changed(_steps(), 3, 0, lambda value: value - 10))[0] == (
        3,
        "input 0",
        "token -1",
        "tokens 0 or more",
    )


def test_padding() -> None:
    """A program that always takes four tokens (pytorch/executorch#19447: stale tokens in the last chunk).

    Padded prompts are right; a shorter input is not.
    """

    def padded(ids: Any, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([[*ids, *[0] * (4 - len(ids))]]), torch.tensor([position])

    fixed = etviz.Driver(padded, chunk=4)
    assert _said([padded(IDS[:4], 0), padded(IDS[4:6], 4), padded(IDS[6:8], 6)], fixed) == []
    assert _said([padded(IDS[:4], 0), padded(IDS[4:6], 5)], fixed) == [(1, "input 1", "5", "4")]
    assert _said([padded(IDS[:4], 0), (torch.tensor([IDS[4:6]]), torch.tensor([4]))], fixed) == [
        (1, "input 0", "shape [1, 2]", "shape [1, 4]")
    ]
    stale = [(torch.tensor([[*IDS[:3], 9]]), torch.tensor([0])), padded(IDS[3:7], 3)]
    table = etviz.lint_calls(stale, driver=fixed)
    assert table.values.tolist() == [[0, "input 0", "padding [9]", "padding [0]", "note"]]


@pytest.fixture(scope="module")
def decoder(shelf: Shelf) -> Path:
    return single_program(shelf)


class _Quantized(nn.Module):
    """A decoder without state whose mask is rounded to int8, as those of QNN and Ethos-U are."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        decomposed = torch.ops.quantized_decomposed
        grid = (0.5, 0, -128, 127, torch.int8)
        held = decomposed.dequantize_per_tensor.default(decomposed.quantize_per_tensor.default(mask, *grid), *grid)
        x = self.embed(tokens) + input_pos[:, None]
        return (x @ x.transpose(1, 2) + held[:, :1]) @ x


def test_mask_that_a_quantized_input_cannot_hold(tmp_path: Path) -> None:
    """−inf where a quantized mask holds −64 at least: pytorch/executorch#8736 gives masks a number instead."""

    def make(ids: Any, position: int) -> tuple[torch.Tensor, ...]:
        return torch.tensor([list(ids)]), torch.tensor([position]), torch.full((1, 4), -60.0)

    lower(_Quantized().eval(), make([1], 0), tmp_path, strict=False)
    right = [make([token], at) for at, token in enumerate(IDS[:3])]
    assert not len(etviz.lint_calls(right, driver=make, program=tmp_path))
    for value, said, level in ((-math.inf, "−inf", "error"), (-1e4, "-10000", "note")):
        wrong = _changed(right, 1, 2, lambda mask, value=value: torch.where(torch.arange(4) > 1, value, mask))
        table = etviz.lint_calls(wrong, driver=make, program=tmp_path)
        row = table[table["found"] == said].iloc[0]
        assert (row["call"], row["what"], row["level"]) == (1, "mask", level)
        assert row["expected"] == "-64 to 63.5, the range of the quantized input"


def test_command_line(decoder: Path, tmp_path: Path) -> None:
    """The driver, the names and the vocabulary come from the program."""

    def record(calls: Calls) -> None:
        with etviz.record_calls(tmp_path) as recorder:
            for call in calls:
                recorder.call(call)

    steps = [driver([token], at) for at, token in enumerate(IDS)]
    record(steps)
    ended = CliRunner().invoke(app, ["calls", str(tmp_path), "--pte", str(decoder / "model.pte")])
    assert (ended.exit_code, ended.output.strip()) == (0, "0 errors, 0 notes")
    record(_changed(steps, 7, 1, lambda value: value - 1))
    ended = CliRunner().invoke(app, ["calls", str(tmp_path), "--pte", str(decoder / "model.pte")])
    assert ended.exit_code == 1
    assert "call 7: input_pos is 6, expected 7" in ended.output
    record(_changed(steps, 2, 0, lambda value: value + WORDS))
    ended = CliRunner().invoke(app, ["calls", str(tmp_path), "--pte", str(decoder / "model.pte"), "--json"])
    assert ended.exit_code == 1
    assert f'"tokens 0 to {WORDS - 1}"' in ended.output


def test_bad_input(decoder: Path) -> None:
    with pytest.raises(UsageError, match="give driver= or program="):
        etviz.lint_calls(_steps())
    with pytest.raises(UsageError, match="the list is empty"):
        etviz.lint_calls([], driver=driver)
    with pytest.raises(ArtifactError, match=r"nowhere: there is no such file\. .*record the calls"):
        etviz.lint_calls(decoder / "nowhere", program=decoder / "nowhere")
    with pytest.raises(UsageError, match="the recording belongs to another program, or the driver does"):
        etviz.lint_calls([(torch.ones(1, 3),)], driver=driver)
    with pytest.raises(UsageError, match="0 of its 2 arguments depend on the ids"):
        etviz.lint_calls(_steps(), driver=lambda ids, at: (torch.tensor([at]), torch.tensor([1])))
    with pytest.raises(UsageError, match="driver: it fails on"):
        etviz.lint_calls(_steps(), driver=lambda ids, at: [1 // 0])
    with pytest.raises(UsageError, match="no call of the method 'decode'; methods of the recording: forward"):
        etviz.lint_calls(_steps(), driver=driver, method="decode")
