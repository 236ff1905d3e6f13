"""`decode`: a language model's tokens at the reference and at the runtime."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from etviz.artifacts.kl_base import read_kl_base
from etviz.artifacts.scratch import Scratch
from etviz.calls.driver import Call, Driver
from etviz.calls.session import Session, open_session
from etviz.calls.tokens import tokenizer_of
from etviz.decoding.base import against, prompts_of
from etviz.decoding.forced import follow
from etviz.decoding.result import Decode
from etviz.decoding.sequence import Decoded, Position
from etviz.errors import ArtifactError, PairingError, UsageError, checked
from etviz.pipeline.lower import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from etviz.calls.driver import Make

    Own = Callable[[torch.Tensor], Any]


@checked
def decode(
    program: Any,
    prompts: Any,
    *,
    tokenizer: Any = None,
    reference: Any = None,
    steps: int = 32,
    driver: Driver | Make | None = None,
    forced: bool = True,
    log: str = "auto",
    noise: bool = True,
    prefill: int | None = None,
    method: str | None = None,
    strict: bool = False,
    timeout: float | None = None,
    **lowering: Any,
) -> Decode:
    """Compare a language model's tokens, position by position.

    Reference and runtime receive the same tokens: those of the prompt, then the ones that the reference chooses
    (teacher forcing). So a flip is a difference of that position.

    Parameters
    ----------
    program
        An `nn.Module` or `ExportedProgram`, which is lowered here; a `.pte` with its record or ETRecord beside it, or
        their folder; an Inspection.
    prompts
        One, or a list: a text (with `tokenizer`), a list of token ids, or a tensor of them. With a file as `reference`,
        which holds its own tokens: None, or the number of chunks.
    tokenizer
        An object with `encode` and `decode`, or the path of a ``tokenizer.json`` or SentencePiece model.
    reference
        By default the program's own reference. A function ``ids -> logits``, or a model of `transformers`: it receives
        a tensor of shape [1, n] with all ids, and returns logits [n, vocabulary]. Or the path of a file that
        ``llama-perplexity --kl-divergence-base`` wrote, or of a folder with a model of `transformers`.
    steps
        Number of tokens that the reference generates after each prompt.
    driver
        A function ``(ids, position) -> arguments`` that makes a call of one token, or an `etviz.Driver`; by default
        what the program's inputs tell.
    forced
        False ends each prompt at the first token that differs, as free generation does.
    log
        "auto" logs only the calls that `Decode.at` and `Decode.why` ask for.
    noise
        False leaves the noise, which takes several times as long as the rest, to `Decode.compute_noise`: until then
        ``margin_noise``, ``explained`` and ``severity`` are unknown.
    prefill
        Tokens of one call while the prompt is fed; by default as many as the program takes.
    method, timeout
        As for `etviz.study`.
    strict, lowering
        As for `etviz.debug`.

    Raises
    ------
    UsageError
        If an argument makes no sense, no driver fits, or a prompt does not fit into the program's context.
    LoweringError
        If upstream refuses the model.
    ExecutionError
        If a run fails.
    PairingError
        If the reference can't be evaluated.

    Examples
    --------
    >>> run = etviz.decode("model.pte", ["Once upon a time"], tokenizer="tokenizer.json")  # doctest: +SKIP
    >>> run.steps[["text", "agrees", "kl", "explained"]]  # doctest: +SKIP
    """
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
        raise UsageError(f"steps must be a number of tokens, found {steps!r}")
    if log != "auto":
        raise UsageError(f"log must be 'auto', found {log!r}")
    words = tokenizer_of(tokenizer)
    if isinstance(reference, (str, os.PathLike)) and Path(reference).is_dir():
        reference = _from_folder(Path(reference))
    base = read_kl_base(reference) if isinstance(reference, (str, os.PathLike)) else None
    if base is not None:
        ids, steps, reference = prompts_of(base, prompts), 0, None
    else:
        ids = [words.ids(prompt, number) for number, prompt in enumerate(listed(prompts))]
    folder = Scratch()
    session = open_session(program, ids, steps, driver, Path(folder.name), method, strict, timeout, lowering)
    own = None if reference is None else _logits_function(reference)
    found = []
    for number, prompt in enumerate(tqdm(ids, desc="etviz", unit="prompt", leave=False)):
        decoded = _decode(session, prompt, steps, prefill, own, number)
        decoded = decoded if base is None else against(decoded, base, number)
        found.append(decoded if forced else _until_flip(decoded))
    run = Decode(session, found, words, folder, foreign=own is not None or base is not None)
    if noise:
        run.compute_noise()
    return run


def _decode(
    session: Session, prompt: Sequence[int], steps: int, prefill: int | None, own: Own | None, number: int
) -> Decoded:
    import torch

    driver, needed = session.driver, len(prompt) + max(steps - 1, 0)
    if driver.room is not None and needed > driver.room:
        raise UsageError(
            f"prompt {number} has {len(prompt)} tokens, and {steps} follow; the program has room for {driver.room}"
        )
    writer = _Writer(driver, list(prompt), len(prompt) + steps, list(driver.prefill(prompt, prefill)), own)
    try:
        peak = follow(session.replay, writer.ask)
    except PairingError as error:
        if len(writer.calls) < 2:
            raise
        raise UsageError(_ended(number, writer.calls[-1].position, needed, error)) from error
    runtime = session.runtime(writer.calls)
    positions = writer.positions()
    if not positions:
        raise UsageError(f"prompt {number} has one token; give steps=1 or more")
    places = [(item.call, item.row) for item in positions]
    expected = torch.stack([writer.outputs[call][row] for call, row in places])
    if own is not None:
        whole = _own(own, writer.ids, expected.shape[1])
        expected = torch.stack([whole[item.position] for item in positions])
    return Decoded(
        tuple(writer.ids),
        len(prompt),
        tuple(writer.calls),
        tuple(positions),
        expected,
        torch.stack([runtime[call][row] for call, row in places]),
        peak=peak,
    )


@dataclass(slots=True)
class _Writer:
    """`length` is the number of ids at the end, `waiting` holds the next calls."""

    driver: Driver
    ids: list[int]
    length: int
    waiting: list[Call]
    own: Own | None
    calls: list[Call] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)

    def ask(self, last: torch.Tensor | None) -> list[Any] | None:
        if last is not None:
            self.outputs.append(last)
            if not self.waiting and len(self.ids) < self.length:
                self._choose(last)
        if not self.waiting:
            return None
        self.calls.append(self.waiting.pop(0))
        return flatten(self.calls[-1].inputs)

    def _choose(self, last: torch.Tensor) -> None:
        import torch

        row = rows_of(self.calls[-1], last)[-1][1]
        logits = last[row] if self.own is None else _own(self.own, self.ids, last.shape[1])[-1]
        self.ids.append(int(torch.nan_to_num(logits, -torch.inf).argmax()))
        if len(self.ids) < self.length:
            self.waiting.append(self.driver.step(self.ids, len(self.ids) - 1))

    def positions(self) -> list[Position]:
        """If several calls give a position's logits, the first ones count."""
        found: dict[int, Position] = {}
        for at, (call, logits) in enumerate(zip(self.calls, self.outputs, strict=True)):
            for position, row in rows_of(call, logits):
                if position < len(self.ids) - 1:
                    found.setdefault(position, Position(at, row, position))
        return list(found.values())


def rows_of(call: Call, logits: torch.Tensor) -> list[tuple[int, int]]:
    """``(position, row of the logits)``."""
    count, rows = len(call.ids), len(logits)
    if rows >= count:
        return [(call.position + row, row) for row in range(count)]
    if rows == 1:
        return [(call.position + count - 1, 0)]
    raise UsageError(f"a call with {count} tokens returns {rows} rows of logits; expected one for each, or one")


def _ended(number: int, position: int, needed: int, error: PairingError) -> str:
    return (
        f"prompt {number}: the program can't go on at position {position}, and {needed} positions are needed; its "
        f"context may be that long: give a shorter prompt or fewer steps ({error})"
    )


def listed(prompts: Any) -> list[Any]:
    if isinstance(prompts, str) or hasattr(prompts, "flatten"):
        return [prompts]
    found = list(prompts) if isinstance(prompts, (list, tuple)) else [prompts]
    if found and all(isinstance(item, int) for item in found):
        return [found]
    if not found:
        raise UsageError("prompts is empty; give a text or token ids")
    return found


def _logits_function(reference: Any) -> Own:
    if not callable(reference):
        raise UsageError(f"reference must be a function ids -> logits or a model, found {type(reference).__name__}")
    return reference


def _from_folder(path: Path) -> Own:
    """From safetensors, without code of the folder."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(f"reference={str(path)!r} needs the package transformers ({error})") from None
    try:
        options = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        return transformers.AutoModelForCausalLM.from_pretrained(str(path), **options).eval()
    except Exception as error:
        problem = f"transformers can't read a model in it ({type(error).__name__}: {str(error)[:200]})"
        raise ArtifactError(path, problem, "name a folder with config.json and safetensors") from error


def _own(function: Own, ids: Sequence[int], vocabulary: int) -> torch.Tensor:
    import torch

    try:
        with torch.no_grad():
            found = function(torch.tensor([list(ids)]))
    except Exception as error:
        raise UsageError(f"reference: it fails on {len(ids)} ids: {type(error).__name__}: {error}") from error
    found = getattr(found, "logits", found)
    if not isinstance(found, torch.Tensor) or not found.is_floating_point():
        raise UsageError(f"reference: it must return logits, found {type(found).__name__}")
    rows = found.detach().float().reshape(-1, found.shape[-1])
    if rows.shape != (len(ids), vocabulary):
        raise UsageError(
            f"reference: expected logits of {len(ids)} positions and {vocabulary} tokens, found {list(found.shape)}"
        )
    return rows


def _until_flip(found: Decoded) -> Decoded:
    differs = found.reference.argmax(1) != found.runtime.argmax(1)
    ends = [at for at, item in enumerate(found.positions) if bool(differs[at]) and item.position + 1 >= found.prompted]
    if not ends:
        return found
    count = ends[0] + 1
    return replace(
        found,
        positions=found.positions[:count],
        reference=found.reference[:count],
        runtime=found.runtime[:count],
    )
