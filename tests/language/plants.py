"""Faults of language models as they really happened, planted before the program is lowered.

``python -m tests.language.plants FOLDER [BASE ...]`` makes them, loads each with the record of the right program, and
prints which are named first, and which are not.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

import etviz
from etviz.artifacts.record.record_file import read_record
from etviz.artifacts.record.weights import Weights
from etviz.errors import EtvizError
from etviz.graph.ir import Graph, Node
from etviz.loading.artifact_set import ArtifactSet
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from tests.language.programs import RECIPES, Recipe, calls_of, model_of
from tests.zoo.judge import spoken_for
from tests.zoo.plants import Change, argument, constant, scaled, stale, swapped, together, transposed

STEPS = {"ring": 12}
"""Steps of a base, 4 by default: of a ring of 8 positions more than it holds."""


def _negated(table: torch.Tensor) -> torch.Tensor:
    return -table


def _interleaved(table: torch.Tensor) -> torch.Tensor:
    return table.flip(-1)


def _other_groups(weight: torch.Tensor) -> torch.Tensor:
    return weight.roll(32, -1)


def _late(table: torch.Tensor) -> torch.Tensor:
    return table.roll(1, 0)


def _one_more(mask: torch.Tensor) -> torch.Tensor:
    return mask.roll(1, 1).maximum(mask)


def _another(weight: torch.Tensor) -> torch.Tensor:
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(7), dtype=weight.dtype)
    return weight.square().mean().sqrt() * noise


PLANTS: dict[str, dict[str, Change]] = {
    "custom": {
        "key cache: always slot 0": argument("update_cache", 0, 2, 0),
        "value cache: always slot 0": argument("update_cache", 3, 2, 0),
        "key cache: always slot 5": argument("update_cache", 2, 2, 5),
        "attention scale": argument("custom_sdpa", 1, 7, 0.5),
        "rope: other theta": constant("index.Tensor", 0, 0, lambda table: table**3),
        "rope: wrong direction": constant("index.Tensor", 1, 0, _negated),
        "rope: interleaved": constant("index.Tensor", 0, 0, _interleaved),
        "rope: one position late": constant("index.Tensor", 1, 0, _late),
        "query heads swapped": constant("linear", 0, 1, swapped(16)),
        "key heads swapped": constant("linear", 1, 1, swapped(16)),
        "value heads swapped": constant("linear", 2, 1, swapped(16)),
        "output projection transposed": constant("linear", 3, 1, transposed),
        "stale gate": constant("linear", 4, 1, stale),
        "channel of the second layer's values × 1.1": constant("linear", 9, 1, scaled(1.1)),
        "embedding is another one's": constant("embedding", 0, 0, stale),
        "output weights are another one's": constant("linear", 14, 1, stale),
        "epsilon of a norm": argument("add.Tensor", 0, 1, 1e-2),
    },
    "quantized_cache": {
        "key cache: always slot 0": argument("update_cache", 0, 2, 0),
        "attention scale": argument("custom_sdpa", 0, 7, 0.1),
        "stale weight": constant("linear", 5, 1, stale),
        "value heads swapped": constant("linear", 9, 1, swapped(16)),
        "keys on a grid of 7 bits": argument("quantize_per_token", 0, 3, -64),
        "scales of keys: always slot 0": argument("update_cache", 1, 2, 0),
    },
    "custom_8da4w": {
        "4-bit groups in another order": constant("linear", 3, 1, _other_groups),
        "4-bit groups of the second layer": constant("linear", 10, 1, _other_groups),
        "attention scale": argument("custom_sdpa", 0, 7, 0.1),
        "value cache: always slot 0": argument("update_cache", 1, 2, 0),
    },
    "ring": {
        "slots in another order": constant("index.Tensor", 0, 0, lambda table: table**3),
        "attention scale": argument("custom_sdpa", 1, 7, 0.1),
        "query heads swapped": constant("linear", 0, 1, swapped(16)),
        "stale weight": constant("linear", 6, 1, stale),
        "window one too short": argument("lt.Scalar", 1, 1, 7),
        "window one too long": argument("lt.Scalar", 3, 1, 9),
        "mask of booleans, added as numbers": together(
            argument("where.Scalar", 0, 1, 1.0), argument("where.Scalar", 0, 2, 0.0)
        ),
    },
    "plain": {
        "mask lets one more position through": constant("index.Tensor", 2, 0, _one_more),
        "attention scale": argument("scaled_dot_product_attention", 1, "scale", 0.5),
    },
    "gemma_capped": {
        "norm without + 1": argument("add.Tensor", 1, 1, 0.0),
        "last norm without + 1": argument("add.Tensor", 25, 1, 0.0),
        "no soft-cap": together(argument("div.Tensor", 0, 1, 1e6), argument("mul.Tensor", 37, 1, 1e6)),
        "soft-cap of another model": together(argument("div.Tensor", 0, 1, 3.0), argument("mul.Tensor", 37, 1, 3.0)),
    },
    "experts_portable": {
        "softmax over another axis": argument("softmax", 0, 1, 0),
        "softmax over another axis in the second layer": argument("softmax", 1, 1, 0),
    },
    "phi": {
        "the last dimensions of queries are rotated": together(
            *(argument("slice.Tensor", 0, place, value) for place, value in ((2, 8), (3, 16))),
            *(argument("slice.Tensor", 1, place, value) for place, value in ((2, 0), (3, 8))),
        ),
        "halves of keys not exchanged": together(
            *(argument("slice.Tensor", 6, place, value) for place, value in ((2, 4), (3, 8))),
            *(argument("slice.Tensor", 7, place, value) for place, value in ((2, 0), (3, 4))),
        ),
    },
    "tied": {"output weights are not those of the embedding": constant("linear", 14, 1, _another)},
}


def _leaves(node: Node, graph: Graph, changed: set[str]) -> str:
    """What a node is applied to beside other nodes' values, with the weights that are other ones marked."""
    weights = {item.name for item in graph.inputs if item.target.rpartition("/")[2] in changed}
    inside = graph.inside(node)
    own = [_leaves(item, inside, changed) for item in inside.nodes]
    return repr((node.target, node.args, node.kwargs, sorted(weights.intersection(node.reads())), own))


def culprits(right: Path, wrong: Path) -> set[int]:
    """The instructions that compute something else."""
    graphs = [read_record(folder / "model.etviz").graphs["forward"] for folder in (right, wrong)]
    held = [weights_of(folder) for folder in (right, wrong)]
    changed = {
        name.rpartition("/")[2] for name in held[0] if name in held[1] and not torch.equal(held[0][name], held[1][name])
    }
    pairs = zip(graphs[0].nodes, graphs[1].nodes, strict=True)
    return {a.instruction for a, b in pairs if _leaves(a, graphs[0], changed) != _leaves(b, graphs[1], set())}


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """All constants of a record."""
    files: dict[str, Any] = {"etrecord": folder / "etrecord.bin", "record": folder / "model.etviz"}
    found = ArtifactSet.open(folder / "etdump.etdp", **files)
    assert found.record is not None
    weights = Weights(found.record, str(files["record"]), found.etrecord)
    return {name: weights[name].clone() for name in weights}


def run(program: ExportedProgram, folder: Path, base: str) -> None:
    """Lower a program and run it, unless that was done already."""
    if (folder / "etdump.etdp").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    calls = calls_of(STEPS.get(base, 4))
    partitioner = [XnnpackPartitioner()] if RECIPES[base].delegated else None
    lowered = lower(program, calls[0], folder, partitioner=partitioner, strict=False)
    execute(lowered.pte, [tree_leaves(call) for call in calls], workdir=folder)


def named(right: Path, wrong: Path, way: str, expected: set[int], steps: int) -> str:
    """Whether the first divergence is one of the planted instructions, or holds its error."""
    files: dict[str, Any] = {"etrecord": right / "etrecord.bin", "debug_buffer": wrong / "debug_buffer.bin"}
    if way == "exact":
        files |= {"record": right / "model.etviz", "pte": right / "model.pte"}
    else:
        alone = wrong / "alone" / "model.pte"
        alone.parent.mkdir(exist_ok=True)
        shutil.copy(wrong / "model.pte", alone)
        files["pte"] = alone
    try:
        found = etviz.load(wrong / "etdump.etdp", inputs=calls_of(steps), **files)
    except EtvizError as error:
        return f"not loaded: {error}"
    first = found.first_divergence
    if first is None:
        return f"nothing named: {found.summary().splitlines()[0]}"
    said = f"#{first['instruction']} {first['op']}"
    return f"named as {said}" if spoken_for(first) & expected else f"other: {said}"


def exported(recipe: Recipe) -> ExportedProgram:
    """Exported anew for each plant: copies of a program share its unbacked symbols."""
    return torch.export.export(model_of(recipe), calls_of(1)[0], strict=False)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(folder: Path, bases: list[str]) -> None:
    """Make, load, print."""
    etviz.options.look_inside = etviz.options.isolation = "never"
    counts: dict[str, list[int]] = {}
    for base in bases or PLANTS:
        right = folder / base
        run(exported(RECIPES[base]), right, base)
        for name, change in PLANTS[base].items():
            wrong = folder / f"{base}-{name}".replace(" ", "_").replace("/", "_")
            try:
                other = exported(RECIPES[base])
                change(other)
                run(other, wrong, base)
                expected = culprits(right, wrong)
            except Exception as error:  # noqa: BLE001 - a plant that can't be made is told
                _say(f"{base}: {name}: not made ({type(error).__name__}: {str(error)[:120]})")
                continue
            for way in ("exact", "derived"):
                said = named(right, wrong, way, expected, STEPS.get(base, 4))
                counts.setdefault(way, []).append(int(said.startswith("named")))
                _say(f"{base}: {name}: {way}: {said} (planted at {sorted(expected)})")
    for way, found in counts.items():
        _say(f"{way}: {sum(found)} of {len(found)} named first")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
