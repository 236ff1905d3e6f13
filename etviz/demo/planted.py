"""The demo's planted fault: one per-channel scale of the quantized weights, changed in the emitted program alone.

The program runs, and no longer knows one of the ten digits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from etviz.artifacts.files import write_file
from etviz.errors import ArtifactError

if TYPE_CHECKING:
    from etviz.demo.digits import DigitsNet

CHANNEL: Final = 4
FACTOR: Final = 0.25
_LARGEST: Final = 127.0


def plant(model: DigitsNet, pte: Path, target: Path) -> None:
    """Write a copy of a program with another scale of one class.

    Scales of the last layer's weights are max|w| / 127 by output channel.
    """
    right = (model.head.weight.detach().abs().amax(1) / _LARGEST).numpy().astype("<f4")
    wrong = right.copy()
    wrong[CHANNEL] *= np.float32(FACTOR)
    replace_once(pte, target, right, wrong, "the scales of the last layer are")


def replace_once(pte: Path, target: Path, right: np.ndarray, wrong: np.ndarray, what: str) -> None:
    content = pte.read_bytes()
    times = content.count(right.tobytes())
    if times != 1:
        raise ArtifactError(pte, f"{what} in it {times} times", found=times, expected=1)
    write_file(target, "the program with the planted fault", content.replace(right.tobytes(), wrong.tobytes()))
