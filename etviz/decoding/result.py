"""`Decode`: the tokens of a language model at reference and runtime. The object that users hold."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from etviz.analysis.analysis import Analysis
from etviz.artifacts.files import check_target, whole_file
from etviz.artifacts.scratch import Scratch
from etviz.decoding.measures import PERCENTILES, with_errors
from etviz.decoding.view import DecodeView
from etviz.errors import UsageError
from etviz.inspection import Inspection
from etviz.loading.load import read
from etviz.pipeline.lower import flatten
from etviz.tensors.metrics import THRESHOLD
from etviz.view.pages.report import check_tensors
from etviz.view.widget.shown import Shown

if TYPE_CHECKING:
    import torch

    from etviz.calls.session import Session
    from etviz.calls.tokens import Tokenizer
    from etviz.decoding.sequence import Decoded


class Decode(Shown):
    """The tokens of a language model at reference and runtime, from `etviz.decode`. A notebook shows it as a view.

    Attributes
    ----------
    sequences
        What was decoded, prompt by prompt.
    view
        State that all its views share.
    """

    view: DecodeView

    def __init__(self, session: Session, sequences: tuple[Decoded, ...], tokenizer: Tokenizer, folder: Scratch) -> None:
        self.sequences = sequences
        self._session, self._tokenizer, self._folder = session, tokenizer, folder
        self._inspections: dict[tuple[int, int], Inspection] = {}
        super().__init__(DecodeView(self))

    @cached_property
    def _steps(self) -> pd.DataFrame:
        tables = [item.table(prompt, self._tokenizer) for prompt, item in enumerate(self.sequences)]
        return pd.concat(tables, ignore_index=True)

    @property
    def steps(self) -> pd.DataFrame:
        """A row for each position that has logits.

        ``prompt``, ``step`` (number of the call), ``position``; ``token`` and ``text`` of the token that follows;
        ``predicted_reference``, ``predicted_runtime``, ``agrees``; ``margin`` (the reference's best logit minus the
        second), ``margin_shift`` (what the runtime did to it), ``margin_noise`` (noise of that shift), ``explained``
        (whether the shift is within 3 times its noise; NA where the noise is unknown); ``kl`` (reference ‖ runtime),
        ``entropy``, ``nll_reference`` and ``nll_runtime``, all in nats; ``rank`` of the reference's token at the
        runtime, 1 for the best; ``top5_overlap``, a share; ``max_abs`` of the logits; ``severity``, RMSE of the logits
        over their noise; ``generated``, whether the reference chose the token.
        """
        return self._steps.copy()

    @property
    def title(self) -> str:
        """Name for people: the program's."""
        return self._session.subject.title

    @property
    def level(self) -> str:
        """``bad`` if rounding does not explain a row of `steps`, ``unknown`` if the noise is not known, else ``ok``."""
        if self._at_fault.any():
            return "bad"
        return "unknown" if bool(self._steps["severity"].isna().any()) else "ok"

    def told_steps(self) -> pd.DataFrame:
        """`steps`, with the texts of the predicted tokens (``text_reference``, ``text_runtime``) and ``at_fault``."""
        steps = self.steps
        for side in ("reference", "runtime"):
            steps[f"text_{side}"] = [self._tokenizer.text(int(token)) for token in steps[f"predicted_{side}"]]
        return steps.assign(at_fault=self._at_fault)

    def to_html(self, path: str | os.PathLike[str], tensors: str = "histograms", title: str | None = None) -> Path:
        """Write a report: the tokens, and the rows of every call whose view was opened.

        If no call was opened, the report opens that of the first fault, else of the first flip, else of the largest KL
        divergence.

        Parameters
        ----------
        path, tensors, title
            As for `Inspection.to_html`.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        UsageError
            If there is no such `tensors`.
        ArtifactError
            If the file can't be written, or the front end was not built.
        ExecutionError
            If the call's run fails.
        """
        check_tensors(tensors)
        target = check_target(path, "the report")
        page = self.view.page(tensors, title or self.title)
        with whole_file(target, "the report") as partial:
            partial.write_bytes(page)
        return target

    @property
    def to_open(self) -> tuple[int, int]:
        """Prompt and step of the call to look at first."""
        row = self.first_fault if self.first_fault is not None else self.first_flip
        row = self._steps.iloc[int(self._steps["kl"].fillna(np.inf).argmax())] if row is None else row
        return int(row["prompt"]), int(row["step"])

    @property
    def first_flip(self) -> pd.Series[Any] | None:
        """The first row of `steps` at which the best tokens differ, None if none does."""
        return _first(self._steps, ~self._steps["agrees"])

    @property
    def first_fault(self) -> pd.Series[Any] | None:
        """The first row of `steps` whose logits differ by more than noise explains, None if none does."""
        return _first(self._steps, self._at_fault)

    @property
    def _at_fault(self) -> pd.Series[Any]:
        """Rows that rounding does not explain."""
        steps = self._steps
        unexplained = ~steps["agrees"] & ~steps["explained"].fillna(value=True).astype(bool)
        return (steps["severity"] >= THRESHOLD) | unexplained | steps["kl"].isna()

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

        All rows of `steps` count: the tokens of the prompts, and those that the reference generated.
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
        """Share of rows at which the best tokens agree: ``top1``, with its standard error."""
        return with_errors(self._steps["agrees"].to_numpy(dtype=float), {"top1": lambda values: values.mean(0)})

    def logits(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        """``(reference, runtime)`` logits of a row of `steps`, shape [vocabulary].

        Raises
        ------
        UsageError
            If there is no such row.
        """
        for item in self.sequences:
            if 0 <= row < len(item.positions):
                return item.reference[row].clone(), item.runtime[row].clone()
            row -= len(item.positions)
        raise UsageError(f"steps has {len(self._steps)} rows, numbered from 0")

    def summary(self) -> str:
        """Short text: the first fault, flips and their explanation, KL divergence, perplexity."""
        steps = self._steps
        flips = ~steps["agrees"]
        fault, count = self.first_fault, int(flips.sum())
        lines = [self._headline(fault)]
        explained = int((flips & steps["explained"].fillna(value=False).astype(bool)).sum())
        agreed = self.agreement.loc["top1"]
        text = f"The best tokens agree at {len(steps) - count} of {len(steps)} positions"
        lines.append(f"{text} ({_measured(100 * agreed['value'], 100 * agreed['standard_error'], ' %')}).")
        if count:
            lines.append(f"{_times(count, 'flip')}: noise explains {explained}, and {count - explained} not.")
        kl, perplexity = self.kl, self.perplexity
        largest = kl["value"]["max"]
        lines.append(
            f"KL divergence: mean {_of(kl, 'mean')}, 99th percentile {_of(kl, 'p99')}, largest {largest:.3g} nats."
        )
        both = f"{_of(perplexity, 'reference')} at the reference, {_of(perplexity, 'runtime')} at the runtime"
        lines.append(f"Perplexity: {both}, ratio {_of(perplexity, 'ratio')}.")
        return "\n".join(lines)

    def _headline(self, fault: pd.Series[Any] | None) -> str:
        steps = self._steps
        if fault is None and bool(steps["severity"].isna().any()):
            return "The noise of the logits is not known, so no flip can be judged."
        if fault is None:
            return "Noise explains every difference of the logits."
        place = f"prompt {fault['prompt']}, step {fault['step']}, position {fault['position']}"
        if pd.isna(fault["kl"]):
            return f"The logits hold NaN or Inf at {place}."
        prompt = f", prompt={fault['prompt']}" if fault["prompt"] else ""
        return (
            f"The logits differ by more than noise from {place} on ({fault['severity']:.3g} times their noise): "
            f"why({fault['step']}{prompt}) names the operators."
        )

    def __repr__(self) -> str:
        return self.summary()

    def at(self, step: int, prompt: int = 0) -> Inspection:
        """The Inspection of a call, with the calls before it: their state goes into it.

        The calls run again with the same tokens, and every value is logged. `Inspection.gaps` tells the calls apart by
        ``input_index``.

        Parameters
        ----------
        step
            Number of the call, column ``step`` of `steps`.
        prompt
            Number of the prompt.

        Raises
        ------
        UsageError
            If the prompt or the call does not exist.
        ExecutionError
            If the run fails.
        """
        sequence = self._sequence(step, prompt)
        if (prompt, step) not in self._inspections:
            session = self._session
            calls = sequence.calls[step : step + 1] if session.driver.stateless else sequence.calls[: step + 1]
            runs = [flatten(call.inputs) for call in calls]
            folder = Scratch()
            run = session.subject.run(runs, Path(folder.name), session.timeout)
            artifacts = session.subject.pair(run).artifacts
            title = f"{session.subject.title}, step {step}" + (f" of prompt {prompt}" if prompt else "")
            given = [tuple(values) for values in runs]
            method = session.subject.method
            findings = read(artifacts, given, method, 1e-6, ran_here=True, title=title, keep_alive=folder)
            self._inspections[prompt, step] = Inspection(Analysis(findings))
        return self._inspections[prompt, step]

    def why(self, step: int, prompt: int = 0) -> pd.DataFrame:
        """What shifted the margin of a step: the share of each instruction, of this call and of those before it.

        The margin is the logit of the reference's best token minus that of the token which the runtime puts first
        otherwise, at the last position of the call that has logits.

        Parameters
        ----------
        step, prompt
            As for `at`.

        Returns
        -------
        DataFrame
            As `Inspection.attribution`.

        Raises
        ------
        UsageError
            As `at`, or if the call has no logits.
        ExecutionError
            If the run fails.
        PairingError
            If the reference can't be evaluated.
        """
        import torch

        sequence = self._sequence(step, prompt)
        found = [at for at, item in enumerate(sequence.positions) if item.call == step]
        if not found:
            raise UsageError(f"step {step} of prompt {prompt} has no logits that were compared")
        at = found[-1]
        row = sequence.positions[at].row
        best = int(sequence.reference[at].argmax())
        other = int(sequence.runtime[at].scatter(0, torch.tensor(best), -torch.inf).argmax())

        def margin(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
            logits = next(item for item in outputs if item.is_floating_point() and item.ndim)
            logits = logits.reshape(-1, logits.shape[-1])[row]
            return logits[best] - logits[other]

        run = 0 if self._session.driver.stateless else step
        return self.at(step, prompt).attribution(loss=margin, run=run)

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


def _measured(value: float, error: float, unit: str = "") -> str:
    return f"{value:.4g} ± {error:.1g}{unit}"


def _of(table: pd.DataFrame, name: str) -> str:
    return _measured(table["value"][name], table["standard_error"][name])


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
