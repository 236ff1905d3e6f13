"""Encoder-decoders: faults of the encoder and of the cross-attention cache, and the word error rate."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import etviz
from etviz.calls.session import Session
from etviz.cli.app import app
from etviz.decoding.transcripts import word_error_rate, word_errors
from etviz.errors import UsageError
from tests.decoding.listener import END, FRAMES, START, WIDTH, WORDS, Spoken, methods, program, said
from tests.language.methods import build
from tests.shelf import Shelf

SOURCES, TEXTS = map(list, zip(*(said(seed) for seed in range(4)), strict=True))
GIVEN: dict[str, Any] = {"encoder": "encoder", "sources": SOURCES, "tokenizer": Spoken(), "steps": 7}


def _decode(folder: Path, **given: Any) -> etviz.Decode:
    return etviz.decode(folder, [[START]], **(GIVEN | given))


def _planted(shelf: Shelf, folder: Path, method: str, name: str, rows: slice, factor: float) -> Path:
    """The program with some rows of a weight changed in the `.pte` alone."""
    for kept in ("model.pte", "etrecord.bin"):
        shutil.copy(program(shelf) / kept, folder)
    module, _ = methods(shelf).modules[method]
    weight = module.get_parameter(name)
    wrong = weight.detach().clone()
    wrong[rows] *= factor
    content, before = (folder / "model.pte").read_bytes(), weight.detach().numpy().tobytes()
    assert content.count(before) == 1
    (folder / "model.pte").write_bytes(content.replace(before, wrong.numpy().tobytes()))
    return folder


@pytest.fixture(scope="module")
def run(shelf: Shelf) -> etviz.Decode:
    return _decode(program(shelf))


def test_correct_program(run: etviz.Decode) -> None:
    assert run.level == "ok", run.summary()
    assert run.first_fault is None
    assert run.steps["agrees"].all()
    assert run.steps["prompt"].nunique() == len(SOURCES)
    assert "given what the runtime's encoder returned" in run.summary()
    assert "Encoder: All 4 final outputs match the reference" in run.summary()
    assert run.encoder is not None
    assert run.encoder.first_divergence is None
    assert len(run.encoder_kl) == len(run.steps)
    assert run.encoder_kl.max() < 1e-9
    assert "Noise explains every entry" in run.cache.attrs["note"]


def test_the_reference_is_the_model(shelf: Shelf, run: etviz.Decode) -> None:
    encoder, _ = methods(shelf).modules["encoder"]
    decoder, _ = methods(shelf).modules["text_decoder"]
    whole: Any = decoder
    for number, sequence in enumerate(run.sequences):
        ids = torch.tensor([sequence.ids[:-1]])
        expected = whole.whole(ids, encoder(SOURCES[number]))[0]
        torch.testing.assert_close(sequence.reference, expected, atol=1e-4, rtol=1e-4)


def test_transcripts_of_a_correct_program(run: etviz.Decode) -> None:
    found = run.transcripts(TEXTS, stop=END)
    assert found["reference"].tolist() == TEXTS
    assert found["runtime"].tolist() == TEXTS
    assert found["words"].tolist() == [len(text.split()) for text in TEXTS]
    assert (found[["errors", "wer", "errors_reference", "wer_reference"]] == 0).all(axis=None)
    assert run.transcripts(["one", *TEXTS[1:]], stop=END, normalize=str.upper)["wer"].iloc[0] > 0


def test_fault_of_the_encoder(shelf: Shelf, tmp_path: Path) -> None:
    """The decoder's logits are explained, given the encoder's; the encoder is named, and what it adds to the logits."""
    found = _decode(_planted(shelf, tmp_path, "encoder", "inward.weight", slice(0, 16), -1.0))
    assert found.first_fault is None, found.summary()
    assert found.level == "bad"
    assert found.encoder is not None
    assert found.encoder.first_divergence is not None
    assert found.encoder.first_divergence["reference_ops"] == "linear, add"
    assert found.encoder.first_divergence["instruction"] == 0
    lines = found.summary().splitlines()
    assert lines[0].startswith("Encoder: ")
    assert "Noise explains every difference of the logits, given what the runtime's encoder returned." in lines
    assert found.encoder_kl.max() > 0.01
    # the same by the eager model
    encoder, decoder = (methods(shelf).modules[name][0] for name in ("encoder", "text_decoder"))
    whole: Any = decoder
    sequence = found.sequences[1]
    heard = sequence.calls[0].inputs[1]
    ids = torch.tensor([sequence.ids[:-1]])
    exact, own = (whole.whole(ids, given)[0].double().log_softmax(1) for given in (encoder(SOURCES[1]), heard))
    rows = [at for at, row in enumerate(found.steps["prompt"]) if row == 1]
    assert found.encoder_kl[rows].tolist() == pytest.approx(
        (exact.exp() * (exact - own)).sum(1).tolist(), rel=1e-3, abs=1e-6
    )


def test_fault_in_the_cross_attention_cache(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _decode(_planted(shelf, tmp_path, "text_decoder", "value.weight", slice(0, 16), -1.0))
    assert found.level == "bad"
    assert found.encoder is not None
    assert found.encoder.first_divergence is None
    assert found.first_fault is not None
    assert found.first_fault["step"] == 0
    later = int(found.faulty_flips["step"].iloc[-1]) if len(found.faulty_flips) else 3
    why = found.why(later, int(found.faulty_flips["prompt"].iloc[-1]) if len(found.faulty_flips) else 0)
    assert "value" in why["name"].iloc[0]
    assert why["step"].iloc[0] == 0, "the call that filled the cache"
    # free text takes an execution for each token that the reference would not choose
    executions = []
    plain = Session.runtime
    monkeypatch.setattr(Session, "runtime", lambda self, calls: executions.append(len(calls)) or plain(self, calls))
    spoken = found.transcripts(TEXTS, stop=END)
    assert spoken["reference"].tolist() == TEXTS
    assert spoken["wer"].max() > 0
    monkeypatch.undo()
    drafts = 0
    for number, row in spoken.iterrows():
        ids, flips = _one_by_one(found, int(str(number)))
        assert row["runtime"] == Spoken().decode(ids)
        assert row["wer"] == pytest.approx(_alignment(TEXTS[int(str(number))], row["runtime"]) / row["words"])
        drafts += flips
    assert len(executions) <= drafts


def _one_by_one(run: etviz.Decode, number: int) -> tuple[list[int], int]:
    """The runtime's text from an execution for each token, and the tokens that differ from the teacher's after them."""
    session: Session = run._session  # pyright: ignore[reportPrivateUsage]
    driver, ids, flips = session.drivers[number], [START], 0
    while len(ids) <= GIVEN["steps"]:
        calls = [driver.step(ids[: at + 1], at) for at in range(len(ids))]
        inputs = [list(call.inputs) for call in calls]
        evaluator = session.replay.fresh()
        reference = [evaluator.run(values, replay=False)[0] for values in inputs][-1]
        token = int(session.runtime(calls)[-1][-1].argmax())
        flips += token != int(reference.flatten().argmax())
        if token == END:
            break
        ids.append(token)
    return ids[1:], flips


def _alignment(reference: str, text: str) -> int:
    """The fewest edits, by trying all."""
    wanted, found = tuple(reference.split()), tuple(text.split())

    @cache
    def fewest(at: int, place: int) -> int:
        if at == len(wanted) or place == len(found):
            return len(wanted) - at + len(found) - place
        replaced = fewest(at + 1, place + 1) + (wanted[at] != found[place])
        return min(replaced, 1 + fewest(at + 1, place), 1 + fewest(at, place + 1))

    return fewest(0, 0)


def test_word_errors_are_the_fewest_edits() -> None:
    generator = torch.Generator().manual_seed(3)
    for _ in range(200):
        sizes = torch.randint(0, 8, (2,), generator=generator).tolist()
        one, two = (" ".join("abc"[at] for at in torch.randint(0, 3, (size,), generator=generator)) for size in sizes)
        assert word_errors(one, two) == (_alignment(one, two), sizes[0])
        assert word_error_rate(one, two) == pytest.approx(
            _alignment(one, two) / sizes[0] if sizes[0] else float("nan"), nan_ok=True
        )


@pytest.mark.parametrize("stale", [False, True])
def test_stale_cross_attention_cache(shelf: Shelf, tmp_path: Path, stale: bool) -> None:
    """A cache that only the first utterance fills, as in huggingface/optimum-executorch#187."""
    if stale:
        build(methods(shelf, stale=True), tmp_path)
    folder = tmp_path if stale else program(shelf)
    found = etviz.invariants(folder, [[START, 2, 3], [START, 4]], encoder="encoder", sources=SOURCES[:2])
    assert found.holds != stale, found.summary()
    if stale:
        assert set(found.broken["invariant"]) == {"after another sequence = alone"}
        assert set(found.broken["position"]) == {0}


def test_study_of_word_error_rate(shelf: Shelf, run: etviz.Decode) -> None:
    options = {**GIVEN, "expected": TEXTS, "stop": END}
    task = etviz.decode.wer(**options)  # pyright: ignore[reportFunctionMemberAccess]
    study = etviz.study(program(shelf), [[START]], task=task)
    assert study.inputs["status"].tolist() == ["compared"] * len(TEXTS), study.summary()
    assert study.inputs["wer"].tolist() == [0.0] * len(TEXTS)
    assert study.inputs["words"].tolist() == [len(text.split()) for text in TEXTS]
    assert study.statistics["value"]["wer"] == 0
    assert "Word error rate of the runtime: 0" in study.summary()
    wrong = etviz.study(program(shelf), [[START]], task=task(expected=["one two", *TEXTS[1:]]))
    errors = _alignment("one two", TEXTS[0])
    assert wrong.statistics["value"]["wer"] == pytest.approx(
        errors / (2 + sum(len(text.split()) for text in TEXTS[1:]))
    )
    assert wrong.worst_inputs(1).index.tolist() == [0]
    assert wrong.open_input(2).steps["token"].tolist() == run.steps["token"][run.steps["prompt"] == 2].tolist()


def test_another_reference_hears_the_source(shelf: Shelf) -> None:
    encoder, decoder = (methods(shelf).modules[name][0] for name in ("encoder", "text_decoder"))
    whole: Any = decoder
    found = _decode(program(shelf), reference=lambda ids, features: whole.whole(ids, encoder(features)), noise=False)
    assert found.steps["agrees"].all()
    assert found.steps["kl"].max() < 1e-6


def test_bad_arguments(shelf: Shelf) -> None:
    folder = program(shelf)
    for given, text in (
        ({"sources": None}, "encoder names the method that reads the sources: give both, or none"),
        ({"encoder": None}, "encoder names the method"),
        ({"encoder": "encode"}, "the program has no method 'encode'; it has encoder, text_decoder"),
        ({"sources": [torch.zeros(1, FRAMES, 3)]}, r"source 0: input features must have the shape \(1, 7, 8\)"),
        ({"encoder": "text_decoder"}, "encoder: text_decoder keeps a state"),
    ):
        with pytest.raises(UsageError, match=text):
            _decode(folder, **given)
    with pytest.raises(UsageError, match="sources has 4 items for 2 prompts"):
        etviz.decode(folder, [[START], [START]], **GIVEN)
    with pytest.raises(UsageError, match=rf"its encoder gives|heard: float32 \[1, {FRAMES}, {WIDTH}\].*no driver"):
        etviz.decode(folder, [[START]], method="text_decoder")
    with pytest.raises(UsageError, match="a transcript needs tokenizer="):
        _decode(folder, tokenizer=None, noise=False).transcripts()
    assert len(WORDS) == 12


def test_the_command_line(shelf: Shelf, tmp_path: Path) -> None:
    torch.save(SOURCES[0], tmp_path / "said.pt")
    options = ["--ids", str(START), "--steps", "3", "--encoder", "encoder"]
    command = ["decode", str(program(shelf)), *options]
    found = CliRunner().invoke(app, [*command, "--source", str(tmp_path / "said.pt")])
    assert found.exit_code == 0, found.output
    assert "given what the runtime's encoder returned" in " ".join(found.output.split())
    missing = CliRunner().invoke(app, command)
    assert missing.exit_code != 0
    assert "give both, or none" in str(missing.exception or missing.output)
