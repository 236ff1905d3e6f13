"""Prompts that are fed in chunks, and a tokenizer's file."""

from __future__ import annotations

from pathlib import Path

import pytest

import etviz
from tests.calls.decoders import Decoder, chunked, chunked_program, driver
from tests.shelf import Shelf

IDS = [3, 1, 4, 1, 5, 9, 2]


def _tokenizer(folder: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{at}": at for at in range(24)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


TEXT = " ".join(f"w{token}" for token in IDS)


def test_a_text_in_chunks(shelf: Shelf, tmp_path: Path) -> None:
    """Each position has its token and its verdict, also those of one call."""
    given = {"tokenizer": _tokenizer(tmp_path), "driver": etviz.Driver(driver, 7), "prefill": 3, "steps": 3}
    run = etviz.decode(chunked_program(shelf), TEXT, **given)
    assert list(run.sequences[0].ids[: len(IDS)]) == IDS
    assert len(run.sequences[0].calls) == 5
    assert run.steps["position"].tolist() == list(range(9))
    assert run.steps["text"].tolist()[:6] == [f"w{token}" for token in IDS[1:]]
    assert run.first_fault is None


def test_chunks_and_a_tokenizer_file(tmp_path: Path) -> None:
    """Whole, in chunks and token by token: the same positions, tokens and verdicts; fewer calls."""
    exported, made = chunked(Decoder()), etviz.Driver(driver, 7)
    runs = {size: etviz.decode(exported, [IDS], driver=made, prefill=size, steps=3) for size in (1, 3, 7)}
    assert [len(run.sequences[0].calls) for run in runs.values()] == [9, 5, 3]
    for run in runs.values():
        assert run.steps["token"].tolist() == runs[1].steps["token"].tolist()
        assert run.steps["position"].tolist() == list(range(9))
        assert run.first_fault is None
    run = etviz.decode(exported, TEXT, tokenizer=_tokenizer(tmp_path), driver=made, steps=1)
    assert list(run.sequences[0].ids[: len(IDS)]) == IDS
    assert run.steps["text"].tolist()[:6] == [f"w{token}" for token in IDS[1:]]
