"""Faults of language models at a known layer and step, planted into the constants of a lowered program.

``python -m tests.decoding.plants FOLDER [NAME …]`` prints, for correct programs, the flips and how noise explains them;
for each planted fault, the first fault step, the culprit and its proof.
"""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import etviz
from etviz.tensors.metrics import THRESHOLD
from tests.decoding.trained import ROOM, Characters, call, module, program, prompts
from tests.shelf import Shelf

Patch = Callable[[Any], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Plant:
    """A fault: rows of a constant, its wrong value, and where it is first felt.

    `token` is the token whose embedding it is, `step` otherwise the call that uses the rows first; `layer` is where the
    wrong numbers begin, −1 before the layers.
    """

    patch: Patch
    layer: int
    step: int = 0
    token: int = -1

    def first(self, ids: Sequence[int]) -> int:
        """Number of the first call that the fault touches."""
        return self.step if self.token < 0 else list(ids).index(self.token)


def cached(kind: str, layer: int, step: int, factor: float = -2.0) -> Plant:
    """Keys or values of a layer, wrong where they are written at a step."""

    def patch(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
        table = getattr(model.layers[layer].attention.kv_cache, kind)
        wrong = table.clone()
        wrong[step] *= factor
        return table, wrong

    return Plant(patch, layer, step)


def turned(kind: str, step: int) -> Plant:
    """A row of the table of rotations."""

    def patch(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
        table = getattr(model.rope, kind)[:ROOM]
        wrong = table.clone()
        wrong[step] = table[step].flip(0) * -1
        return table, wrong

    return Plant(patch, 0, step)


def embedded(token: int) -> Plant:
    """A token's embedding."""

    def patch(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
        table = model.tok_embeddings.weight
        wrong = table.clone()
        wrong[token] = table[token + 1]
        return table, wrong

    return Plant(patch, -1, token=token)


def normed(layer: int, kind: str = "attention_norm") -> Plant:
    """Weights of a norm, half of them with the wrong sign."""

    def patch(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
        weight = getattr(model.layers[layer], kind).weight
        wrong = weight.clone()
        wrong[: len(weight) // 2] *= -1
        return weight, wrong

    return Plant(patch, layer)


PLANTS: dict[str, Plant] = {
    "keys of layer 0 written at step 5": cached("keys", 0, 5),
    "keys of layer 1 written at step 14": cached("keys", 1, 14),
    "values of layer 0 written at step 9": cached("values", 0, 9),
    "values of layer 1 written at step 3": cached("values", 1, 3),
    "values of layer 1 written at step 20": cached("values", 1, 20),
    "values of layer 0 written at step 0, 30 % too large": cached("values", 0, 0, 1.3),
    "rotation of position 12 (cosine)": turned("freqs_cos", 12),
    "rotation of position 7 (sine)": turned("freqs_sin", 7),
    "embedding of 'e'": embedded(ord("e")),
    "norm of layer 1": normed(1),
}
MORE: dict[str, Plant] = {
    "keys of layer 0 written at step 17": cached("keys", 0, 17),
    "keys of layer 1 written at step 2": cached("keys", 1, 2),
    "keys of layer 1 written at step 8, 50 % too large": cached("keys", 1, 8, 1.5),
    "keys of layer 0 written at step 11, half": cached("keys", 0, 11, 0.5),
    "values of layer 1 written at step 11": cached("values", 1, 11),
    "values of layer 0 written at step 15, 30 % too large": cached("values", 0, 15, 1.3),
    "rotation of position 3 (cosine)": turned("freqs_cos", 3),
    "rotation of position 18 (sine)": turned("freqs_sin", 18),
    "norm of layer 0": normed(0),
    "norm of the feed-forward of layer 0": normed(0, "ffn_norm"),
    "norm of the feed-forward of layer 1": normed(1, "ffn_norm"),
}


def felt(shelf: Shelf, name: str, plant: Plant, run: etviz.Decode) -> int | None:
    """The first call whose logits the plant changes, in the eager model, by more than the run's noise explains."""
    model = module(shelf, name)

    def logits() -> torch.Tensor:
        fresh = copy.deepcopy(model)
        with torch.no_grad():
            return torch.cat([fresh(*call([token], at)) for at, token in enumerate(run.sequences[0].ids[:-1])])

    right = logits()
    was, wrong = plant.patch(model)
    was.copy_(wrong)
    each, _ = run.sequences[0].noise_of_rows()
    beyond = (logits() - right).square().mean(-1).sqrt() >= THRESHOLD * torch.tensor(each)
    return int(beyond.nonzero()[0]) if beyond.any() else None


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()


def planted(shelf: Shelf, name: str, plant: Plant, folder: Path) -> Path:
    """The folder of the right program's ETRecord and the wrong program."""
    right = program(shelf, name)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(right / "etrecord.bin", folder)
    was, wrong = plant.patch(module(shelf, name))
    content = (right / "model.pte").read_bytes()
    assert _bytes(was) in content
    (folder / "model.pte").write_bytes(content.replace(_bytes(was), _bytes(wrong)))
    return folder


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def correct(shelf: Shelf, name: str, count: int = 20, steps: int = 64) -> None:
    """Flips of a correct program, and how noise explains them."""
    run = etviz.decode(program(shelf, name), prompts(count), tokenizer=Characters(), steps=steps)
    found, flips = run.steps, run.steps[~run.steps["agrees"]]
    faults = flips[~flips["explained"].fillna(value=False).astype(bool)]
    ratio: npt.NDArray[np.float64] = (found["margin_shift"].abs() / found["margin_noise"]).to_numpy()
    _say(
        f"{name}: {len(found)} positions, {len(flips)} flips, {len(faults)} of them called faults; severity at most "
        f"{found['severity'].max():.2f}, |shift|/noise at most {ratio.max():.2f}, KL mean {found['kl'].mean():.2g}, "
        f"first fault {None if run.first_fault is None else int(run.first_fault['step'])}"
    )


def faults(shelf: Shelf, name: str, root: Path, steps: int = 24) -> None:
    """First fault step, where it is felt first, culprit and proof of each planted fault."""
    exact = began = 0
    plants = {what: plant for what, plant in (PLANTS | MORE).items() if plant.token < 0 or "8da4w" not in name}
    for what, plant in plants.items():
        folder = planted(shelf, name, plant, root / f"{name}-{what}".replace(" ", "_").replace("'", ""))
        run = etviz.decode(folder, prompts(2)[1], tokenizer=Characters(), steps=steps)
        first, expected = run.first_fault, plant.first(run.sequences[0].ids)
        step = None if first is None else int(first["step"])
        visible = felt(shelf, name, plant, run)
        exact += step == visible
        line = f"{name}: {what}: planted {expected}, felt {visible}, first fault {step}; {int(run.flips.sum())} flips"
        if step is not None:
            why = run.why(step)
            top = why.iloc[0]
            began += int(top["step"]) == expected
            proof = run.what_if(
                step, [*why.index[(why["run"] == top["run"]) & (why["instruction"] == top["instruction"])]]
            )
            line += f"; {why.attrs['sentence']} KL {proof.kl_before:.2g} → {proof.kl_after:.2g} nats"
        _say(line)
    _say(f"{name}: of {len(plants)}, {exact} are found where they are felt, {began} traced to where they were planted")


def main(root: Path, *wanted: str) -> None:
    """Print the tables: of correct programs by name, and of planted faults by ``planted:NAME``."""
    etviz.options.isolation = "never"
    shelf = Shelf(root)
    for item in wanted or ("custom", "gained_bf16", "gained_8da4w", "planted:custom", "planted:gained_8da4w"):
        kind, _, name = item.rpartition(":")
        if kind:
            faults(shelf, name, root)
        else:
            correct(shelf, name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
