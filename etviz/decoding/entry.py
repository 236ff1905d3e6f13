"""`decode`: a language model's tokens at the reference and at the runtime."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from etviz.artifacts.kl_base import read_kl_base
from etviz.artifacts.scratch import Scratch
from etviz.calls.driver import Driver, Make
from etviz.calls.session import open_session
from etviz.calls.tokens import Tokenizer, tokenizer_of
from etviz.decoding.base import against, prompts_of
from etviz.decoding.one_prompt import Own, decode_one
from etviz.decoding.result import Decode
from etviz.decoding.sequence import Decoded
from etviz.errors import ArtifactError, UsageError, checked


@checked
def decode(
    program: Any,
    prompts: Any,
    *,
    tokenizer: Any = None,
    reference: Any = None,
    steps: int = 32,
    driver: Driver | Make | Sequence[Any] | None = None,
    encoder: str | None = None,
    sources: Any = None,
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
        what the program's inputs tell. A list has one for each prompt.
    encoder, sources
        The method that reads speech or another source, and its arguments for each prompt (one prompt serves all). The
        decoders of both sides take what the runtime's encoder gives; `Decode.encoder` compares the encoder. Then
        `driver` is called with the encoder's outputs too, and `reference` with the source.
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
        ids, steps, reference = prompts_of(base, prompts, words.begin), 0, None
    else:
        ids, sources = ids_of(words, prompts, encoder, sources)
    folder = Scratch()
    given = (driver, Path(folder.name), method, strict, timeout, lowering, encoder, sources)
    session = open_session(program, ids, steps, *given)
    logits_of = None if reference is None else _logits_function(reference)
    items = []
    for number, prompt in enumerate(tqdm(ids, desc="etviz", unit="prompt", leave=False)):
        decoded = decode_one(session, number, prompt, steps, prefill, logits_of)
        decoded = decoded if base is None else against(decoded, base, number)
        items.append(decoded if forced else _until_flip(decoded))
    run = Decode(session, items, words, folder, own=logits_of, foreign=logits_of is not None or base is not None)
    if noise:
        run.compute_noise()
    return run


def ids_of(words: Tokenizer, prompts: Any, encoder: str | None = None, sources: Any = None) -> tuple[Any, Any]:
    """Token ids and sources by prompt; one prompt serves all sources."""
    if (encoder is None) != (sources is None):
        raise UsageError("encoder names the method that reads the sources: give both, or none")
    ids = [words.ids(prompt, number) for number, prompt in enumerate(listed(prompts))]
    if sources is None:
        return ids, None
    sources = sources if isinstance(sources, list) else [sources]
    return (ids * len(sources) if len(ids) == 1 else ids), sources


def listed(prompts: Any) -> list[Any]:
    if isinstance(prompts, str) or hasattr(prompts, "flatten"):
        return [prompts]
    items = list(prompts) if isinstance(prompts, (list, tuple)) else [prompts]
    if items and all(isinstance(token, int) for token in items):
        return [items]
    if not items:
        raise UsageError("prompts is empty; give a text or token ids")
    return items


def _logits_function(reference: Any) -> Own:
    if not callable(reference):
        raise UsageError(f"reference must be a function ids -> logits or a model, found {type(reference).__name__}")
    return reference


def _from_folder(path: Path) -> Own:
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


def _until_flip(decoded: Decoded) -> Decoded:
    differs = decoded.reference.argmax(1) != decoded.runtime.argmax(1)
    ends = [
        at
        for at, position in enumerate(decoded.positions)
        if bool(differs[at]) and position.position + 1 >= decoded.prompted
    ]
    if not ends:
        return decoded
    count = ends[0] + 1
    return replace(
        decoded,
        positions=decoded.positions[:count],
        reference=decoded.reference[:count],
        runtime=decoded.runtime[:count],
    )
