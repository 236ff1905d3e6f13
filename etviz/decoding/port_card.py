"""`port_card`: a port's ladder, from the original model to the runtime, one row a stage."""

from __future__ import annotations

import copy
import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch
from torch.utils._pytree import tree_leaves

from etviz.artifacts.files import PathLike, write_file
from etviz.artifacts.scratch import Scratch
from etviz.calls.driver import Call, Driver, Make, of_module
from etviz.calls.logits import logits_of
from etviz.calls.session import open_session
from etviz.calls.tokens import tokenizer_of
from etviz.decoding.entry import listed
from etviz.decoding.forced import noise_of_logits
from etviz.decoding.measures import measures
from etviz.decoding.one_prompt import by_position
from etviz.decoding.transcripts import word_error_rate
from etviz.errors import EtvizError, UsageError, checked
from etviz.evaluation.replay import Replay, question
from etviz.explain.stages.stages import ProgramForm
from etviz.parity.parity import parity
from etviz.parity.port_result import Parity
from etviz.parity.runs import Arguments, run, tensor_in
from etviz.tensors.metrics import THRESHOLD
from etviz.text import markdown

COLUMNS: Final = ("stage", "against", "kl", "agreement", "max_abs", "severity", "wer", "worst", "differs")
_HEAD: Final = ("stage", "KL", "same token", "max Δ", "Δ / noise", "WER", "differs first in")
_FLOATS: Final = ("original", "eager", "exported")
_STYLE: Final = (
    "body{font:14px system-ui;margin:2em;max-width:60em}table{border-collapse:collapse}"
    "td,th{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}"
    "tr.first{background:#fdecea;font-weight:600}pre{white-space:pre-wrap;background:#f6f6f6;padding:1em}"
)


class PortCard:
    """The ladder of a port. Made by `etviz.port_card`; a notebook shows it as a table.

    Attributes
    ----------
    table
        A row for each stage, from ``original`` to ``runtime``: ``stage``; ``against``, the stage before; ``kl`` (mean,
        in nats, of the logits against the stage before); ``agreement`` (share of positions where the most likely token
        is that of the original); ``max_abs`` of the logits against the stage before; ``severity`` (the largest RMSE of
        a position's logits over their measured noise); ``wer`` (word error rate of the most likely tokens against the
        original's, with a tokenizer); ``worst`` (the module that differs first); ``differs``.
    parity
        The comparison of original and port.
    """

    def __init__(self, title: str, table: pd.DataFrame, parity: Parity) -> None:
        self.title, self.table, self.parity = title, table, parity

    @property
    def first(self) -> str | None:
        """The first stage that differs from the one before by more than rounding, or None."""
        stages = self.table["stage"][self.table["differs"]]
        return str(stages.iloc[0]) if len(stages) else None

    def summary(self) -> str:
        """The verdict, and the faults of a port that differs from the original."""
        if self.first is None:
            return f"{self.title}: no stage differs by more than rounding."
        said = f"{self.title}: the first stage that differs is {self.first}."
        return f"{said}\n{self.parity.summary()}" if not self.parity.agrees else said

    def wire(self) -> dict[str, Any]:
        """Verdict, head, rows of texts, and the number of the first row that differs."""
        rows = self._cells()
        first = next((at for at, row in enumerate(rows) if row[0] == self.first), None)
        return {"verdict": self.summary(), "head": list(_HEAD), "rows": rows, "first": first}

    def to_markdown(self) -> str:
        """The card for a pull request."""
        lines = [f"| {' | '.join(_HEAD)} |", f"|{' --- |' * len(_HEAD)}"]
        for row in self._cells():
            bold = "**" if row[0] == self.first else ""
            lines.append(f"| {' | '.join(f'{bold}{markdown(cell)}{bold}' if cell else '' for cell in row)} |")
        return "\n".join([f"### {markdown(self.title)}", "", *lines, "", *markdown(self.summary()).splitlines()]) + "\n"

    def to_html(self, path: PathLike) -> None:
        """Write a page; `ArtifactError` if it can't be written."""
        page = f"<!doctype html><meta charset=utf-8><title>{html.escape(self.title)}</title><style>{_STYLE}</style>"
        write_file(path, "the port card", f"{page}<h1>{html.escape(self.title)}</h1>{self.to_fragment()}\n")

    def to_fragment(self) -> str:
        rows = []
        for row in self._cells():
            kind = ' class="first"' if row[0] == self.first else ""
            rows.append(f"<tr{kind}>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>")
        head = "".join(f"<th>{name}</th>" for name in _HEAD)
        return f"<table><tr>{head}</tr>{''.join(rows)}</table><pre>{html.escape(self.summary())}</pre>"

    _repr_html_ = to_fragment

    def _cells(self) -> list[list[str]]:
        def shown(value: Any, form: str) -> str:
            return "" if not isinstance(value, float) or math.isnan(value) else format(value, form)

        return [
            [
                row["stage"],
                shown(row["kl"], ".1e"),
                shown(row["agreement"], ".0%"),
                shown(row["max_abs"], ".2g"),
                shown(row["severity"], ".2g"),
                shown(row["wer"], ".0%"),
                row["worst"],
            ]
            for row in self.table.to_dict("records")
        ]

    def __repr__(self) -> str:
        return f"{self.summary()}\n{self.table.to_string(index=False)}"


@dataclass(frozen=True, slots=True)
class _LogitStage:
    name: str
    logits: torch.Tensor | None
    problem: str = ""


@checked
def port_card(
    model: torch.nn.Module,
    reference: torch.nn.Module,
    prompt: Any,
    *,
    inputs: Any = None,
    reference_inputs: Any = None,
    tokenizer: Any = None,
    driver: Driver | Make | None = None,
    strict: bool = False,
    timeout: float | None = None,
    **lowering: Any,
) -> PortCard:
    """Make the ladder of a port: original, eager, exported, quantized, lowered, runtime, one row a stage.

    Parameters
    ----------
    model, reference
        The port, and the model that it is a port of.
    prompt
        Token ids, or a text with a `tokenizer`.
    inputs, reference_inputs
        The whole prompt as `etviz.parity` takes it; by default the ids, and for a model with a position the positions
        from 0 on.
    tokenizer, driver, strict, timeout, lowering
        As for `etviz.decode`.

    Raises
    ------
    UsageError
        If an argument makes no sense, a model fails, or no driver fits.
    PairingError
        If the two models share no parameters.
    LoweringError
        If upstream refuses the model.
    ExecutionError
        If the run fails.

    Examples
    --------
    >>> card = etviz.port_card(port, hf_model, [1, 5, 9], recipe="xnnpack")  # doctest: +SKIP
    >>> print(card.to_markdown())  # doctest: +SKIP
    """
    words = tokenizer_of(tokenizer)
    prompts = listed(prompt)
    if len(prompts) != 1:
        raise UsageError(f"prompt must be one prompt, found {len(prompts)}")
    ids = words.ids(prompts[0], 0)
    with Scratch() as scratch:
        driver = of_module(model, len(ids)) if driver is None else driver  # whose arguments the eager model takes too
        session = open_session(copy.deepcopy(model), [ids], 0, driver, Path(scratch), None, strict, timeout, lowering)
        calls = tuple(session.driver.prefill(ids, 1))
        if inputs is None:
            positions = torch.arange(len(ids))
            given = calls[0].inputs
            nested = len(given) > 1 and isinstance(given[1], dict)
            inputs = (torch.tensor([ids]), {"input_pos": positions} if nested else positions)
            inputs = inputs if len(given) > 1 else (torch.tensor([ids]),)
        compared = parity(model, reference, inputs, reference_inputs=reference_inputs)
        original_inputs = reference_inputs if reference_inputs is not None else torch.tensor([ids])
        original = run(reference.eval(), Arguments.of(original_inputs, "reference_inputs"), only=()).output
        stages = [_LogitStage("original", original.float().reshape(-1, original.shape[-1])[-len(ids) :])]
        stages.append(_LogitStage("eager", _eager(model, calls)))
        for name, logits, problem in stage_logits(session.replay, [tree_leaves(call.inputs) for call in calls]):
            stages.append(_LogitStage(name, None if problem else _rows(calls, logits), problem))
        stages.append(_LogitStage("runtime", _rows(calls, session.runtime(calls))))
        noise = {
            floating: _noise(session.replay, calls, original.shape[-1], floating=floating)
            for floating in dict.fromkeys((False, session.replay.fresh_float is not None))
        }
    table = _table(stages, noise, compared, words.decode)
    return PortCard(f"{type(model).__name__}, a port of {type(reference).__name__}", table, compared)


def _noise(replay: Replay, calls: Sequence[Call], vocabulary: int, *, floating: bool) -> torch.Tensor:
    inputs = [tree_leaves(call.inputs) for call in calls]
    noises = noise_of_logits(replay, inputs, vocabulary, floating=floating)
    return _rows(calls, [torch.tensor([[row[0]] for row in call]) for call in noises]).flatten()


def _eager(model: torch.nn.Module, calls: Sequence[Call]) -> torch.Tensor:
    alone = copy.deepcopy(model).eval()
    outputs = []
    with torch.no_grad():
        for call in calls:
            value = tensor_in(alone(*call.inputs))
            outputs.append(logits_of([value]))
    return _rows(calls, outputs)


def _rows(calls: Sequence[Call], logits: Sequence[torch.Tensor]) -> torch.Tensor:
    rows = by_position(calls, logits)
    return torch.stack([rows[position][1] for position in sorted(rows)])


@question
def stage_logits(replay: Replay, calls: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """By form: stage, its calls' logits, and the reason without them; the lowered program is last."""
    makers = dict(replay.stages) | {"lowered": replay.fresh}
    if replay.fresh_float is not None:
        named = {"quantized" if name == "exported" else name: make for name, make in makers.items()}
        makers = {"exported": replay.fresh_float} | named
    rows = []
    for name, make in makers.items():
        try:
            evaluator = make() if name == "lowered" else ProgramForm.of(make()).fresh()
            rows.append([name, [logits_of(evaluator.run(inputs, replay=False)) for inputs in calls], ""])
        except EtvizError as error:
            rows.append([name, [], str(error)])
    return rows


def _table(
    stages: Sequence[_LogitStage],
    noise: dict[bool, torch.Tensor],
    compared: Parity,
    decode: Callable[[list[int]], str] | None,
) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    before: _LogitStage | None = None
    best = stages[0].logits.argmax(1) if stages[0].logits is not None else torch.empty(0)
    said = decode(best.tolist()) if decode is not None else ""
    for stage in stages:
        row: dict[str, Any] = {"stage": stage.name, "against": "", "worst": "", "differs": False}
        row |= dict.fromkeys(("kl", "max_abs", "severity", "agreement", "wer"), math.nan)
        rows.append(row)
        if stage.logits is None:
            row["worst"] = f"not known: {stage.problem}"
            continue
        row["agreement"] = float((stage.logits.argmax(1) == best).double().mean())
        if decode is not None:
            row["wer"] = word_error_rate(said, decode(stage.logits.argmax(1).tolist()))
        if before is not None and before.logits is not None:
            known = measures(before.logits, stage.logits, best.tolist())
            floats = True in noise and before.name in _FLOATS
            ratios = (torch.from_numpy(known["rmse"]) / noise[floats].double()).nan_to_num(0.0, math.inf)
            row |= {"against": before.name, "kl": float(known["kl"].mean()), "max_abs": float(known["max_abs"].max())}
            row["severity"] = float(ratios.max())
            row["differs"] = row["severity"] >= THRESHOLD
        if stage.name == "eager":
            first = compared.first
            row["differs"] = first is not None
            row["worst"] = "" if first is None else first["module"] or "the outputs"
        before = stage
    return pd.DataFrame(rows, columns=list(COLUMNS))
