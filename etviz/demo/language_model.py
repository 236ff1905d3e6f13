"""`etviz demo --llm`: a language model from training to its tokens; and a planted cache fault, found and proved."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from etviz.artifacts.files import make_folder
from etviz.decoding.entry import decode
from etviz.decoding.result import Decode, TokenAnswer
from etviz.demo.llama import ROOM, Characters, docstrings, llama, quantized, train
from etviz.demo.planted import replace_once
from etviz.pipeline.lower import lower
from etviz.upstream.executorch import quietly

LAYER: Final = 1
STEP: Final = 16
_STEPS: Final = 16
_PROMPTS: Final = ((1_000, 12), (5_000, 12))


@dataclass(frozen=True, slots=True)
class LanguageDemo:
    """Results of the demo.

    ``planted`` in `folder` has the program with the fault, `answer` what etviz says of it.
    """

    folder: Path
    against_float: Decode
    run: Decode
    planted: Decode
    what: str
    answer: TokenAnswer | None


def run_language_demo(folder: Path, say: Callable[[str], None]) -> LanguageDemo:
    """Train, quantize to 8da4w, lower to XNNPACK, decode; then plant a cache fault."""
    make_folder(folder)
    with quietly():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    say("Training a small Llama on the standard library's docstrings, letter by letter")
    weights = train()
    say("Quantizing to 8da4w and lowering to XNNPACK")
    example = torch.tensor([[1]]), {"input_pos": torch.tensor([0])}
    lower(quantized(weights), example, folder, partitioner=[XnnpackPartitioner()], strict=False)
    prompts, words = [docstrings()[at : at + length] for at, length in _PROMPTS], Characters()
    given: dict[str, Any] = {"tokenizer": words, "steps": _STEPS}
    say(f"Decoding {len(prompts)} prompts, against the program's reference and against the float model")
    run = decode(folder / "model.pte", prompts, **given)
    against_float = decode(folder / "model.pte", prompts, reference=_float(weights), **given)
    what = f"the slot table of layer {LAYER} sends position {STEP} to slot {STEP - 1}, in the .pte alone"
    say(f"Planting a fault: {what}")
    device = folder / "planted"
    device.mkdir(exist_ok=True)
    shutil.copy(folder / "etrecord.bin", device / "etrecord.bin")
    plant(folder / "model.pte", device / "model.pte")
    planted = decode(device / "model.pte", prompts[:1], **given)
    say("Finding it, and proving it")
    return LanguageDemo(folder, against_float, run, planted, what, planted.answer())


def _float(weights: dict[str, torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    model = llama(cached=False).eval()
    model.load_state_dict(weights, strict=False)
    return model


def plant(pte: Path, target: Path) -> None:
    right = np.array([*range(ROOM), LAYER], "<i8")
    wrong = right.copy()
    wrong[STEP] = STEP - 1
    replace_once(pte, target, right, wrong, f"the slot table of layer {LAYER} is")
