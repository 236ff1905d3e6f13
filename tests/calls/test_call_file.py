"""Recorded calls: what the wrapped functions receive, the format, its bounds, and damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.runtime import Runtime

import etviz
from etviz.artifacts.call_file import FILE, Writer, read_calls
from etviz.errors import ArtifactError, UsageError
from tests.calls.decoders import Decoder, driver, single_program
from tests.cpp_runner import CppRunner
from tests.shelf import Shelf


@pytest.fixture(scope="module")
def decoder(shelf: Shelf) -> Path:
    return single_program(shelf) / "model.pte"


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    return type(one) is type(two) and one == two


def test_calls_of_the_runtime(decoder: Path, tmp_path: Path) -> None:
    made = [driver([token], at) for at, token in enumerate((3, 1, 4))]
    with etviz.record_calls(tmp_path / "calls") as recorder:
        method = Runtime.get().load_program(decoder).load_method("forward")
        assert method is not None
        inside = [method.execute(call)[0] for call in made]
    assert recorder.calls == 3
    found = read_calls(tmp_path / "calls")
    assert [call.method for call in found.calls] == ["forward"] * 3
    assert [call.fresh for call in found.calls] == [True, False, False]
    assert not found.cut
    for call, wanted in zip(found.calls, made, strict=True):
        assert all(map(_same, call.inputs, wanted))
    after = method.execute(made[0])
    assert recorder.calls == 3
    torch.testing.assert_close(inside[0], after[0])


def test_calls_of_the_bindings(decoder: Path, tmp_path: Path) -> None:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    with etviz.record_calls(tmp_path) as recorder:
        one, two = (_load_for_executorch(str(decoder)) for _ in range(2))
        one.forward(driver([3], 0))
        two.run_method("forward", driver([1], 0))
        one(driver([4], 1))
        recorder.call((driver([5], 2), {"more": 7}), "decode")
    calls = read_calls(tmp_path).calls
    assert [call.method for call in calls] == ["forward", "forward", "forward", "decode"]
    assert [call.fresh for call in calls] == [True, True, False, False]
    assert calls[2].notes == ("program 0",)
    assert calls[3].inputs[-1] == 7
    assert int(calls[2].inputs[0]) == 4


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "bool", "float64", "uint16"])
def test_every_value_comes_back(tmp_path: Path, dtype: str) -> None:
    value = (torch.arange(24).reshape(2, 3, 4) % 5).to(getattr(torch, dtype))
    given = (value, value.transpose(0, 2), value[:0], value[0, 0, 0], 7, -2.5, True, None)
    writer = Writer(tmp_path)
    writer.call("méthode", given)
    writer.close()
    (call,) = read_calls(tmp_path).calls
    assert call.method == "méthode"
    assert all(map(_same, call.inputs, given))


def test_recording_is_bounded(tmp_path: Path) -> None:
    with etviz.record_calls(tmp_path, limit=1000) as recorder:
        for _ in range(100):
            recorder.call((torch.ones(10),))
    found = read_calls(tmp_path)
    assert found.cut == f"the recording reached its limit after call {len(found.calls) - 1}"
    assert 5 < len(found.calls) < 30
    assert (tmp_path / FILE).stat().st_size < 1100
    with (
        pytest.raises(UsageError, match="limit must be a positive number of bytes, found 0"),
        etviz.record_calls(tmp_path, limit=0),
    ):
        pass


def test_the_last_call_is_cut_off(tmp_path: Path) -> None:
    with etviz.record_calls(tmp_path) as recorder:
        for at in range(3):
            recorder.call(driver([at], at))
    path = tmp_path / FILE
    whole = path.read_bytes()
    for missing in (1, 5, 30):
        path.write_bytes(whole[:-missing])
        found = read_calls(tmp_path)
        assert len(found.calls) == 2
        assert "call 2 is cut off" in found.cut
        table = etviz.lint_calls(tmp_path, driver=driver)
        assert table["what"].tolist() == ["recording"]
        assert table["found"][0] == found.cut


def test_every_byte_may_be_another(tmp_path: Path) -> None:
    with etviz.record_calls(tmp_path) as recorder:
        recorder.call(driver([1], 0))
    path = tmp_path / FILE
    whole = path.read_bytes()
    for at in range(12, len(whole)):
        for byte in (0, 1, 255):
            path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            try:
                read_calls(tmp_path)
            except ArtifactError:
                continue


def test_load_takes_recorded_calls(tmp_path: Path) -> None:
    """The state of a cache follows from the calls before."""
    made = [driver([token], at) for at, token in enumerate((3, 1, 4))]
    etviz.debug(Decoder().eval(), made, strict=False, workdir=tmp_path)
    with etviz.record_calls(tmp_path / "calls") as recorder:
        for call in made:
            recorder.call(call)
    names = {"etrecord": "etrecord.bin", "pte": "model.pte", "debug_buffer": "debug_buffer.bin"}
    files: dict[str, Any] = {kind: tmp_path / name for kind, name in names.items()}
    found = etviz.load(tmp_path / "etdump.etdp", calls=tmp_path / "calls", **files)
    plain = etviz.load(tmp_path / "etdump.etdp", inputs=made, **files)
    assert len(found.gaps) == len(plain.gaps) > 10
    assert found.gaps["rmse"].equals(plain.gaps["rmse"])
    with pytest.raises(UsageError, match="either inputs= or calls="):
        etviz.load(tmp_path / "etdump.etdp", calls=tmp_path / "calls", inputs=made, **files)
    with pytest.raises(UsageError, match="no call of the method 'decode'; methods: forward"):
        etviz.load(tmp_path / "etdump.etdp", calls=tmp_path / "calls", method="decode", **files)


def test_a_recorded_call_takes_few_bytes(decoder: Path, tmp_path: Path) -> None:
    method = Runtime.get().load_program(decoder).load_method("forward")
    assert method is not None
    with etviz.record_calls(tmp_path / "calls") as recorder:
        for at in range(60):
            method.execute(driver([3], at % 4))
    assert recorder.calls == 60
    assert (tmp_path / "calls" / FILE).stat().st_size < 60 * 100


def test_cpp_runner_records(runner: CppRunner, decoder: Path, tmp_path: Path) -> None:
    """The header for C++ writes what Python writes."""
    made = [driver([token], at) for at, token in enumerate((3, 1, 4))]
    names = []
    for number, call in enumerate(made):
        for place, value in enumerate(call):
            names.append(f"{number}-{place}.bin")
            (tmp_path / names[-1]).write_bytes(value.numpy().tobytes())
    runner(tmp_path, "--model", decoder, "--inputs", ",".join(names), "--calls", "calls.bin", "--etdump", "e.etdp")
    found = read_calls(tmp_path / "calls.bin")
    writer = Writer(tmp_path / "python")
    writer.reset("program 0 was loaded")
    for call in made:
        writer.call("forward", call)
    writer.close()
    assert (tmp_path / "python" / FILE).read_bytes() == (tmp_path / "calls.bin").read_bytes()
    assert [call.fresh for call in found.calls] == [True, False, False]
    assert not len(etviz.lint_calls(tmp_path / "calls.bin", driver=driver))
