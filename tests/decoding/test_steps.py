"""`etviz.decode`: the table of steps, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

import etviz
from etviz.errors import ArtifactError, UsageError
from tests.decoding.trained import ROOM, Characters, module, program, prompts
from tests.shelf import Shelf

Numbers = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def run(shelf: Shelf) -> etviz.Decode:
    """The trained model in 8da4w, two prompts."""
    return etviz.decode(program(shelf, "custom_8da4w"), prompts(2), tokenizer=Characters(), steps=16)


def log_softmax(logits: Numbers) -> Numbers:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def test_measures_equal_numpy(run: etviz.Decode) -> None:
    for at, row in run.steps.iterrows():
        p, q = (side.numpy().astype(np.float64) for side in run.logits(int(str(at))))
        log_p, log_q = log_softmax(p), log_softmax(q)
        best = int(np.argmax(p))
        others = [word for word in range(len(p)) if word != best]
        expected = {
            "predicted_reference": best,
            "predicted_runtime": int(np.argmax(q)),
            "margin": p[best] - max(p[others]),
            "margin_shift": (q[best] - max(q[others])) - (p[best] - max(p[others])),
            "kl": (np.exp(log_p) * (log_p - log_q)).sum(),
            "entropy": -(np.exp(log_p) * log_p).sum(),
            "rank": 1 + int((q > q[best]).sum()),
            "nll_reference": -log_p[row["token"]],
            "nll_runtime": -log_q[row["token"]],
            "top5_overlap": len({*np.argsort(p)[-5:]} & {*np.argsort(q)[-5:]}) / 5,
            "max_abs": np.abs(p - q).max(),
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected, abs=1e-6, rel=1e-6)


def test_the_reference_is_the_model(shelf: Shelf, run: etviz.Decode) -> None:
    model = module(shelf, "custom_8da4w")
    for number, sequence in enumerate(run.sequences):
        rows = run.steps[run.steps["prompt"] == number]
        with torch.no_grad():
            for position, at in zip(rows["position"], rows.index, strict=True):
                token = torch.tensor([[sequence.ids[position]]])
                expected = model(token, {"input_pos": torch.tensor([position])}).flatten()
                torch.testing.assert_close(run.logits(at)[0], expected, atol=1e-4, rtol=1e-4)


def test_the_tokens_are_those_that_the_reference_chooses(run: etviz.Decode) -> None:
    steps = run.steps
    generated = steps[steps["generated"]]
    assert len(generated) == 2 * 16
    assert (generated["token"] == generated["predicted_reference"]).all()
    assert "".join(steps.loc[(steps["prompt"] == 0) & ~steps["generated"], "text"]) == prompts(1)[0][1:]


def test_statistics(run: etviz.Decode) -> None:
    steps = run.steps
    assert run.kl["value"]["mean"] == pytest.approx(steps["kl"].mean())
    assert run.kl["value"]["p99"] == pytest.approx(np.percentile(steps["kl"], 99))
    assert run.perplexity["value"]["runtime"] == pytest.approx(np.exp(steps["nll_runtime"].mean()))
    # the bootstrap of a mean is the standard error that the central limit theorem gives
    assert run.kl["standard_error"]["mean"] == pytest.approx(steps["kl"].std() / np.sqrt(len(steps)), rel=0.15)
    assert run.agreement["value"]["top1"] == steps["agrees"].mean()
    # (z²p(1 − p)/ñ)½ at z = 1 around the centre (k + 2)/(n + 4); it is not 0 where all agree
    centre = (steps["agrees"].sum() + 2) / (len(steps) + 4)
    assert run.agreement["standard_error"]["top1"] == pytest.approx(np.sqrt(centre * (1 - centre) / (len(steps) + 4)))
    assert run.agreement["standard_error"]["top1"] > 0


def test_noise_explains_a_correct_program(run: etviz.Decode) -> None:
    steps = run.steps
    assert run.first_fault is None
    assert steps["margin_noise"].gt(0).all()
    assert steps.loc[~steps["agrees"], "explained"].all()
    assert run.summary().startswith("Noise explains every difference")


def test_at_and_why(shelf: Shelf) -> None:
    run = etviz.decode(program(shelf, "custom"), prompts(1), tokenizer=Characters(), steps=2)
    sequence, step = run.sequences[0], 8
    inspection = run.at(step)
    assert inspection.gaps["input_index"].max() == step
    at = next(at for at, item in enumerate(sequence.positions) if item.call == step)
    outputs = list(inspection.analysis.findings.compared.runs[step].comparison.runtime_outputs)
    torch.testing.assert_close(outputs[0].flatten(), run.logits(at)[1])
    why = run.why(step)
    assert why.attrs["sum"] == pytest.approx(1, abs=0.05)
    assert why["run"].nunique() > 1


def test_prefill_and_free_running(shelf: Shelf) -> None:
    folder = program(shelf, "custom_8da4w")
    free = etviz.decode(folder, prompts(1), tokenizer=Characters(), steps=16, forced=False)
    differs = free.steps[free.steps["generated"] & ~free.steps["agrees"]]
    assert len(differs) <= 1
    assert differs.empty or differs.index[0] == free.steps.index[-1]


BAD = {
    "no tokenizer": ({"prompts": "text"}, "give tokenizer="),
    "no tokens": ({"prompts": [[]]}, "has no tokens"),
    "a token too large": ({"prompts": [[5, 999]]}, "vocabulary has 128"),
    "a negative token": ({"prompts": [[-1, 3]]}, "has the token -1"),
    "too long": (
        {"prompts": [[1] * ROOM], "steps": 9},
        f"can't go on at position {ROOM}, and {ROOM + 8} positions are needed",
    ),
    "a tokenizer that is none": ({"prompts": "a", "tokenizer": 3}, "encode and decode"),
    "a driver that fails": ({"prompts": [[1]], "driver": lambda ids, position: 1 / 0}, "driver: it fails"),
    "a driver that is none": ({"prompts": [[1]], "driver": 4}, "driver must be"),
    "chunks that are too large": ({"prompts": [[1, 2]], "prefill": 2}, "takes 1 to 1"),
    "steps": ({"prompts": [[1]], "steps": -1}, "steps must be"),
    "another vocabulary": ({"prompts": [[1]], "reference": lambda ids: torch.zeros(1, ids.shape[1], 7)}, "128 tokens"),
    "a reference that fails": ({"prompts": [[1]], "reference": lambda ids: [][0]}, "reference: it fails"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(shelf: Shelf, name: str) -> None:
    given, message = BAD[name]
    with pytest.raises(UsageError, match=message):
        etviz.decode(program(shelf, "custom_8da4w"), **{"steps": 2, **given})


class Masked(torch.nn.Module):
    """Takes more than tokens and a position; its logits are NaN after token 7."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 16)

    def forward(self, tokens: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        logits = self.embedding(tokens).cumsum(1) * scale
        return torch.where((tokens == 7)[..., None], logits * torch.inf * 0, logits)


def test_a_driver_to_paste_fits_the_signature() -> None:
    with pytest.raises(UsageError, match=r"forward\(tokens, scale\).*\n.*: \(torch.tensor\(\[ids\]\), scale,\)"):
        etviz.decode(Masked(), [[1]])
    exported = torch.export.export(Masked(), (torch.tensor([[1]]), torch.ones(1)))
    with pytest.raises(UsageError, match="no driver is known") as refused:
        etviz.decode(exported, [[1, 2]], steps=2)
    pasted = eval(str(refused.value).rpartition("driver=")[2], {"torch": torch})
    assert len(etviz.decode(exported, [[1, 2]], steps=2, driver=pasted).steps) == 3


def test_nan_is_neither_a_flip_nor_explained() -> None:
    run = etviz.decode(Masked(), [[1, 7, 3]], steps=2, driver=lambda ids, at: (torch.tensor([ids]), torch.ones(1)))
    assert run.steps["explained"].isna().tolist() == [False, True, False, False]
    assert run.first_flip is None
    assert run.first_fault is not None
    assert run.first_fault["position"] == 1
    assert run.agreement["value"]["top1"] == 1.0
    assert run.steps["kl"].dropna().ge(0).all()
    assert run.summary().splitlines()[:3] == [
        "The logits hold NaN or Inf at prompt 0, step 1, position 1.",
        "The best tokens agree at 3 of 3 positions (100 ± 20 %).",
        "1 position left out: NaN or Inf among the logits.",
    ]


def test_a_tokenizer_file_that_is_damaged(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ArtifactError, match="no tokenizer"):
        etviz.decode(program(shelf, "custom_8da4w"), "a", tokenizer=tmp_path / "tokenizer.json")


def test_hidden_characters_are_shown() -> None:
    from etviz.calls.tokens import shown

    assert shown("a\u202eb\x1b[0m\n") == "a<U+202E>b<U+001B>[0m⏎"


def test_the_noise_can_wait(shelf: Shelf) -> None:
    given = program(shelf, "custom_8da4w"), prompts(1)
    at_once = etviz.decode(*given, tokenizer=Characters(), steps=4)
    first = etviz.decode(*given, tokenizer=Characters(), steps=4, noise=False)
    assert first.steps["explained"].isna().all()
    assert first.summary().startswith("The noise of the logits is not known")
    first.compute_noise()
    assert first.steps["margin_noise"].to_list() == pytest.approx(at_once.steps["margin_noise"].to_list())


def test_limits_of_tokens(shelf: Shelf, run: etviz.Decode) -> None:
    from etviz.decoding.gate import TokenLimits, check_tokens
    from etviz.gate.formats import to_markdown

    assert check_tokens(run, TokenLimits(0.5, 0, 1.5)).passed
    worst = run.steps["kl"].max()
    failed = check_tokens(run, TokenLimits(max_kl_p99=float(worst) / 1e3, max_perplexity_ratio=0.5))
    assert [case.name for case in failed.failures] == ["KL divergence", "perplexity"]
    assert "the 99th percentile of the KL divergence is" in to_markdown(failed)
    with pytest.raises(UsageError, match="0 or more"):
        TokenLimits(max_flips=-1)


def test_the_command_line(shelf: Shelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from etviz.cli.app import app

    folder = program(shelf, "custom_8da4w")
    given = ["--ids", "72 101 108", "--steps", "2"]
    page = tmp_path / "run.html"
    capsys.readouterr()  # the export prints
    app(["decode", str(folder), *given, "--json", "-o", str(page)], standalone_mode=False)
    assert "Noise explains every difference" in page.read_text(encoding="utf-8")
    body = json.loads(capsys.readouterr().out)
    assert len(body["steps"]) == 4
    assert body["steps"][0]["token"] == 101
    junit = tmp_path / "tokens.xml"
    limits = ["--max-kl-p99", "0.5", "--max-flips", "0", "--junit", str(junit)]
    app(["check", str(folder / "model.pte"), *given, *limits], standalone_mode=False)
    assert 'name="KL divergence"' in junit.read_text()
    assert "checks passed" in capsys.readouterr().out
    failing = ["check", str(folder / "model.pte"), *given, "--max-perplexity-ratio", "0", "--junit", str(junit)]
    assert app(failing, standalone_mode=False) == 1
    assert "the perplexity is" in junit.read_text()
