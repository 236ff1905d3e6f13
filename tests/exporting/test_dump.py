"""All tensors of a run in files that other tools read, and the graph as a picture."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from etviz.errors import UsageError
from etviz.view.export.tensors import write_tensors
from tests.programs import Executed

SVG = "{http://www.w3.org/2000/svg}"


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    whole = a.shape == b.shape and a.dtype == b.dtype
    return whole and torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


@pytest.mark.parametrize("name", ["encoder", "digits_int8", "counter"])
def test_every_tensor_of_a_run(name: str, executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """Bit for bit what Python has, over several files; what has no reference says why."""
    inspection = executed(name).load()
    delegates = inspection.gaps.index[inspection.gaps["kind"] == "delegate"]
    if len(delegates):
        inspection.zoom(delegates[0])
    whole = json.loads(inspection.export.tensors(tmp_path / "whole").read_text())
    index = json.loads(write_tensors(inspection.analysis, tmp_path / "tensors", most=64).read_text())
    assert [item["row"] for item in whole["rows"]] == [item["row"] for item in index["rows"]]
    files = {path.name: load_file(path) for path in (tmp_path / "tensors").glob("*.safetensors")}
    kept: list[dict[str, Any]] = [item for item in index["rows"] if "reference" in item]
    assert len(files) > 1
    assert len(index["rows"]) == len(inspection.analysis.rows)
    for item in kept:
        for side, tensor in zip(("reference", "runtime"), inspection.tensors(item["row"]), strict=True):
            assert _same(files[item[side]["file"]][item[side]["key"]], tensor)
    for item in index["rows"]:
        assert ("reference" in item) != bool(item.get("missing"))
    assert len(index["outputs"]) == len(inspection.outputs)
    for item, (_, row) in zip(index["outputs"], inspection.outputs.iterrows(), strict=True):
        assert tuple(item["runtime"]["shape"]) == row["shape"]
        wanted = inspection.tensors(row)
        assert _same(files[item["runtime"]["file"]][item["runtime"]["key"]], wanted[1])


@pytest.mark.parametrize("name", ["encoder", "digits_int8", "branches"])
def test_the_delegated_graph_as_a_picture(name: str, executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """A box for each node of the tree, coloured as the table is, beside its siblings and inside its delegate."""
    inspection = executed(name).load()
    root = ET.parse(inspection.export.svg(tmp_path / "graph.svg")).getroot()
    tree = inspection.tree
    groups = root.findall(f"{SVG}g")
    below = range(tree.kind.index("method") + 1, tree.kind.index("method") + tree.size[tree.kind.index("method")])
    assert len(groups) == len(below)
    rects = [{key: float(g[1].attrib[key]) for key in ("x", "y", "width", "height")} for g in groups]
    inside = {at: at + tree.size[at] for at in below}
    for (a, one), (b, other) in itertools.combinations(zip(below, rects, strict=True), 2):
        apart = any(
            one[at] + one[size] <= other[at] or other[at] + other[size] <= one[at]
            for at, size in (("x", "width"), ("y", "height"))
        )
        assert apart != (a < b < inside[a])
    levels = {int(row["instruction"]): set[str]() for _, row in inspection.gaps.iterrows()}
    for gap in inspection.analysis.tables.gaps:
        levels[gap.instruction].add(gap.level)
    for at, group in zip(below, groups, strict=True):
        if tree.kind[at] in ("kernel", "delegate") and tree.instruction[at] in levels:
            assert group.get("data-level") in levels[tree.instruction[at]]
    with pytest.raises(UsageError, match="by must be a column of gaps"):
        inspection.export.svg(tmp_path / "graph.svg", by="nope")
