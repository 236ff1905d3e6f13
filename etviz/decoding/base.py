"""llama.cpp's log probabilities as the reference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from etviz.artifacts.kl_base import KlBase
from etviz.decoding.sequence import Decoded
from etviz.errors import UsageError


def prompts_of(base: KlBase, prompts: Any, begin: int | None = None) -> list[list[int]]:
    """`prompts` is None for all chunks, or the number of the first ones.

    llama.cpp evaluates each chunk with the token that begins a text (`begin`) in its first place, if the model takes
    one, and writes the text's own token there. The first chunk tells: the text itself then begins with it.
    """
    if prompts is None:
        prompts = len(base.tokens)
    if isinstance(prompts, bool) or not isinstance(prompts, int) or not 0 < prompts <= len(base.tokens):
        raise UsageError(
            f"prompts must be None or a number of chunks from 1 to {len(base.tokens)}, since the file of log "
            f"probabilities holds its own tokens; found {prompts!r}"
        )
    rows = base.tokens[:prompts].tolist()
    return [[rows[0][0], *chunk[1:]] for chunk in rows] if rows[0][0] == begin else rows


def against(run: Decoded, base: KlBase, chunk: int) -> Decoded:
    """A decoded chunk with the file's log probabilities as reference, at the positions that the file scores.

    Both sides are clamped to the file's smallest. Its steps count as noise: step/√12 (uniform rounding).
    """
    if run.runtime.shape[1] != base.vocabulary:
        raise UsageError(
            f"reference: {base.path} has a vocabulary of {base.vocabulary}, the program one of {run.runtime.shape[1]}"
        )
    rows, steps = base.log_probabilities(chunk)
    places = {position: at for at, position in enumerate(base.scored)}
    kept = [at for at, item in enumerate(run.positions) if item.position in places]
    if not kept:
        raise UsageError(f"reference: {base.path} scores none of the positions that chunk {chunk} has logits for")
    chosen = [places[run.positions[at].position] for at in kept]
    reference = torch.from_numpy(rows[chosen])
    runtime = run.runtime[kept].double().log_softmax(1)
    runtime = torch.where(runtime.isnan(), runtime, runtime.maximum(reference.amin(1, keepdim=True)))
    rounding = tuple(step / math.sqrt(12) for step in steps[chosen].tolist())
    positions = tuple(run.positions[at] for at in kept)
    return replace(run, positions=positions, reference=reference, runtime=runtime, rounding=rounding)
