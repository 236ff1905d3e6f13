"""A known error in one operator of what the runtime executes, at 20 random places: it must be found each time.

The wrong values are written into the constants of the `.pte`, inside of a delegate's payload or among the program's
own, and the record is made to belong to that `.pte`. So the runtime really computes with them and passes on what comes
out, while the reference does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import etviz
from etviz.analysis.analysis import Analysis
from etviz.artifacts.record.checksum import checksum_of
from etviz.artifacts.record.record_file import read_record, write_record
from etviz.graph.ir import Graph, refs
from etviz.loading.artifact_set import ArtifactSet
from etviz.loading.load import read
from etviz.pipeline.execute import execute
from tests.programs import Executed
from tests.zoo.judge import spoken_for

PLACES = 20
PROGRAMS = ("encoder", "plain_cnn", "residual_cnn")


@dataclass(frozen=True)
class Planted:
    """A program with an error in it; `culprit` is the instruction that reads the changed constant.

    `by_handles` is what the ETRecord alone, without `.pte` and record, tells of the same run.
    """

    place: str
    culprit: int
    inspection: etviz.Inspection
    by_handles: etviz.Inspection

    def share(self) -> tuple[float, float]:
        """The culprit's share of the worst output's error, and the sum of all."""
        found = self.inspection.attribution()
        return float(found.loc[found["instruction"] == self.culprit, "share"].sum()), found.attrs["sum"]


def _readers(graph: Graph, target: str) -> set[int]:
    """Instructions that read a constant, themselves or inside of their delegate."""
    names = {item.name for item in graph.inputs if item.kind != "user" and item.target.endswith(f"/{target}")}
    found = {n.instruction for n in graph.nodes if names & set(refs((n.args, n.kwargs)))}
    for node in graph.nodes:
        if node.target == "delegate" and _readers(graph.subgraphs[node.subgraphs[0]], target):
            found.add(node.instruction)
    return found


def _candidates(program: Executed) -> Iterator[tuple[str, bytes, torch.Tensor]]:
    """``(name, bytes, values)`` of constants that stand once in the `.pte` and are those of one operator.

    Equal constants are stored once for all operators that read them, so they are left out.
    """
    raw = program.path("pte").read_bytes()
    graph = read_record(program.path("record")).graphs["forward"]
    constants = program.model.state_dict()
    content = [tensor.numpy().tobytes() for tensor in constants.values()]
    for name, tensor in constants.items():
        layouts = [tensor, tensor.permute(0, 2, 3, 1)] if tensor.dim() == 4 else [tensor]
        for layout in layouts:
            values = layout.detach().contiguous()
            found = raw.count(values.numpy().tobytes())
            alone = content.count(tensor.numpy().tobytes()) == len(_readers(graph, name)) == 1
            if values.numel() > 1 and found == 1 and alone:
                yield name, values.numpy().tobytes(), values
                break


def _plant(program: Executed, name: str, old: bytes, values: torch.Tensor, folder: Path, rng: random.Random) -> Planted:
    folder.mkdir()
    wrong = values.clone()
    row = rng.randrange(len(wrong))
    wrong[row] = wrong[row] * 1.5 + 0.1
    pte = folder / "model.pte"
    pte.write_bytes(program.path("pte").read_bytes().replace(old, wrong.numpy().tobytes()))
    record = read_record(program.path("record"))
    write_record(replace(record, pte_checksum=checksum_of(pte)), folder / "model.etviz")
    run = execute(pte, [tree_leaves(program.inputs)], workdir=folder)
    assert run.etdump is not None
    log: Any = {"etrecord": program.path("etrecord"), "debug_buffer": run.debug_buffer}
    files = ArtifactSet.open(run.etdump, pte=pte, record=folder / "model.etviz", **log)
    inspection = etviz.Inspection(Analysis(read(files, program.inputs, None, 1.0, ran_here=True)))
    alone = ArtifactSet.open(run.etdump, **log)
    by_handles = etviz.Inspection(Analysis(read(alone, program.inputs, None, 1.0, ran_here=True)))
    (culprit,) = _readers(record.graphs["forward"], name)
    return Planted(f"{program.name}: {name}[{row}]", culprit, inspection, by_handles)


@pytest.fixture(scope="module")
def planted(executed: Callable[[str], Executed], tmp_path_factory: pytest.TempPathFactory) -> list[Planted]:
    """The same operator may be hit twice, in its weight and in its bias, or in two rows."""
    rng = random.Random(20)
    programs = [executed(name) for name in PROGRAMS]
    candidates = [(program, *found) for program in programs for found in _candidates(program)]
    folder = tmp_path_factory.mktemp("planted")
    chosen = rng.sample(candidates, PLACES)
    return [_plant(*place, folder / str(number), rng) for number, place in enumerate(chosen)]


def test_planted_operator_is_the_worst(planted: list[Planted]) -> None:
    """By default, that is by introduced severity."""
    found = {case.place: int(case.inspection.worst(1)["instruction"].iloc[0]) for case in planted}
    assert found == {case.place: case.culprit for case in planted}


def test_planted_operator_is_the_worst_by_debug_handle(planted: list[Planted]) -> None:
    """With the ETRecord alone, wherever a row with an introduced gap speaks for it; elsewhere nothing is named."""
    told = 0
    for case in planted:
        found = case.by_handles
        speaks = [case.culprit in spoken_for(row) for _, row in found.gaps.iterrows()]
        if found.gaps.loc[speaks, "introduced_severity"].notna().any():
            told += 1
            assert case.culprit in spoken_for(found.worst(1).iloc[0]), case.place
            assert found.first_divergence is not None, case.place
            assert case.culprit in spoken_for(found.first_divergence), case.place
        else:
            assert found.first_divergence is None, case.place
            assert "where it is known" in found.summary(), case.place
    assert told >= 0.85 * PLACES


def test_total_gap_often_blames_another(planted: list[Planted]) -> None:
    def blamed(case: Planted, by: str) -> int:
        return int(case.inspection.worst(1, by)["instruction"].iloc[0])

    for by in ("severity", "rmse", "max_abs"):
        assert sum(blamed(case, by) != case.culprit for case in planted) >= PLACES // 4, by


def test_attribution_gives_the_planted_operator_its_error(planted: list[Planted]) -> None:
    for case in planted:
        share, total = case.share()
        assert share >= 0.9, case.place
        assert total == pytest.approx(1.0, abs=0.1), case.place
