"""Free-running texts of reference and runtime, and their word error rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import pandas as pd
import torch

from etviz.calls.session import Session
from etviz.calls.tokens import Tokenizer, visible
from etviz.decoding.one_prompt import Own, decode_one
from etviz.decoding.sequence import Decoded
from etviz.errors import UsageError

COLUMNS: Final = ("transcript", "reference", "runtime", "words", "errors_reference", "errors", "wer_reference", "wer")


def word_errors(reference: str, text: str) -> tuple[int, int]:
    """Substitutions, deletions and insertions, and the number of words of the reference.

    The edit distance of V. I. Levenshtein (1966), over words.
    """
    wanted, given = reference.split(), text.split()
    row = list(range(len(given) + 1))
    for at, word in enumerate(wanted, 1):
        diagonal, row[0] = row[0], at
        for place, other in enumerate(given, 1):
            diagonal, row[place] = row[place], min(diagonal + (word != other), row[place] + 1, row[place - 1] + 1)
    return row[-1], len(wanted)


def word_error_rate(reference: str, text: str) -> float:
    """Word errors over the number of words of the reference; NaN if it has none.

    Examples
    --------
    >>> word_error_rate("the cat sat", "the bat sat down")
    0.6666666666666666
    """
    errors, words = word_errors(reference, text)
    return errors / words if words else math.nan


def transcripts(
    session: Session,
    sequences: Sequence[Decoded],
    tokenizer: Tokenizer,
    logits_of: Own | None,
    expected: Sequence[str] | None,
    stops: Collection[int],
    normalize: Callable[[str], str] | None,
) -> pd.DataFrame:
    decode = tokenizer.decode
    if decode is None:
        raise UsageError("a transcript needs tokenizer=, since words are counted and not tokens")
    if isinstance(expected, str) or (expected is not None and len(expected) != len(sequences)):
        raise UsageError(f"expected must be a list with the text of each of the {len(sequences)} prompts")

    def text(ids: list[int]) -> str:
        words = str(decode(ids))
        return " ".join((normalize(words) if normalize is not None else words).split())

    rows: list[list[Any]] = []
    for number, found in enumerate(sequences):
        if len(found.ids) == found.prompted:
            raise UsageError("there is no text that was generated; give decode more steps")
        reference = text(_ended(found.ids[found.prompted :], stops))
        runtime = text(_runtime_ids(session, number, found, logits_of, stops))
        given = reference if expected is None else expected[number]
        wanted = " ".join((normalize(given) if normalize is not None and expected is not None else given).split())
        (before, words), (errors, _) = word_errors(wanted, reference), word_errors(wanted, runtime)
        rates = [each / words if words else math.nan for each in (before, errors)]
        rows.append([*map(visible, (wanted, reference, runtime)), words, before, errors, *rates])
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table.index.name = "prompt"
    return table


def _ended(ids: Sequence[int], stops: Collection[int]) -> list[int]:
    end = next((at for at, token in enumerate(ids) if token in stops), len(ids))
    return list(ids[:end])


def _runtime_ids(
    session: Session, number: int, decoded: Decoded, logits_of: Own | None, stops: Collection[int]
) -> list[int]:
    """The tokens that the runtime prefers.

    It runs the reference's draft in one execution; its first other token begins the next.
    """
    prompt, length, size = decoded.ids[: decoded.prompted], len(decoded.ids), len(decoded.calls[0].ids)
    ids: list[int] = list(prompt)
    while True:
        best = torch.nan_to_num(decoded.runtime, -torch.inf).argmax(1).tolist()
        after = [(position.position + 1, token) for position, token in zip(decoded.positions, best, strict=True)]
        flips = [(at, token) for at, token in after if at >= len(ids) and token != decoded.ids[at]]
        at, token = min(flips, default=(len(decoded.ids), -1))
        ids = [*decoded.ids[:at], *([token] if flips else [])]
        said = _ended(ids[len(prompt) :], stops)
        if not flips or len(ids) == length or len(said) < len(ids) - len(prompt):
            return said
        fed = ids[len(prompt) :]
        decoded = decode_one(session, number, prompt, length - len(prompt), size, logits_of, fed=fed, stops=stops)
