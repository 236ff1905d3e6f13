"""What is written for Model Explorer is read by Model Explorer's own package, and says what the gaps say."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import etviz
from etviz.errors import ArtifactError, UsageError
from tests.exporting.test_chrome_trace import read
from tests.programs import Executed

dacite = pytest.importorskip("dacite", reason="ai-edge-model-explorer is not installed")
graph_builder = pytest.importorskip("model_explorer.graph_builder", reason="ai-edge-model-explorer is not installed")
node_data_builder = pytest.importorskip("model_explorer.node_data_builder")


@pytest.fixture
def files(program: Executed, tmp_path: Path) -> list[Path]:
    return program.inspection.export.model_explorer(tmp_path / "model.json")


@pytest.fixture
def graph(files: list[Path]) -> Any:
    loaded = dacite.from_dict(graph_builder.GraphCollection, read(files[0]), dacite.Config(strict=True))
    return loaded.graphs[0]


def attributes(node: Any) -> dict[str, str]:
    return {item.key: item.value for item in node.attrs}


def test_every_instruction_and_every_operator_inside_a_delegate_is_a_node(graph: Any, program: Executed) -> None:
    tree = program.inspection.tree
    kinds = [tree.kind[int(node.id)] for node in graph.nodes]
    assert len({node.id for node in graph.nodes}) == len(graph.nodes)
    for kind in ("kernel", "inner", "delegate"):
        assert kinds.count(kind) == tree.kind.count(kind)
    instructions = {int(a["instruction"]) for a in map(attributes, graph.nodes) if "instruction" in a}
    assert instructions >= set(program.inspection.coverage["instruction"])


def test_layers_are_modules_and_delegates(graph: Any, program: Executed) -> None:
    tree = program.inspection.tree
    for node in graph.nodes:
        at = int(node.id)
        layers = [layer for layer in node.namespace.split("/") if layer]
        if tree.kind[at] == "kernel":
            assert ".".join(layers) == tree.module[at]
        elif tree.kind[at] == "inner":
            assert layers[-1].startswith(tree.backend[at])
            assert tree.module[at] == "" or tree.module[at].startswith(".".join(layers[:-1]))


def test_edges_join_nodes_that_are_there_and_reach_every_output(graph: Any, program: Executed) -> None:
    names = {node.id for node in graph.nodes}
    readers = {edge.sourceNodeId for node in graph.nodes for edge in node.incomingEdges}
    assert readers <= names
    tree = program.inspection.tree
    for node in graph.nodes:
        if tree.kind[int(node.id)] == "delegate":
            assert node.incomingEdges
            assert all(tree.kind[int(edge.sourceNodeId)] == "inner" for edge in node.incomingEdges)


def test_nodes_tell_the_metrics_of_their_rows(graph: Any, program: Executed) -> None:
    gaps = program.inspection.gaps
    nodes = {
        int(about["instruction"]): about
        for node in graph.nodes
        if "instruction" in (about := attributes(node)) and about["op"] != "cond"
    }
    for instruction, rows in gaps.groupby("instruction"):
        worst = rows["severity"].max()
        shown = nodes[int(str(instruction))].get("severity")
        assert (shown is None) == (math.isnan(worst) and rows["severity"].isna().all())
        if shown is not None and not (rows["status"] == "non-finite mismatch").any():
            assert float(shown) == pytest.approx(worst, rel=1e-5)


def test_node_data_holds_the_severities(files: list[Path], graph: Any, program: Executed) -> None:
    assert [path.name for path in files] == ["model.json", "model.severity.json", "model.introduced_severity.json"]
    gaps, tree = program.inspection.gaps, program.inspection.tree
    for path, metric in zip(files[1:], ("severity", "introduced_severity"), strict=True):
        data = read(path)[graph.id]
        texts = {node: item for node, item in data["results"].items() if isinstance(item["value"], str)}
        numbers = {node: item for node, item in data["results"].items() if node not in texts}
        loaded = dacite.from_dict(
            node_data_builder.GraphNodeData, data | {"results": numbers}, dacite.Config(strict=True)
        )
        assert set(data["results"]) <= {node.id for node in graph.nodes}
        assert [item.stop for item in loaded.gradient] == sorted(item.stop for item in loaded.gradient)
        assert (loaded.gradient[0].stop, loaded.gradient[-1].stop) == (0, 1)
        for node, item in loaded.results.items():
            known = gaps[metric].tolist()
            assert item.value in known
            if tree.kind[int(node)] != "inner":
                assert item.value in gaps[gaps["instruction"] == tree.instruction[int(node)]][metric].tolist()
        assert bool(texts) == bool(
            (gaps["status"] == "non-finite mismatch").any() or gaps[metric].map(math.isinf).any()
        )


def test_the_package_takes_the_files(files: list[Path], graph: Any) -> None:
    config = pytest.importorskip("model_explorer.config").ModelExplorerConfig()
    config.add_model_from_path(str(files[0]))
    for path in files[1:]:
        config.add_node_data_from_path(str(path), "model.json")
        loaded = {name: node_data_builder.GraphNodeData(**data) for name, data in read(path).items()}
        assert json.loads(node_data_builder.ModelNodeData(loaded).to_json_string())[graph.id]["results"]
    assert config.has_data_to_encode_in_url()


def test_nothing_is_left_where_a_file_can_not_be_written(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    inspection = executed("plain_cnn").inspection
    (tmp_path / "model.severity.json").mkdir()
    with pytest.raises(ArtifactError, match="folder"):
        inspection.export.model_explorer(tmp_path / "model.json")
    assert [path.name for path in tmp_path.iterdir()] == ["model.severity.json"]


def test_without_a_program_there_is_no_graph(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    alone = shutil.copy(executed("plain_cnn").path("etdump"), tmp_path)
    bare = etviz.load(etdump=alone)
    with pytest.raises(UsageError, match="do not hold the program"):
        bare.export.model_explorer(tmp_path / "model.json")
    trace = read(bare.export.chrome_trace(tmp_path / "trace.json"))
    assert any(event.get("cat") == "kernel" for event in trace["traceEvents"])
