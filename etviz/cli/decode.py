"""`etviz decode`, and the token limits of checks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etviz.cli import artifacts as given
from etviz.cli.console import doing, out, plain_text, print_json
from etviz.errors import ArtifactError, UsageError
from etviz.json_numbers import or_none
from etviz.tensors.metrics import figure

if TYPE_CHECKING:
    from etviz.decoding.gate import TokenLimits
    from etviz.decoding.result import Decode, TokenAnswer

_LARGEST = 64 << 20

_option = partial(typer.Option, rich_help_panel="Tokens of a language model")
_COLUMNS = ("prompt", "step", "position", "text", "agrees", "margin", "margin_shift", "margin_noise", "kl", "explained")


@dataclass(frozen=True, slots=True)
class PromptText:
    prompts: tuple[Any, ...]
    tokenizer: Path | None
    reference: Path | None
    steps: int
    prefill: int | None
    limits: TokenLimits
    encoder: str | None = None
    sources: tuple[Path, ...] = ()

    @property
    def given(self) -> bool:
        return bool(self.prompts) or self.reference is not None or not self.limits.demand_nothing

    def decode(self, program: Path, method: str | None = None, *, forced: bool = True) -> Decode:
        from etviz.decoding.entry import decode

        if not self.prompts and (self.reference is None or self.reference.is_dir()):
            raise UsageError("there is no prompt; give --prompt TEXT, --ids '1 2 3' or --prompts FILE")
        options: dict[str, Any] = {"steps": self.steps, "prefill": self.prefill, "method": method, "forced": forced}
        prompts = list(self.prompts) or None
        if self.encoder is not None or self.sources:
            from etviz.artifacts.inputs import read_in_order

            options |= {"encoder": self.encoder, "sources": list(map(read_in_order, self.sources)) or None}
        return decode(program, prompts, tokenizer=self.tokenizer, reference=self.reference, **options)


def token_options(
    prompt: Annotated[list[str] | None, _option(help="A text to continue; may be repeated.")] = None,
    ids: Annotated[list[str] | None, _option(help="A prompt as token ids, '1 2 3'; may be repeated.")] = None,
    prompts: Annotated[Path | None, _option(help="A file with a prompt on each line.")] = None,
    tokenizer: Annotated[Path | None, _option(help="tokenizer.json, or a SentencePiece model.")] = None,
    reference: Annotated[
        Path | None, _option(help="Folder of a transformers model, or the file of --kl-divergence-base.")
    ] = None,
    steps: Annotated[int, _option(min=0, help="Tokens that the reference adds to a prompt.")] = 32,
    prefill: Annotated[int | None, _option(min=1, help="Tokens of a call of the prompt.")] = None,
    encoder: Annotated[str | None, _option(help="Method that reads the sources (speech, images).")] = None,
    source: Annotated[
        list[Path] | None, _option(help="The encoder's input for one text: .npy, .npz, .pt, .safetensors.")
    ] = None,
    max_kl_p99: Annotated[float | None, _option(help="Largest 99th percentile of the KL divergence, in nats.")] = None,
    max_flips: Annotated[float | None, _option(help="Most flips that noise does not explain.")] = None,
    max_perplexity_ratio: Annotated[float | None, _option(help="Largest ratio of perplexities.")] = None,
) -> PromptText:
    from etviz.decoding.gate import TokenLimits

    texts = [*(prompt or ()), *(_lines(prompts) if prompts is not None else ())]
    numbers = [_ids(text) for text in ids or ()]
    limits = TokenLimits(max_kl_p99, max_flips, max_perplexity_ratio)
    return PromptText((*texts, *numbers), tokenizer, reference, steps, prefill, limits, encoder, tuple(source or ()))


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ArtifactError(path, f"it has more than {_LARGEST:,} bytes", "give a file with a prompt on each line")
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(path, f"the prompts can't be read ({error})", "give a text file in UTF-8") from error
    if not lines:
        raise ArtifactError(path, "it holds no prompt", "write a prompt on each line")
    return lines


def _ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise UsageError(f"--ids must be numbers, found {text!r}; for example --ids '1 15 27'") from None


def decode(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM", help="A .pte, or the folder of etviz.debug.")],
    tokens: PromptText,
    report: Annotated[Path | None, typer.Option("-o", "--output", help="Write an HTML report.")] = None,
    free: Annotated[bool, typer.Option("--free", help="Stop at the first token that differs.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Name what made the first fault, and prove it.")] = False,
    top: given.TopOption = 20,
    as_json: given.JsonOption = False,
    method: given.MethodOption = None,
) -> None:
    """Compare a language model's tokens: which one flips, and whether noise explains it. A missed limit is status 1."""
    from etviz.decoding.gate import check_tokens

    run = tokens.decode(program, method, forced=not free)
    result = check_tokens(run, tokens.limits)
    if report is not None:
        with doing("writing the report"):
            run.to_html(report)
    answer = told(run.answer()) if why else {}
    steps = run.steps
    shown = steps[~steps["agrees"] | ~steps["explained"].fillna(value=False).astype(bool)] if top else steps
    if as_json:
        print_json(body(run) | {"passed": result.passed} | answer)
    else:
        for line in run.summary().splitlines():
            out.print(plain_text(line), soft_wrap=True)
        for name, text in answer.items():
            out.print(plain_text(f"{name.capitalize()}: {text}"), soft_wrap=True)
        rows = shown.head(top) if top else shown
        if len(rows):
            out.print()
            out.print(plain_text(rows[list(_COLUMNS)].to_string(index=False, float_format=figure)), soft_wrap=True)
        if len(rows) < len(shown):
            out.print(f"… and {len(shown) - len(rows)} more; --top 0 prints all positions")
        if not why and run.first_fault is not None:
            out.print("--why names what made the first fault, and proves it")
        for case in result.failures:
            out.print(f"[red]FAILED[/red] {plain_text(case.name)}: {plain_text(case.violations[0].text)}")
    if not result.passed and not tokens.limits.demand_nothing:
        raise typer.Exit(1)


def told(answer: TokenAnswer | None) -> dict[str, str]:
    if answer is None:
        return {}
    return {"culprit": answer.culprit, "cache": answer.cache, "proof": repr(answer.proof)}


def body(run: Decode) -> dict[str, Any]:
    rows = [{name: _plain(value) for name, value in row.items()} for row in run.steps.to_dict("records")]
    statistics = {
        name: {str(key): {str(of): or_none(float(value)) for of, value in row.items()} for key, row in frame.iterrows()}
        for name, frame in (("kl", run.kl), ("perplexity", run.perplexity), ("agreement", run.agreement))
    }
    return {"summary": run.summary(), **statistics, "steps": rows}


def _plain(value: Any) -> Any:
    import pandas as pd

    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value
