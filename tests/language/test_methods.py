"""Programs of several methods: the calls of all in order tell whose state and whose output each one finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import etviz
from etviz.errors import UsageError
from tests.language import matrix
from tests.language.methods import (
    Call,
    Methods,
    build,
    encoder_and_decoder,
    load,
    prefill_and_decode,
    run,
    stream,
    vision_and_text,
)
from tests.shelf import Shelf

MAKERS: dict[str, Callable[[], Methods]] = {
    "prefill and decode": prefill_and_decode,
    "encoder and decoder": encoder_and_decoder,
    "stream": stream,
    "vision and text": vision_and_text,
}


def _right(shelf: Shelf, name: str) -> tuple[Path, list[Call]]:
    def make(folder: Path) -> None:
        build(MAKERS[name](), folder)
        torch.save(run(MAKERS[name](), folder / "model.pte", folder), folder / "calls.pt")

    folder = shelf.folder(f"methods-{name.replace(' ', '-')}", make)
    return folder, torch.load(folder / "calls.pt", weights_only=True)


def _wrong(methods: Methods, right: Path, folder: Path, weight: nn.Parameter) -> list[Call]:
    """Run the program with one row of a weight half as large again."""
    wrong = weight.detach().clone()
    wrong[3] *= 1.5
    was, becomes = (tensor.detach().numpy().tobytes() for tensor in (weight, wrong))
    program = (right / "model.pte").read_bytes()
    assert program.count(was) == 1
    (folder / "model.pte").write_bytes(program.replace(was, becomes))
    return run(methods, folder / "model.pte", folder)


@pytest.mark.parametrize("isolation", ["never", "always"])
@pytest.mark.parametrize("name", list(MAKERS))
def test_every_execution_of_a_sound_program_is_judged(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, name: str, isolation: str
) -> None:
    monkeypatch.setattr(etviz.options, "isolation", isolation)
    folder, calls = _right(shelf, name)
    for method in dict.fromkeys(method for method, _ in calls):
        found = load(folder, calls, method)
        own = sum(called == method for called, _ in calls)
        assert found.gaps["event_block"].nunique() == found.outputs["event_block"].nunique() == own
        assert found.outputs["matches"].all()
        assert found.first_divergence is None
        assert (found.gaps["introduced_severity"] < 10).all()


@pytest.mark.parametrize("way", matrix.WAYS)
def test_a_picture_and_text_of_other_lengths_than_the_example(shelf: Shelf, way: str) -> None:
    """LLaVA's three methods. Without inputs, a value of another length than the example's is no fault."""
    folder, calls = _right(shelf, "vision and text")
    for method in ("vision_encoder", "token_embedding", "text_decoder"):
        for given in (calls, None):
            found = matrix.load(folder, way, inputs=given, method=method)
            assert found.first_divergence is None
            assert "another shape" not in found.summary()
            if given is not None and way != "handles":
                assert found.outputs["matches"].all()


def test_an_error_of_the_picture_is_followed_into_the_text(shelf: Shelf, tmp_path: Path) -> None:
    folder, _ = _right(shelf, "vision and text")
    methods = vision_and_text()
    eye, _example = methods.modules["vision_encoder"]
    calls = _wrong(methods, folder, tmp_path, eye.get_parameter("projector.weight"))
    seen = load(folder, calls, "vision_encoder", ran=tmp_path)
    assert seen.first_divergence is not None
    assert seen.first_divergence["module"] == "projector"
    text = load(folder, calls, "text_decoder", ran=tmp_path)
    assert text.first_divergence is None
    assert "is output 0 of vision_encoder in call 2, which comes in with an error" in text.summary()
    shares = text.attribution(run=1)
    assert "% by output 0 of vision_encoder in call 2" in shares.attrs["note"]


def test_methods_that_share_a_cache_are_not_judged_without_the_calls_of_both(shelf: Shelf) -> None:
    folder, calls = _right(shelf, "prefill and decode")
    own = [values for method, values in calls if method == "decode"]
    found = load(folder, own, "decode")
    assert found.outputs["max_abs"].isna().all()
    assert "The state cache is shared with another method" in found.summary()


def test_an_error_of_the_encoder_is_followed_into_the_decoder(shelf: Shelf, tmp_path: Path) -> None:
    folder, _ = _right(shelf, "encoder and decoder")
    methods = encoder_and_decoder()
    encoder, _example = methods.modules["encode"]
    calls = _wrong(methods, folder, tmp_path, encoder.get_parameter("inward.weight"))
    encode = load(folder, calls, "encode", ran=tmp_path)
    assert encode.first_divergence is not None
    decode = load(folder, calls, "decode", ran=tmp_path)
    assert decode.first_divergence is None
    assert not decode.outputs["matches"].any()
    assert "The input heard is output 0 of encode in call 0, which comes in with an error" in decode.summary()
    shares = decode.attribution(run=1)
    assert shares.attrs["sum"] == pytest.approx(1.0, abs=0.02)
    assert "% by output 0 of encode in call 0" in shares.attrs["note"]
    exact = decode.what_if([int(row) for row in decode.gaps.index])
    assert (exact.after["max_abs"] > 0.01).all(), "the encoder's error stays where all of the decoder is exact"


def test_an_error_of_prefill_reaches_decode_through_the_shared_cache(shelf: Shelf, tmp_path: Path) -> None:
    folder, _ = _right(shelf, "prefill and decode")
    methods = prefill_and_decode()
    module, example = methods.modules["prefill"]
    other = prefill_and_decode().modules["prefill"][0]
    with torch.no_grad():
        other.get_parameter("key.weight")[3] *= 1.5
    build(Methods({**methods.modules, "prefill": (other, example)}, methods.calls), tmp_path)
    calls = run(methods, tmp_path / "model.pte", tmp_path)
    assert module is not other
    prefill, decode = (load(folder, calls, name, ran=tmp_path) for name in ("prefill", "decode"))
    assert prefill.first_divergence is not None
    assert prefill.first_divergence["module"].startswith("key")
    assert decode.first_divergence is None
    assert not decode.outputs["matches"].any()
    assert decode.attribution(run=0).attrs["sum"] == pytest.approx(1.0, abs=0.02)


def test_a_state_that_the_application_keeps_carries_its_error(shelf: Shelf, tmp_path: Path) -> None:
    folder, _ = _right(shelf, "stream")
    methods = stream()
    module, _example = methods.modules["forward"]
    calls = _wrong(methods, folder, tmp_path, module.get_parameter("again.weight"))
    found = load(folder, calls, "forward", ran=tmp_path)
    shares = found.attribution(run=2)
    assert shares.attrs["sum"] == pytest.approx(1.0, abs=0.05)
    assert set(shares["run"]) >= {1, 2}
    assert shares["share"][shares["run"] == 1].abs().sum() > 0.01


def test_calls_that_do_not_fit_are_refused(shelf: Shelf) -> None:
    folder, calls = _right(shelf, "prefill and decode")
    for given, text in (
        (calls[:-1], "inputs names 4 calls, the ETDump holds 5 executions"),
        ([("generate", calls[0][1]), *calls[1:]], "inputs names the method 'generate'; the program has"),
        ([calls[1], calls[0], *calls[2:]], r"inputs\[0\] names decode, but execution 0 is of another method"),
        ([calls[0], calls[1][1], *calls[2:]], r"inputs\[1\] must be a pair of a method's name and a tuple"),
    ):
        with pytest.raises(UsageError, match=text):
            load(folder, given, "decode")
