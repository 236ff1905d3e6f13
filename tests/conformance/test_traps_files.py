"""Traps of upstream's tools that have to do with files and with what a program is: ETRecords, modules, delegation.

Every test says what etviz shows. Lines below "upstream:" pin what upstream shows; they fail once upstream is repaired.
"""

from __future__ import annotations

import contextlib
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from executorch.devtools import parse_etrecord
from executorch.devtools.backend_debug import get_delegation_info
from executorch.exir import to_edge_transform_and_lower

from etviz.errors import ArtifactError, EtvizError, UsageError
from tests.conformance.cases import Case, load, upstream
from tests.conformance.test_traps_pairing import changed
from tests.programs import Branches, Executed

Record = Callable[[str, object], None]
Cases = Callable[[str], Case]
Programs = Callable[[str], Executed]


def test_t12_modules_of_a_strict_export(executed: Programs, record_property: Record) -> None:
    """The stack's keys are numbers there; the paths stand in its values. A path is no substring."""
    encoder = executed("encoder")
    assert encoder.recipe.strict
    found = encoder.inspection
    total = found.module_total("blocks.0")
    own = found.gaps[(found.gaps["kind"] == "kernel") & found.gaps["module"].str.match(r"blocks\.0(\.|$)")]
    assert set(own["instruction"]) <= set(total.instructions)
    assert total.latency_ms == pytest.approx(sum(found.time.latency[i] for i in total.instructions))
    assert total.latency_ms > 0
    assert total.worst is not None
    assert str(total.worst["module"]).startswith("blocks.0")
    whole = found.module_total("")
    assert whole.latency_ms == pytest.approx(sum(found.time.latency.values()))
    for fragment in ("block", "locks.0", "blocks.00", "nothing"):
        with pytest.raises(UsageError, match="path of a module"):
            found.module_total(fragment)
    # upstream:
    shown = upstream(encoder).find_total_for_module("blocks")
    assert shown == 0.0
    record_property(
        "figures",
        f"{shown} ms, {total.latency_ms:.3g} ms, {sum(found.time.latency[i] for i in total.instructions):.3g} ms",
    )


def test_t23_without_an_etrecord(case: Cases) -> None:
    """What is there without one is shown: times, operators, and why there is no gap."""
    rows = case("rows")
    alone = rows.folder / "alone.pte"
    alone.write_bytes(rows.path("pte").read_bytes())
    found = load(rows, etrecord=None, pte=alone)
    assert set(found.gaps["status"]) <= {"not compared"}
    assert "give etrecord=" in found.summary()
    assert len(found.time.latency) == len(found.coverage) > 0
    assert set(found.coverage["reason"]) == {"there is no reference, so no value can be compared"}
    # upstream:
    with pytest.raises(AttributeError):
        upstream(rows, etrecord=None).calculate_numeric_gap("MSE")


def test_t24_delegation_after_emission(executed: Programs, record_property: Record) -> None:
    encoder = executed("encoder")
    found = encoder.inspection.delegation
    assert found is not None
    assert found.num_non_delegated_nodes == encoder.info.num_non_delegated_nodes
    # upstream:
    late = get_delegation_info(encoder.emitted.graph_module)
    assert late.num_non_delegated_nodes > encoder.info.num_non_delegated_nodes
    figures = late.num_non_delegated_nodes, found.num_non_delegated_nodes, encoder.info.num_non_delegated_nodes
    record_property("figures", ", ".join(map(str, figures)))


def test_t25_an_etrecord_runs_no_code(case: Cases, tmp_path: Path) -> None:
    """A symbolic size is replaced by an expression that makes a file."""
    rows = case("rows")
    mark = tmp_path / "ran"
    code = f"__import__('pathlib').Path('{mark}').touch() or 7"
    trap = changed(
        rows.path("etrecord"),
        tmp_path / "trap.bin",
        lambda name, content: content.replace(b'"expr_str": "s77"', f'"expr_str": "{code}"'.encode()),
    )
    assert code.encode() in trap.read_bytes()
    for options in ({}, {"pte": None}):
        with contextlib.suppress(EtvizError):
            found = load(rows, etrecord=trap, **options)
            assert found.gaps.empty or found.gaps["mse"].max() < 1e-12
        assert not mark.exists()
    # upstream:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever happens after the code has run
        parse_etrecord(str(trap))
    assert mark.exists()


def test_t26_a_zip_bomb(case: Cases, tmp_path: Path) -> None:
    """64 MB of zeros in 64 KB; upstream inflates whatever is there."""
    rows = case("rows")
    bomb = tmp_path / "bomb.bin"
    with zipfile.ZipFile(rows.path("etrecord")) as old, zipfile.ZipFile(bomb, "w") as new:
        for info in old.infolist():
            if info.filename == "debug_handle_map":
                new.writestr(info.filename, bytes(64 << 20), zipfile.ZIP_DEFLATED)
            else:
                new.writestr(info.filename, old.read(info))
    assert bomb.stat().st_size < 2 << 20
    start = time.process_time()
    with pytest.raises(ArtifactError, match=r"bomb\.bin.*debug_handle_map is compressed"):
        load(rows, etrecord=bomb)
    assert time.process_time() - start < 5


def test_t29_a_branch_with_python_scalars(executed: Programs, tmp_path: Path) -> None:
    """Upstream can't save an ETRecord; half of one is refused, and the record does without."""
    found = executed("branches").inspection
    taken = found.coverage[found.coverage["status"] == "compared"]
    assert len(taken) >= 4
    assert found.gaps["mse"].max() < 1e-10
    # upstream:
    torch.manual_seed(0)
    model, inputs = Branches().eval(), (torch.tensor(True), torch.randn(3, 4))
    edge = to_edge_transform_and_lower(torch.export.export(model, inputs), generate_etrecord=True)
    half = tmp_path / "half.bin"
    with pytest.raises(Exception):  # noqa: B017, PT011 - upstream's SerializeError and its kin
        edge.to_executorch().get_etrecord().save(str(half))
    with pytest.raises(TypeError, match="not subscriptable"):
        upstream(executed("branches"), etrecord=str(half))
    refused = load(executed("branches"), etrecord=half, pte=None)
    assert set(refused.gaps["status"]) <= {"not compared"}
    assert "There is no reference" in refused.summary()
