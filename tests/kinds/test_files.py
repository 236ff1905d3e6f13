"""What needs the inside of the program works from `.pte` and ETRecord alone as it does from the record."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import etviz
from etviz.artifacts.program.program import read_program
from etviz.comparison import constants
from tests.kinds.making import Made
from tests.oracles import same
from tests.programs import FILES

PLACE = ["event_block", "instruction", "output"]


def _rows(found: etviz.Inspection, kind: str) -> dict[tuple[int, ...], int]:
    """By place, the first and the last row of a kind in the first execution."""
    gaps = found.gaps
    chosen = gaps[(gaps["kind"] == kind) & (gaps["event_block"] == gaps["event_block"].min()) & (gaps["output"] == 0)]
    return {tuple(row[PLACE]): int(index) for index, row in chosen.iloc[[0, -1] if len(chosen) else []].iterrows()}


def _row(found: etviz.Inspection, place: tuple[int, ...]) -> int:
    gaps = found.gaps
    (row,) = gaps.index[(gaps[PLACE] == list(place)).all(axis=1)]
    return int(row)


def _inner(inside: etviz.Inspection) -> dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]]:
    """Reference and runtime of every value inside of a delegate, by the name of its operator."""
    rows = inside.analysis.rows
    return {
        (rows.find(row).gap.node.name, int(inside.gaps["output"][row])): inside.tensors(row)
        for row in inside.gaps.index
    }


def test_zoom_from_files_is_that_from_the_record(kind: Made) -> None:
    exact, derived = kind.load_own("exact"), kind.load_own("derived")
    for place, row in _rows(exact, "delegate").items():
        other = _row(derived, place)
        expected, found = exact.zoom(row), derived.zoom(other)
        assert found.faithful is expected.faithful
        assert found.deviation == expected.deviation
        values, others = _inner(found), _inner(expected)
        assert values.keys() == others.keys()
        assert values
        for name, pair in values.items():
            assert all(map(same, pair, others[name])), (place, name)


def test_repro_from_files_is_that_from_the_record(kind: Made, tmp_path: Path) -> None:
    exact, derived = kind.load("exact"), kind.load("derived")
    places = _rows(exact, "delegate") or _rows(exact, "kernel")
    for place, row in list(places.items())[:1]:
        exact.repro(row, tmp_path / "exact")
        derived.repro(_row(derived, place), tmp_path / "derived")
        for name in ("inputs", "expected", "runtime"):
            file = f"{name}.safetensors"
            assert (tmp_path / "derived" / file).read_bytes() == (tmp_path / "exact" / file).read_bytes()


def _altered(made: Callable[[str], Made], name: str, folder: Path) -> etviz.Inspection:
    """A program whose `.pte` holds another weight than its ETRecord: one element was overwritten in the file."""
    program = made(name)
    pte = Path(shutil.copy(program.program / "alone.pte", folder / FILES["pte"]))
    known = read_program(pte)
    specs = [value.tensor for value in known.methods[0].values if value.tensor is not None]
    datas = list(known.named.values()) or [data for spec in specs if (data := known.constant(spec)) is not None]
    content = bytes(max(datas, key=len))
    whole = pte.read_bytes()
    assert whole.count(content) == 1
    other = np.frombuffer(content, np.float32).copy()
    other[5] += 0.25
    pte.write_bytes(whole.replace(content, other.tobytes()))
    return _run(program, pte, folder)


def _run(program: Made, pte: Path, folder: Path) -> etviz.Inspection:
    """What `.pte` and ETRecord tell of a run of this program."""
    from executorch.runtime import Runtime

    run = Runtime.get().load_program(pte, enable_etdump=True, debug_buffer_size=1 << 20)
    entry = run.load_method("forward")
    assert entry is not None
    entry.execute(list(program.runs[0]))
    run.write_etdump_result_to_file(str(folder / FILES["etdump"]), str(folder / FILES["debug_buffer"]))
    buffer = folder / FILES["debug_buffer"]
    return etviz.load(folder / FILES["etdump"], etrecord=program.path("etrecord"), debug_buffer=buffer, pte=pte)


def test_a_weight_that_differs_is_named_first(made: Callable[[str], Made], tmp_path: Path) -> None:
    """In a delegate of XNNPACK: the finding, the summary and the zoom say it, and no installation is blamed."""
    found = _altered(made, "delegate_fp32", tmp_path)
    (constant,) = found.analysis.findings.constants
    assert constant.name == "second.weight"
    assert (constant.elements, constant.differing) == (144, 1)
    assert constant.max_abs == pytest.approx(0.25, abs=1e-6)
    weight = dict(torch.nn.Module.named_parameters(_conv_net()))["second.weight"]
    assert constant.rel_l2 == pytest.approx(0.25 / float(weight.detach().double().norm()), rel=1e-5)
    finding = found.analysis.finder.finding()
    assert finding is not None
    assert constant.change == "element (0, 1, 0, 1) of second.weight is 0.169 instead of −0.0813"
    assert f"other weights than the reference: {constant.change} (1 of 144 elements" in finding.text
    told = f"Constants: differ from the reference's: {constant.change}"
    assert any(line.startswith(told) for line in found.summary().splitlines())
    inside = found.zoom(0)
    assert inside.faithful is True  # the weights that ran are given to the zoomed program
    assert "The delegate in the .pte differs from the reference's: conv2d_1 (another filter)" in inside.summary()
    assert "machine" not in inside.summary()


def test_clipping_inside_of_a_delegate_is_named_by_the_zoom(made: Callable[[str], Made], tmp_path: Path) -> None:
    """The range of the first relu saturates in the payload that ran; the delegate's own output does not tell."""
    program = made("delegate_fp32")
    pte, whole = tmp_path / FILES["pte"], bytearray((program.program / "alone.pte").read_bytes())
    payload = read_program(program.path("pte")).payload("forward", 0)
    assert payload is not None
    unbounded = np.array(math.inf, "<f4").tobytes()
    at = whole.index(bytes(payload)) + bytes(payload).rindex(unbounded)
    whole[at : at + 4] = np.array(0.25, "<f4").tobytes()
    pte.write_bytes(whole)
    found = _run(program, pte, tmp_path)
    assert found.row(0).fingerprints().empty
    inside = found.zoom(0)
    (worst,) = inside.worst(1).index
    assert inside.gaps["op"][worst] == "aten.relu.default"
    names = inside.row(worst).fingerprints()
    assert names["name"][0] == "clipping"
    assert "above 0.25" in names["evidence"][0]


def test_a_weight_of_a_kernel_that_differs_is_named(made: Callable[[str], Made], tmp_path: Path) -> None:
    found = _altered(made, "cond_portable", tmp_path)
    assert [item.name for item in found.analysis.findings.constants] == ["linear.weight"]
    assert found.summary().splitlines()[1].startswith("Constants: differ")


def _conv_net() -> torch.nn.Module:
    from tests.zoo.small import ConvNet

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ConvNet()


def test_equal_constants_are_not_said_to_differ(kind: Made) -> None:
    for way in ("exact", "derived"):
        assert kind.load(way).analysis.findings.constants == ()
        assert "of another run" not in kind.load(way).summary()


@pytest.mark.parametrize("way", ["pte", "alone.pte"])
def test_a_debug_buffer_of_another_program_is_noticed(made: Callable[[str], Made], way: str) -> None:
    program, other = made("masked_transformer"), made("stack")
    found = etviz.load(
        program.path("etdump"),
        etrecord=program.path("etrecord"),
        pte=program.path("pte") if way == "pte" else program.program / way,
        debug_buffer=other.path("debug_buffer"),
        inputs=program.runs,
    )
    assert "The debug buffer is of another run" in found.summary()
    assert set(found.coverage["status"]) == {"not compared"}
    assert found.gaps.empty


def test_files_that_were_found_alike_are_not_compared_again(
    made: Callable[[str], Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until one of them is another file; files that differ are compared each time."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    looked = []
    plain = constants.compare_constants
    monkeypatch.setattr(constants, "compare_constants", lambda *args: looked.append(args) or plain(*args))
    other = tmp_path / "other"
    other.mkdir()
    assert _altered(made, "delegate_fp32", other).analysis.findings.constants
    files: dict[str, Any] = {kind: other / FILES[kind] for kind in ("etdump", "debug_buffer", "pte")}
    files["etrecord"] = made("delegate_fp32").path("etrecord")
    assert etviz.load(**files).analysis.findings.constants
    assert len(looked) == 2
    looked.clear()
    program = made("delegate_fp32")
    files |= {"pte": Path(shutil.copy(program.program / "alone.pte", tmp_path / FILES["pte"]))}
    for _ in range(2):
        assert etviz.load(**files).analysis.findings.constants == ()
    assert len(looked) == 1
    shutil.copy(program.program / "alone.pte", files["pte"])
    assert etviz.load(**files).analysis.findings.constants == ()
    assert len(looked) == 2
