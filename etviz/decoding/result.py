"""`Decode`: the tokens of a language model at reference and runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
import torch
from torch.utils._pytree import tree_leaves
from tqdm.auto import tqdm

from etviz.analysis.analysis import Analysis
from etviz.artifacts.files import check_target, write_file
from etviz.artifacts.program.program import read_program
from etviz.artifacts.scratch import Scratch
from etviz.calls.driver import Call, ends_of
from etviz.calls.logits import logits_of
from etviz.calls.session import Session
from etviz.calls.tokens import Tokenizer
from etviz.decoding.cache import caches, first_beyond, table
from etviz.decoding.forced import logits_of_calls, noise_of_logits, outputs_of
from etviz.decoding.measures import PERCENTILES, measures, share, with_errors
from etviz.decoding.one_prompt import Own
from etviz.decoding.sequence import Decoded
from etviz.decoding.transcripts import transcripts
from etviz.errors import EtvizError, UsageError
from etviz.evidence.subject import Subject, inspect_runs
from etviz.explain.attribution.shares import TOLERANCE, Progress
from etviz.inspection import Inspection
from etviz.tensors.metrics import NAN, THRESHOLD, figure
from etviz.text import measured
from etviz.view.pages.html_tables import tokens_fragment, tokens_summary
from etviz.view.pages.report_page import check_tensors, framed, report_page
from etviz.view.payload.program_payload import build_payload, empty_payload
from etviz.view.payload.token_maps import Map, layer_map, tokens_wire
from etviz.view.payload.wire import MessageBuffers
from etviz.view.widget.shown import Shown
from etviz.view.widget.state import ViewState

Place = tuple[int, int]
"""Prompt and step of a call."""

_HEIGHT: Final = 900
_LARGEST: Final = 2 << 30
"""Maximum bytes that the calls of one step may log."""
_LOGITS: Final = "the logits"


@dataclass(frozen=True, slots=True)
class TokenWhatIf:
    """The token of a step if some values had been exact.

    Attributes
    ----------
    step
        Number of the call.
    names
        Rows whose values were exact.
    texts, tokens
        The best token of the reference, of the runtime, and of the runtime with these values.
    kl_before, kl_after
        KL divergence from the reference in nats.
    """

    step: int
    names: tuple[str, ...]
    texts: tuple[str, ...]
    tokens: tuple[int, ...]
    kl_before: float
    kl_after: float

    def __repr__(self) -> str:
        reference, before, after = self.tokens
        again = "" if after == before else " again" if after == reference else " now"
        expected, had, now = map(repr, self.texts)
        return (
            f"With the correct value of {', '.join(self.names)}, the token of step {self.step} is{again} {now} "
            f"(runtime {had}, reference {expected}; KL {self.kl_before:.3g} → {self.kl_after:.3g} nats)."
        )


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """The `culprit` of a fault and the first bad entry of the `cache`, in words; and the `proof` by its first row."""

    culprit: str
    cache: str
    proof: TokenWhatIf


class Card(Protocol):
    def wire(self) -> dict[str, Any]: ...
    def to_fragment(self) -> str: ...


class DecodeView(ViewState):
    def __init__(
        self, decode: Decode, call: Place | None = None, opened: dict[Place, DecodeView] | None = None
    ) -> None:
        self.decode, self.call = decode, call
        self._opened: dict[Place, DecodeView] = {} if opened is None else opened
        super().__init__(None if call is None else decode.at(call[1], call[0]).analysis)
        self.height = _HEIGHT

    @property
    def title(self) -> str:
        return self.decode.title

    @property
    def known_digest(self) -> None:
        """The verdict is that of the tokens."""

    @property
    def analyses(self) -> Sequence[Analysis]:
        return () if self._analysis is None else (self._analysis,)

    @property
    def methods(self) -> list[str]:
        return [_name_of(self.call)]

    @property
    def rows(self) -> int:
        return 0 if self._analysis is None else super().rows

    @property
    def columns(self) -> set[str]:
        return {self.sort_by} if self._analysis is None else super().columns

    @property
    def opened(self) -> list[DecodeView]:
        return [self._opened[call] for call in sorted(self._opened)]

    def state_of(self, name: str) -> DecodeView:
        """``prompt:step``; the call runs again with every value logged."""
        prompt, _, step = name.partition(":")
        if not (prompt.isdecimal() and step.isdecimal() and len(name) < 20):
            raise UsageError(f"a call is named by prompt and step, such as 0:5; found {name[:40]!r}")
        call = int(prompt), int(step)
        if call not in self._opened:
            self._opened[call] = DecodeView(self.decode, call, self._opened)
        return self._opened[call]

    def attribute(self, params: dict[str, Any], progress: Callable[[int, int], None]) -> None:
        if self.call is not None:
            self.decode.attribute(self.call[1], self.call[0], progress)

    def payload(self) -> tuple[dict[str, Any], list[bytes]]:
        verdict, level = self.decode.summary().splitlines(), self.decode.level
        if self._analysis is None:
            result, data = empty_payload(self.title, level, verdict)
        else:
            result, data = build_payload(self.analysis)
        return self.with_tokens(result, data)

    def with_tokens(self, result: dict[str, Any], data: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        decode, buffers = self.decode, MessageBuffers(data)
        maps = [one for prompt in range(len(decode.sequences)) if (one := self._layers(prompt)) is not None]
        card = None if decode.card is None else decode.card.wire()
        tokens = tokens_wire(decode.told_steps(), buffers, self.call, decode.summary(), maps, self._caches(), card)
        return result | {"tokens": tokens, "method": _name_of(self.call)}, buffers.data

    def _layers(self, prompt: int) -> Map | None:
        sequence = self.decode.sequences[prompt]
        gaps: list[tuple[int, pd.DataFrame]] = []
        for one in self.opened:
            if one.call is not None and one.call[0] == prompt:
                runs = len(one.analysis.tables.compared.runs)
                gaps.append((one.call[1] + 1 - runs, one.analysis.gaps))
        return layer_map(prompt, len(sequence.calls), gaps)

    def _caches(self) -> list[Map]:
        known = self.decode.known_cache
        if known is None or known.empty:
            return []
        table = known.pivot_table("severity", "layer", "position", "max", dropna=False)
        return [Map(int(known["prompt"].iloc[0]), [f"layer {layer}" for layer in table.index], table.to_numpy(float))]

    def static_html(self) -> str:
        decode = self.decode
        return tokens_fragment(self.title, decode.level, decode.summary(), decode.told_steps(), self._card)

    @property
    def _card(self) -> str:
        return "" if self.decode.card is None else self.decode.card.to_fragment()

    def embedded_html(self) -> str:
        return framed(self.title, self.height, lambda tensors: self.page(tensors, self.title), self.static_html())

    def page(self, tensors: str, title: str) -> bytes:
        shown = self.opened or [self.state_of(_name_of(self.decode.to_open))]
        return report_page(
            shown[0].analysis,
            tensors,
            title,
            summary=tokens_summary(
                title, self.decode.level, self.decode.summary(), self.decode.told_steps(), self._card
            ),
            others=[one.analysis for one in shown[1:]],
            names=[_name_of(one.call) for one in shown],
            adds=[one.with_tokens for one in shown],
        )


class Decode(Shown):
    """The tokens of a language model at reference and runtime, from `etviz.decode`. A notebook shows it as a view.

    Attributes
    ----------
    sequences
        By prompt.
    view
        State that all its views share.
    card
        An `etviz.PortCard` that the view and the report show, or None.
    """

    view: DecodeView
    sequences: tuple[Decoded, ...]
    card: Card | None = None

    def __init__(
        self,
        session: Session,
        sequences: Sequence[Decoded],
        tokenizer: Tokenizer,
        folder: Scratch,
        *,
        own: Own | None = None,
        foreign: bool = False,
    ) -> None:
        self.sequences = tuple(sequences)
        self._own = own
        self._foreign = foreign  # the reference is not the program's own
        self._session, self._tokenizer, self._folder = session, tokenizer, folder
        self._inspections: dict[tuple[int, int], Inspection] = {}
        self._cache: tuple[int, pd.DataFrame] | None = None
        super().__init__(DecodeView(self))

    @cached_property
    def encoder(self) -> Inspection | None:
        """The Inspection of the encoder, with an execution for each source; None for a program without one.

        `UsageError` if the log would be too large; `ExecutionError` if the run fails.
        """
        heard = self._session.encoder
        if heard is None:
            return None
        what = f"the encoder's {_times(len(heard.sources), 'execution')} have to be logged"
        return self._logged(heard.subject, heard.sources, f"{heard.subject.title}, encoder", what, "Give fewer sources")

    def compute_noise(self) -> None:
        """Measure the noise of the logits, unless it is known; `PairingError` if the reference can't be evaluated."""
        items = []
        with tqdm(total=len(self.sequences), desc="noise", unit="prompt", leave=False, delay=1) as bar:

            def step(done: int, total: int) -> None:
                bar.update(round(len(items) + done / total, 2) - bar.n)

            for decoded in self.sequences:
                calls = [tree_leaves(call.inputs) for call in decoded.calls]
                given = calls, decoded.runtime.shape[1], decoded.peak
                noise = decoded.noise or noise_of_logits(self._session.replay, *given, step)
                items.append(replace(decoded, noise=noise))
        self.sequences = tuple(items)
        self.__dict__.pop("_steps", None)

    @cached_property
    def _steps(self) -> pd.DataFrame:
        tables = [decoded.table(prompt, self._tokenizer) for prompt, decoded in enumerate(self.sequences)]
        return pd.concat(tables, ignore_index=True)

    @property
    def steps(self) -> pd.DataFrame:
        """A row for each position that has logits.

        ``prompt``, ``step`` (number of the call), ``position``; ``token`` and ``text`` of the token that follows;
        ``predicted_reference``, ``predicted_runtime``, ``agrees``; ``margin`` (the reference's best logit minus the
        second), ``margin_shift`` (its change at the runtime), ``margin_noise`` (noise of that shift), ``explained``
        (whether the shift is within 3 times its noise; NA where one is unknown); ``kl`` (reference ‖ runtime),
        ``entropy``, ``nll_reference`` and ``nll_runtime``, all in nats; ``rank`` of the reference's token at the
        runtime, 1 for the best; ``top5_overlap``, a share; ``max_abs`` of the logits; ``severity``, RMSE of the logits
        over their noise; ``generated``, whether the reference chose the token.
        """
        return self._steps.copy()

    @property
    def title(self) -> str:
        return self._session.subject.title

    @property
    def level(self) -> str:
        """``bad`` if rounding does not explain a row of `steps`, ``unknown`` if the noise is not known, else ``ok``."""
        levels = {self._about_encoder[0], "bad" if self._at_fault.any() else "ok"}
        unknown = bool(self._steps["severity"].isna().any()) or bool(levels & {"unknown", "warn"})
        return "bad" if "bad" in levels else "unknown" if unknown else "ok"

    @property
    def _about_encoder(self) -> tuple[str, str]:
        if self._session.encoder is None:
            return "ok", ""
        if "encoder" not in self.__dict__ and bool(self._steps["severity"].isna().any()):
            return "unknown", "not compared yet; run.encoder compares it"
        try:
            digest = self.encoder.analysis.digest if self.encoder is not None else None
        except EtvizError as error:
            return "unknown", f"not compared: {error}"
        return ("ok", "") if digest is None else (digest.level, digest.verdict)

    def told_steps(self) -> pd.DataFrame:
        """`steps` with the tokens that each side prefers as text."""
        steps = self.steps
        for side in ("reference", "runtime"):
            steps[f"text_{side}"] = [self._tokenizer.text(int(token)) for token in steps[f"predicted_{side}"]]
        return steps.assign(at_fault=self._at_fault, agrees=~self.flips)

    def to_html(self, path: str | os.PathLike[str], tensors: str = "histograms", title: str | None = None) -> Path:
        """Write a report: the tokens, and the rows of every call whose view was opened, else of `to_open`.

        Parameters are those of `Inspection.to_html`; so are the errors, and `ExecutionError` if the call's run fails.
        """
        check_tensors(tensors)
        target = check_target(path, "the report")
        page = self.view.page(tensors, title or self.title)
        return write_file(target, "the report", page)

    @property
    def to_open(self) -> tuple[int, int]:
        """Prompt and step of the first fault, else of the first flip, else of the largest KL divergence."""
        row = self.first_fault if self.first_fault is not None else self.first_flip
        row = self._steps.iloc[int(self._steps["kl"].fillna(np.inf).argmax())] if row is None else row
        return int(row["prompt"]), int(row["step"])

    @property
    def first_flip(self) -> pd.Series[Any] | None:
        """The first row of `steps` at which the best tokens differ, or None."""
        return _first(self._steps, self.flips)

    @property
    def flips(self) -> pd.Series[Any]:
        """By row of `steps`: whether the best tokens differ; false where logits hold NaN or Inf."""
        return ~self._steps["agrees"] & self._steps["kl"].notna()

    @property
    def first_fault(self) -> pd.Series[Any] | None:
        """The first row of `steps` whose logits differ by more than noise explains, or None."""
        return _first(self._steps, self._at_fault)

    @property
    def _at_fault(self) -> pd.Series[Any]:
        steps = self._steps
        unexplained = self.flips & ~steps["explained"].fillna(value=True).astype(bool)
        return (steps["severity"] >= THRESHOLD) | unexplained | steps["kl"].isna()

    @property
    def faulty_flips(self) -> pd.DataFrame:
        """The rows of `steps` at which the best tokens differ and noise does not explain it."""
        return self._steps[self.flips & ~self._steps["explained"].fillna(value=True).astype(bool)].copy()

    @property
    def kl(self) -> pd.DataFrame:
        """``mean``, ``p50``, ``p90``, ``p99`` and ``max`` of the KL divergence in nats, with standard errors."""
        statistics: dict[str, Any] = {"mean": lambda values: values.mean(0)}
        statistics |= {f"p{at}": lambda values, at=at: np.percentile(values, at, axis=0) for at in PERCENTILES}
        statistics["max"] = lambda values: values.max(0)
        return with_errors(self._steps["kl"].to_numpy(), statistics)

    @property
    def perplexity(self) -> pd.DataFrame:
        """exp(mean negative log likelihood): ``reference``, ``runtime`` and their ``ratio``, with standard errors.

        All rows of `steps` count, prompts and generated tokens.
        """
        both = self._steps[["nll_reference", "nll_runtime"]].to_numpy()
        return with_errors(
            both,
            {
                "reference": lambda values: np.exp(values[..., 0].mean(0)),
                "runtime": lambda values: np.exp(values[..., 1].mean(0)),
                "ratio": lambda values: np.exp((values[..., 1] - values[..., 0]).mean(0)),
            },
        )

    @property
    def agreement(self) -> pd.DataFrame:
        """Share of rows at which the best tokens agree: ``top1``, with its standard error.

        Rows whose logits hold NaN or Inf do not count.
        """
        known = self._steps.loc[self._steps["kl"].notna(), "agrees"]
        return pd.DataFrame.from_dict({"top1": share(known.to_numpy(dtype=float))}, orient="index")

    @cached_property
    def encoder_kl(self) -> pd.Series[float]:
        """What the encoder's differences do to the logits: KL divergence in nats, by row of `steps`.

        It is that of the reference's decoder with the runtime's encoder from the one with the reference's. Empty
        without an encoder, without its reference, and with a `reference` of another kind.
        """
        replay = None if self.encoder is None else self.encoder.analysis.findings.compared.replay
        if replay is None or self._session.encoder is None or self._foreign:
            return pd.Series(dtype="float64")
        divergences: list[float] = []
        for number, outputs in enumerate(outputs_of(replay, self._session.encoder.sources)):
            driver, decoded = self._session.make(number, outputs), self.sequences[number]
            exact = logits_of_calls(
                self._session.replay,
                [tree_leaves(driver.call(call.ids, call.position).inputs) for call in decoded.calls],
            )
            rows = torch.stack([exact[place.call][place.row] for place in decoded.positions])
            divergences += measures(
                rows, decoded.reference, [decoded.ids[place.position + 1] for place in decoded.positions]
            )["kl"].tolist()
        return pd.Series(divergences, dtype="float64")

    def transcripts(
        self,
        expected: Sequence[str] | None = None,
        *,
        stop: int | Sequence[int] | None = None,
        normalize: Callable[[str], str] | None = None,
    ) -> pd.DataFrame:
        """What each side writes on its own after each prompt, and its word error rate.

        Unlike in `steps`, the runtime goes on from its own tokens. That takes as many executions as it has tokens which
        the reference would not choose.

        Parameters
        ----------
        expected
            The right text for each prompt; by default what the reference writes.
        stop
            Tokens that end a text; by default those of the program's ``get_eos_ids`` or ``get_eos_id``.
        normalize
            Applied to all texts before their words are compared, for example `str.lower`.

        Returns
        -------
        DataFrame
            A row for each prompt: ``transcript`` (the right text), ``reference`` and ``runtime`` (what they write),
            ``words``, ``errors_reference`` and ``errors`` of the runtime (substitutions, deletions and insertions of
            words), ``wer_reference`` and ``wer`` (errors over words).

        Raises
        ------
        UsageError
            Without a tokenizer or generated tokens, or if `expected` has another length.
        ExecutionError
            If a run fails.
        """
        ends = ends_of(read_program(self._session.subject.pte)) if stop is None else stop
        stops = [ends] if isinstance(ends, int) else list(ends)
        return transcripts(self._session, self.sequences, self._tokenizer, self._own, expected, stops, normalize)

    def logits(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        """``(reference, runtime)`` logits of a row of `steps`, shape [vocabulary].

        Raises `UsageError` if it does not exist.
        """
        for decoded in self.sequences:
            if 0 <= row < len(decoded.positions):
                return decoded.reference[row].clone(), decoded.runtime[row].clone()
            row -= len(decoded.positions)
        raise UsageError(f"steps has {len(self._steps)} rows, numbered from 0")

    def summary(self) -> str:
        """The first fault, flips and their explanation, KL divergence, perplexity."""
        steps, flips = self._steps, self.flips
        fault, count, known = self.first_fault, int(flips.sum()), int(steps["kl"].notna().sum())
        lines = [self._headline(fault)]
        level, encoder = self._about_encoder
        if encoder:
            lines.insert(0 if level == "bad" else 1, f"Encoder: {encoder}")
        explained = int((flips & steps["explained"].fillna(value=False).astype(bool)).sum())
        agreed = self.agreement.loc["top1"]
        text = f"The best tokens agree at {known - count} of {known} positions"
        lines.append(f"{text} ({measured(100 * agreed['value'], 100 * agreed['standard_error'], ' %')}).")
        if known < len(steps):
            lines.append(f"{_times(len(steps) - known, 'position')} left out: NaN or Inf among the logits.")
        if count:
            lines.append(f"{_times(count, 'flip')}: noise explains {explained}, and {count - explained} not.")
        kl, perplexity = self.kl, self.perplexity
        largest = kl["value"]["max"]
        lines.append(
            f"KL divergence: mean {_of(kl, 'mean')}, 99th percentile {_of(kl, 'p99')}, largest {largest:.3g} nats."
        )
        both = f"{_of(perplexity, 'reference')} at the reference, {_of(perplexity, 'runtime')} at the runtime"
        lines.append(f"Perplexity: {both}, ratio {_of(perplexity, 'ratio')}.")
        if level != "unknown" and len(added := self.encoder_kl):
            said = f"mean {added.mean():.3g}, largest {added.max():.3g} nats"
            lines.append(f"The encoder's differences alone change the reference's logits by a KL divergence of {said}.")
        return "\n".join(lines)

    def _headline(self, fault: pd.Series[Any] | None) -> str:
        steps = self._steps
        if fault is None and bool(steps["severity"].isna().any()):
            return "The noise of the logits is not known, so no flip can be judged: compute_noise() measures it."
        if fault is None:
            given = "" if self._session.encoder is None else ", given what the runtime's encoder returned"
            return f"Noise explains every difference of the logits{given}."
        place = f"prompt {fault['prompt']}, step {fault['step']}, position {fault['position']}"
        if self._foreign and pd.notna(fault["kl"]):
            return (
                f"From {place} on, the logits differ from those of reference= by more than this program's rounding "
                f"({figure(fault['severity'])} times its noise). Decode without reference= to judge the backend."
            )
        if pd.isna(fault["kl"]):
            return f"The logits hold NaN or Inf at {place}."
        prompt = f", prompt={fault['prompt']}" if fault["prompt"] else ""
        return (
            f"The logits differ by more than noise from {place} on ({figure(fault['severity'])} times their noise): "
            f"why({fault['step']}{prompt}) names the operators."
        )

    def __repr__(self) -> str:
        return self.summary()

    def at(self, step: int, prompt: int = 0) -> Inspection:
        """The Inspection of a call, with the calls before it: their state goes into it.

        The calls run again with the same tokens, and every value is logged. `Inspection.gaps` tells them apart by
        ``input_index``. `UsageError` if the prompt or the call does not exist; `ExecutionError` if the run fails.
        """
        if (prompt, step) not in self._inspections:
            session = self._session
            runs = [tree_leaves(call.inputs) for call in self._calls(step, prompt)]
            title = f"{session.subject.title}, step {step}" + (f" of prompt {prompt}" if prompt else "")
            why = (
                f"step {step} needs its {len(runs)} calls logged, since a call finds the cache that earlier calls left",
                "Ask for an earlier step, or feed the prompt in fewer calls (prefill=)",
            )
            self._inspections[prompt, step] = self._logged(session.subject, runs, title, *why)
        return self._inspections[prompt, step]

    def _logged(
        self, subject: Subject, runs: Sequence[Sequence[Any]], title: str, what: str, advice: str
    ) -> Inspection:
        needed = len(runs) * subject.buffer_bytes
        if needed > _LARGEST:
            raise UsageError(f"{what}: that takes {needed:,} bytes, and the limit is {_LARGEST:,}. {advice}")
        return inspect_runs(subject, runs, title, self._session.timeout)

    def why(self, step: int, prompt: int = 0) -> pd.DataFrame:
        """The share of each instruction, of this call and of those before it, in the shift of a step's margin.

        The margin is the logit of the reference's best token minus that of the token which the runtime puts first
        otherwise, at the last position of the call that has logits. Where noise explains the shift of the margin, but
        not the error of the logits, the shares are of that error along itself.

        Returns
        -------
        DataFrame
            As `Inspection.attribution`, with the column ``step``: the call whose instruction it is. Errors of earlier
            calls arrive through the cache. Rows whose introduced error noise explains are last. ``attrs["sum"]`` is the
            check (1 if derivatives explain the shift), ``attrs["sentence"]`` says the first row's share in words.

        Raises
        ------
        UsageError
            As `at`, or if the call has no logits.
        ExecutionError
            If the run fails.
        PairingError
            If the reference can't be evaluated.
        """
        causes = self.attribute(step, prompt)
        causes.insert(1, "step", causes["run"] if not self._session.driver.stateless else step)
        no_cause = (causes["introduced_severity"] < THRESHOLD) | (causes["share"] == 0)
        causes = causes.iloc[no_cause.to_numpy().argsort(kind="stable")]
        said = "Noise explains the shift of this step. " if self._explained_margin(prompt, step) < THRESHOLD else ""
        causes.attrs["sentence"] = said + _said(causes, step)
        return causes

    def attribute(self, step: int, prompt: int, progress: Progress | None = None) -> pd.DataFrame:
        """As `why`; shows the shares in the view."""
        sequence, at = self._compared(step, prompt)
        row = sequence.positions[at].row
        reference, runtime = sequence.reference[at].double(), sequence.runtime[at].double()
        best = int(reference.argmax())
        other = int(runtime.scatter(0, torch.tensor(best), -torch.inf).argmax())
        margin = torch.zeros_like(reference)
        margin[[best, other]] = torch.tensor([1.0, -1.0], dtype=torch.float64)
        whole = self._explained_margin(prompt, step) >= THRESHOLD
        direction = (runtime - reference).nan_to_num(0.0, 0.0, 0.0) if whole else margin

        def along(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
            logits = next(output for output in outputs if output.is_floating_point() and output.ndim)
            return logits.reshape(-1, logits.shape[-1])[row].nan_to_num(0.0, 0.0, 0.0) @ direction.to(logits.dtype)

        run = 0 if self._session.driver.stateless else step
        about = " over ".join(repr(self._tokenizer.text(token)) for token in (best, other))
        about = _LOGITS if whole else f"the margin of {about}"
        given = {"loss": along, "about": about, "progress": progress}
        return self.at(step, prompt).analysis.attribution(None, run, **given)

    def answer(self) -> TokenAnswer | None:
        """What made the first fault, and the proof; None if noise explains every step. Raises as `why`."""
        fault = self.first_fault
        if fault is None:
            return None
        at = int(fault["step"]), int(fault["prompt"])
        why = self.why(*at)
        proof = self.what_if(at[0], int(str(why.index[0])), at[1])
        return TokenAnswer(why.attrs["sentence"], self.cache.attrs["note"], proof)

    def what_if(self, step: int, rows: Any, prompt: int = 0) -> TokenWhatIf:
        """The token of a step if some values had been exact: the proof of a diagnosis.

        `rows` are one row or several of ``at(step).gaps`` or ``why(step)``, of this call or of earlier ones. Raises
        `UsageError` as `why` and `Inspection.what_if`, `ExecutionError` if the run fails.
        """
        sequence, at = self._compared(step, prompt)
        inspection = self.at(step, prompt)
        replaced = inspection.what_if(rows)
        run = 0 if self._session.driver.stateless else step
        if run not in replaced.runs:
            raise UsageError(f"the rows change nothing at step {step}: they belong to other calls")
        each, number = len(replaced.outputs) // len(replaced.runs), replaced.runs.index(run)
        now = logits_of(replaced.outputs[each * number : each * (number + 1)])[sequence.positions[at].row]
        sides = sequence.reference[at], sequence.runtime[at], now
        tokens = [int(logits.argmax()) for logits in sides]
        before, after = (float(measures(sides[0][None], logits[None], [0])["kl"][0]) for logits in sides[1:])
        texts = [self._tokenizer.text(token) for token in tokens]
        return TokenWhatIf(
            step, replaced.names, (texts[0], texts[1], texts[2]), (tokens[0], tokens[1], tokens[2]), before, after
        )

    def cache_at(self, step: int, prompt: int = 0) -> pd.DataFrame:
        """The caches after a call, as `cache`."""
        calls = self._calls(step, prompt)
        replay = self.at(step, prompt).analysis.findings.compared.replay
        if replay is None:
            raise UsageError("there is no reference that could run again, so its cache is not known; see summary()")
        entries = table(caches(replay, [(call.position, len(call.ids)) for call in calls]))
        entries.insert(0, "prompt", prompt)
        first = first_beyond(entries)
        entries.attrs["first"] = None if first is None else first.to_dict()
        entries.attrs["note"] = _about_cache(entries, first)
        return entries

    @property
    def cache(self) -> pd.DataFrame:
        """The caches after the last call of a prompt, against the reference's: a row for each layer, head and position.

        It is the prompt of the first fault, or else of the first flip, or else the first one. Columns: ``prompt``;
        ``layer``; ``kind``, "keys" or "values" (the buffer's name if it tells neither); ``buffer``; ``head``;
        ``position`` of the token; ``slot`` of the cache; ``step``, the call that wrote it; ``rmse``, ``max_abs`` and
        ``reference_rms`` in the cache's units (dequantized); ``noise``; ``since``, the first call after which it is
        beyond noise (NA if it never is); ``severity``, RMSE over noise. ``attrs["first"]`` is the entry that was beyond
        noise first; ``attrs["note"]`` names it in words. Raises as `why`.
        """
        rows = (self.first_fault, self.first_flip)
        prompt = next((int(row["prompt"]) for row in rows if row is not None), 0)
        if self._cache is None or self._cache[0] != prompt:
            self._cache = prompt, self.cache_at(len(self.sequences[prompt].calls) - 1, prompt)
        return self._cache[1].copy()

    @property
    def known_cache(self) -> pd.DataFrame | None:
        return None if self._cache is None else self._cache[1]

    def _calls(self, step: int, prompt: int) -> tuple[Call, ...]:
        calls = self._sequence(step, prompt).calls
        return calls[step : step + 1] if self._session.driver.stateless else calls[: step + 1]

    def _compared(self, step: int, prompt: int) -> tuple[Decoded, int]:
        sequence = self._sequence(step, prompt)
        places = [at for at, position in enumerate(sequence.positions) if position.call == step]
        if not places:
            raise UsageError(f"step {step} of prompt {prompt} has no logits that were compared")
        return sequence, places[-1]

    def _row(self, prompt: int, step: int) -> pd.Series[Any]:
        return self._steps.query("prompt == @prompt and step == @step").iloc[-1]

    def _explained_margin(self, prompt: int, step: int) -> float:
        """Severity of a step whose margin shifted as noise explains, else NaN."""
        row = self._row(prompt, step)
        return float(row["severity"]) if row["explained"] is not pd.NA and row["explained"] else NAN

    def _sequence(self, step: int, prompt: int) -> Decoded:
        if not 0 <= prompt < len(self.sequences):
            raise UsageError(f"prompt {prompt} does not exist; there are {len(self.sequences)}, numbered from 0")
        sequence = self.sequences[prompt]
        if not 0 <= step < len(sequence.calls):
            raise UsageError(f"prompt {prompt} has {len(sequence.calls)} calls, numbered from 0; found step {step}")
        return sequence


def _first(table: pd.DataFrame, chosen: pd.Series[Any]) -> pd.Series[Any] | None:
    rows = table[chosen]
    return rows.iloc[0].copy() if len(rows) else None


def _said(why: pd.DataFrame, step: int) -> str:
    known = why[why["share"].notna()]
    if known.empty:
        return "No share is known."
    top = known.iloc[0]
    share = known.loc[(known["run"] == top["run"]) & (known["instruction"] == top["instruction"]), "share"].sum()
    when = "this step" if top["step"] == step else f"step {top['step']}, through the cache"
    total = why.attrs["sum"]
    check = f"the shares add up to {total:.3g}"
    doubt = "" if abs(total - 1) <= TOLERANCE else "; derivatives do not explain the rest, what_if() proves it"
    shift = f"shift of {_LOGITS}" if why.attrs["about"] == _LOGITS else "shift"
    return f"{100 * share:.3g} % of the {shift} comes from {top['name']}, at {when} ({check}{doubt})."


def _about_cache(cache: pd.DataFrame, first: pd.Series[Any] | None) -> str:
    if cache.empty:
        return "The program keeps no cache: no call changes a part of a floating buffer."
    if first is None:
        unknown = int(cache["severity"].isna().sum())
        return (
            f"The noise of {unknown} entries is not known." if unknown else "Noise explains every entry of the cache."
        )
    return (
        f"The first entry beyond noise: {first['kind']} of layer {first['layer']}, head {first['head']}, position "
        f"{first['position']}, wrong from step {first['since']} on ({figure(first['severity'])} times its noise)."
    )


def _of(table: pd.DataFrame, name: str) -> str:
    return measured(table["value"][name], table["standard_error"][name])


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _name_of(call: Place | None) -> str:
    return "" if call is None else f"{call[0]}:{call[1]}"
