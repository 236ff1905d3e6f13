"""llama.cpp's file of reference log probabilities, which ``llama-perplexity --kl-divergence-base`` writes.

The file (`tools/perplexity/perplexity.cpp`) holds, little-endian: the mark ``_logits_``; context length, vocabulary
size and number of chunks as int32; the token ids of all chunks as int32; then for each chunk a row for every position
of its second half but the last one. A row holds two float32, step and smallest log probability, and a uint16 for each
token, padded to an even number: ``log p = smallest + step · number``. Tokens 16 nats or more below the best one have
the smallest value.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from etviz.artifacts.files import PathLike, open_artifact
from etviz.errors import ArtifactError

_MARK: Final = b"_logits_"
_WHAT: Final = "a file of llama.cpp's log probabilities"
_HEADER: Final = struct.Struct("<8s3i")
_ADVICE: Final = "write it with: llama-perplexity -m MODEL -f TEXT --kl-divergence-base FILE"


@dataclass(frozen=True, slots=True)
class KlBase:
    """Reference log probabilities of a text; `tokens` are int32 of shape [chunks, context]."""

    path: str
    context: int
    vocabulary: int
    tokens: npt.NDArray[np.int32]

    @property
    def scored(self) -> range:
        return range(self.context // 2, self.context - 1)

    def log_probabilities(self, chunk: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """A chunk's log probabilities, float64 [scored positions, vocabulary] in nats, and their steps by position."""
        count, width = len(self.scored), _width(self.vocabulary)
        start = _HEADER.size + self.tokens.nbytes + chunk * count * width * 2
        with open_artifact(self.path, _WHAT, _ADVICE) as data:
            content = data[start : start + count * width * 2]
        if len(content) < count * width * 2:
            raise ArtifactError(self.path, "the file was cut off while it was read", "decode again")
        rows = np.frombuffer(content, "<u2").reshape(count, width)
        scales = np.ascontiguousarray(rows[:, :4]).view("<f4").astype(np.float64)
        if not np.isfinite(scales).all() or (scales[:, 0] < 0).any():
            raise ArtifactError(self.path, f"chunk {chunk} holds NaN, Inf or a negative step", _ADVICE)
        logarithms = rows[:, 4 : 4 + self.vocabulary].astype(np.float64) * scales[:, :1] + scales[:, 1:]
        return logarithms, scales[:, 0]


def _width(vocabulary: int) -> int:
    return 2 * ((vocabulary + 1) // 2) + 4


def read_kl_base(path: PathLike) -> KlBase:
    with open_artifact(path, _WHAT, _ADVICE) as data:
        if data[: len(_MARK)] != _MARK:
            raise ArtifactError(path, f"it is not {_WHAT}: it does not begin with {_MARK.decode()}", _ADVICE)
        if len(data) < _HEADER.size:
            problem = f"it ends after {len(data)} bytes, before its vocabulary: llama-perplexity stopped too early"
            raise ArtifactError(path, problem, "give it a text of at least two contexts, and write the file again")
        context, vocabulary, chunks = _HEADER.unpack(data[: _HEADER.size])[1:]
        for name, value, least in (
            ("context length", context, 3),
            ("vocabulary", vocabulary, 1),
            ("chunks", chunks, 1),
        ):
            if value < least:
                raise ArtifactError(path, f"it states {name}: {value}, which can't be", _ADVICE)
        rows = context - 1 - context // 2
        needed = _HEADER.size + 4 * context * chunks + 2 * chunks * rows * _width(vocabulary)
        if len(data) < needed:
            problem = f"it has {len(data):,} bytes, and {chunks} chunks of {context} tokens need {needed:,}"
            raise ArtifactError(path, problem, "write it again: it was cut off")
        tokens = np.frombuffer(data[_HEADER.size : _HEADER.size + 4 * context * chunks], "<i4")
    return KlBase(str(path), context, vocabulary, tokens.reshape(chunks, context))
