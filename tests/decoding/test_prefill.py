"""Prompts that are fed in chunks, and a tokenizer's file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import etviz
from tests.calls.decoders import ROOM, Decoder, driver

IDS = [3, 1, 4, 1, 5, 9, 2]


def test_chunks_and_a_tokenizer_file(tmp_path: Path) -> None:
    """Whole, in chunks and token by token: the same positions, tokens and verdicts; fewer calls."""
    count = torch.export.Dim("count", min=1, max=ROOM - 2)
    example = driver([1, 2, 3], 0)
    exported = torch.export.export(Decoder().eval(), example, dynamic_shapes=({1: count}, {0: count}), strict=False)
    made = etviz.Driver(driver, 7)
    runs = {size: etviz.decode(exported, [IDS], driver=made, prefill=size, steps=3) for size in (1, 3, 7)}
    assert [len(run.sequences[0].calls) for run in runs.values()] == [9, 5, 3]
    for run in runs.values():
        assert run.steps["token"].tolist() == runs[1].steps["token"].tolist()
        assert run.steps["position"].tolist() == list(range(9))
        assert run.first_fault is None
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{at}": at for at in range(24)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    text = " ".join(f"w{token}" for token in IDS)
    run = etviz.decode(exported, text, tokenizer=tmp_path / "tokenizer.json", driver=made, steps=1)
    assert list(run.sequences[0].ids[: len(IDS)]) == IDS
    assert run.steps["text"].tolist()[:6] == [f"w{token}" for token in IDS[1:]]
