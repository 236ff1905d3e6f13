"""Texts and token ids; what a tokenizer returns is untrusted."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from etviz.artifacts.files import PathLike

_LARGEST: Final = 256 << 20
_LONGEST: Final = 64
_HIDDEN: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories whose characters are shown by number: control, format (bidirectional marks too), and the like."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    encode: Callable[[str], Sequence[int]] | None = None
    decode: Callable[[list[int]], str] | None = None
    begin: int | None = None

    def ids(self, prompt: Any, number: int) -> list[int]:
        """`UsageError` for an empty prompt, or a text without a tokenizer."""
        given = f"prompt {number}"
        if isinstance(prompt, str):
            if self.encode is None:
                raise UsageError(f"{given} is a text; give tokenizer= too, or token ids")
            try:
                encoded = self.encode(prompt)
            except Exception as error:
                raise UsageError(f"tokenizer: it fails on {given}: {type(error).__name__}: {error}") from error
        else:
            encoded = prompt.flatten().tolist() if hasattr(prompt, "flatten") else prompt
        encoded = getattr(encoded, "ids", encoded)  # what the tokenizers package returns
        try:
            ids = [int(token) for token in encoded]
        except (TypeError, ValueError):
            raise UsageError(
                f"{given}: expected a text or token ids, found {type(prompt).__name__}; give a list of prompts"
            ) from None
        if not ids:
            raise UsageError(f"{given} has no tokens")
        return ids

    def text(self, token: int) -> str:
        if self.decode is None:
            return f"[{token}]"
        try:
            return shown(str(self.decode([token])))
        except Exception:  # noqa: BLE001 - a tokenizer may refuse a token in its own way
            return f"[{token}]"


def tokenizer_of(given: Any) -> Tokenizer:
    """From an object with `encode` and `decode`, a path (``tokenizer.json``, a SentencePiece model), or None.

    `UsageError` for others, or without the package that reads the file; `ArtifactError` if it can't be read.
    """
    if given is None:
        return Tokenizer()
    if isinstance(given, (str, os.PathLike)):
        given = _from_file(Path(given))
    if not all(callable(getattr(given, name, None)) for name in ("encode", "decode")):
        raise UsageError(f"tokenizer must have encode and decode, or be a file's path; found {type(given).__name__}")
    return Tokenizer(given.encode, given.decode, _begin(given))


def _begin(given: Any) -> int | None:
    for name in ("bos_token_id", "bos_id"):
        token = getattr(given, name, None)
        token = token() if callable(token) else token
        if isinstance(token, int) and not isinstance(token, bool) and token >= 0:
            return token
    return None


def _from_file(path: PathLike) -> Any:
    path = Path(path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ArtifactError(path, f"the file can't be read ({error.strerror})", "name the tokenizer's file") from error
    if size > _LARGEST:
        raise ArtifactError(path, f"it has {size:,} bytes, more than {_LARGEST:,}", "name the tokenizer's file")
    try:
        if path.suffix == ".json":
            import tokenizers

            return tokenizers.Tokenizer.from_file(str(path))
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except ImportError as error:
        raise UsageError(
            f"tokenizer={str(path)!r} needs the package {error.name}; run: pip install {error.name}"
        ) from None
    except Exception as error:
        raise ArtifactError(
            path,
            f"it is no tokenizer ({type(error).__name__}: {str(error)[:200]})",
            "give a tokenizer.json or a SentencePiece model",
        ) from error


def shown(text: str) -> str:
    r"""One line of at most 64 characters, hidden characters visible.

    Examples
    --------
    >>> shown("a\n\u202eb")
    'a⏎<U+202E>b'
    """
    return visible(text[:_LONGEST] + ("…" if len(text) > _LONGEST else ""))


def visible(text: str) -> str:
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == "\n":
        return "⏎"
    return f"<U+{ord(character):04X}>" if unicodedata.category(character) in _HIDDEN else character
