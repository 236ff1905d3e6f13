"""llama.cpp's file of log probabilities as the reference."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import etviz
from etviz.artifacts.kl_base import read_kl_base
from etviz.errors import ArtifactError, UsageError
from tests.decoding.trained import module, program, prompts
from tests.shelf import Shelf

CONTEXT = 16


def write(path: Path, chunks: list[list[int]], logits: list[torch.Tensor]) -> Path:
    """Write a file as llama.cpp does: 16-bit numbers over the 16 nats below the best token."""
    vocabulary = logits[0].shape[1]
    content = b"_logits_" + struct.pack("<3i", CONTEXT, vocabulary, len(chunks))
    content += np.array(chunks, "<i4").tobytes()
    for rows in logits:
        for row in rows[CONTEXT // 2 : CONTEXT - 1].double().log_softmax(1).numpy():
            least = max(row.min(), row.max() - 16)
            step = (row.max() - least) / 65535
            numbers = np.rint(np.maximum(row - least, 0) / (step or 1)).astype("<u2")
            padded = np.zeros(2 * ((vocabulary + 1) // 2), "<u2")
            padded[:vocabulary] = numbers
            content += np.array([step, least], "<f4").tobytes() + padded.tobytes()
    path.write_bytes(content)
    return path


def scored(shelf: Shelf, chunks: list[list[int]]) -> list[torch.Tensor]:
    """The eager model's logits."""
    found = []
    for chunk in chunks:
        model = module(shelf, "custom")
        with torch.no_grad():
            rows = [model(torch.tensor([[token]]), {"input_pos": torch.tensor([at])}) for at, token in enumerate(chunk)]
        found.append(torch.cat([row.reshape(1, -1) for row in rows]))
    return found


@pytest.fixture(scope="module")
def base(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[torch.Tensor]]:
    """Two chunks, scored by the eager model."""
    chunks = [list(text.encode()) for text in prompts(2, CONTEXT)]
    found = scored(shelf, chunks)
    return write(tmp_path_factory.mktemp("base") / "base.kld", chunks, found), found


def test_the_file_is_read(base: tuple[Path, list[torch.Tensor]]) -> None:
    read = read_kl_base(base[0])
    assert (read.context, read.vocabulary, read.tokens.shape) == (CONTEXT, 128, (2, CONTEXT))
    assert list(read.scored) == list(range(8, 15))
    for chunk, logits in enumerate(base[1]):
        expected = logits[8:15].double().log_softmax(1).numpy()
        expected = np.maximum(expected, expected.max(1, keepdims=True) - 16)
        found, steps = read.log_probabilities(chunk)
        assert np.abs(found - expected).max() <= steps.max() / 2 * 1.01


def test_decode_compares_with_it(shelf: Shelf, base: tuple[Path, list[torch.Tensor]]) -> None:
    run = etviz.decode(program(shelf, "custom"), None, reference=base[0])
    steps = run.steps
    assert list(steps["position"]) == [*range(8, 15)] * 2
    assert steps["kl"].abs().max() < 1e-4
    assert run.first_fault is None
    for chunk, logits in enumerate(base[1]):
        nll = -logits[8:15].double().log_softmax(1)
        tokens = steps.loc[steps["prompt"] == chunk, "token"].to_numpy()
        expected = nll[torch.arange(7), torch.tensor(tokens)].numpy()
        assert np.abs(steps.loc[steps["prompt"] == chunk, "nll_reference"] - expected).max() < 3e-4
    assert etviz.decode(program(shelf, "custom"), 1, reference=base[0]).steps["prompt"].max() == 0


class Begins:
    """A tokenizer whose texts begin with the token 2."""

    bos_token_id = 2

    def encode(self, text: str) -> list[int]:
        return [2, *text.encode()]

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode()


def test_chunks_begin_as_the_text_does(shelf: Shelf, tmp_path: Path) -> None:
    """llama.cpp puts the first token of texts before each chunk, and writes the text's own."""
    text = Begins().encode("".join(prompts(2, CONTEXT)))
    chunks = [text[:CONTEXT], text[CONTEXT : 2 * CONTEXT]]
    path = write(tmp_path / "base.kld", chunks, scored(shelf, [[2, *chunk[1:]] for chunk in chunks]))
    run = etviz.decode(program(shelf, "custom"), None, reference=path, tokenizer=Begins())
    assert run.steps["kl"].abs().max() < 1e-4
    unknown = etviz.decode(program(shelf, "custom"), None, reference=path)
    assert unknown.steps.groupby("prompt")["kl"].max().to_list()[1] > 1e-3


@pytest.mark.parametrize("vocabulary", [127, 128, 1])
def test_rows_are_padded_to_an_even_number(tmp_path: Path, vocabulary: int) -> None:
    logits = torch.randn(3 * CONTEXT, vocabulary, generator=torch.Generator().manual_seed(0)).split(CONTEXT)
    read = read_kl_base(write(tmp_path / "base.kld", [[0] * CONTEXT] * 3, [item * 4 for item in logits]))
    for chunk, own in enumerate(logits):
        expected = (own[8:15] * 4).double().log_softmax(1).numpy()
        expected = np.maximum(expected, expected.max(1, keepdims=True) - 16)
        found, steps = read.log_probabilities(chunk)
        assert found.shape == (7, vocabulary)
        assert np.abs(found - expected).max() <= max(steps.max() / 2 * 1.01, 1e-6)


def test_bad_files(shelf: Shelf, base: tuple[Path, list[torch.Tensor]], tmp_path: Path) -> None:
    content = base[0].read_bytes()
    header = struct.Struct("<8s3i")
    wrong = {
        "it is not": b"gguf" + content[4:],
        "before its vocabulary.*two contexts": content[:12],
        "cut off": content[:-10],
        "vocabulary: -5": header.pack(b"_logits_", 16, -5, 2) + content[20:],
        "need": header.pack(b"_logits_", 1 << 30, 1 << 30, 1 << 30),
        "the file is empty": b"",
    }
    for message, given in wrong.items():
        path = tmp_path / "base.kld"
        path.write_bytes(given)
        with pytest.raises(ArtifactError, match=message):
            read_kl_base(path)
    with pytest.raises(ArtifactError, match="no such file"):
        etviz.decode(program(shelf, "custom"), None, reference=tmp_path / "none.kld")
    with pytest.raises(UsageError, match="number of chunks from 1 to 2"):
        etviz.decode(program(shelf, "custom"), "text", reference=base[0])
