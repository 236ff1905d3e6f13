"""A study's folder may come from anybody: what is in it is bounded before it is read, and nothing leads out of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save

import etviz
from etviz.errors import ArtifactError
from etviz.evidence import parquet as tables_module
from etviz.evidence import store as store_module
from etviz.evidence.dataset import decode, encode
from etviz.evidence.measuring import run_columns
from etviz.evidence.runner import _run_table  # pyright: ignore[reportPrivateUsage]
from etviz.evidence.store import Store
from etviz.evidence.subject import Subject, digest
from tests.programs import Executed


def _sign(folder: Path) -> None:
    """Write the checksums of a study's tables, as whoever made the folder could."""
    tables = [path for path in folder.rglob("*.parquet") if path.is_file()]
    lines = [f"{digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in tables]
    (folder / "checksums.txt").write_text("".join(lines))


def test_a_table_that_ends_the_process_ends_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte that says that a column may lack values: pyarrow aborts where its statistics say otherwise."""
    monkeypatch.setattr(etviz.options, "isolation", "auto")
    path = tmp_path / "table.parquet"
    Store(tmp_path).put(pd.DataFrame({"input": [0]}), path.name)
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"\x25\x02\x18\x05input", b"\x25\x00\x18\x05input"))
    _sign(tmp_path)
    with pytest.raises(ArtifactError, match=r"table.parquet: a child process failed to read it.*SIGABRT"):
        Store(tmp_path).table(path.name)
    path.write_bytes(sound)
    _sign(tmp_path)
    assert list(Store(tmp_path).table(path.name)["input"]) == [0]


def test_a_sound_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.full(100_000, np.nan), "n": np.arange(100_000), "name": ["a"] * 100_000})
    Store(tmp_path).put(frame, "table.parquet")
    pd.testing.assert_frame_equal(Store(tmp_path).table("table.parquet"), frame)


ONE = {"input": [0], "instruction": [0], "output": [0]}


def test_what_pandas_noted_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "gaps").mkdir()
    path = tmp_path / "gaps" / "000000.parquet"
    pq.write_table(pa.table(ONE).replace_schema_metadata({b"pandas": b"[" * 100_000}), path)
    _sign(tmp_path)
    assert Store(tmp_path).table("gaps/000000.parquet").to_dict("list") == ONE


def _chunk(first: int, count: int = 2) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of a chunk: gaps and runs."""
    inputs = list(range(first, first + count))
    rows: list[dict[str, Any]] = [{"input": index} for index in inputs]
    return pd.DataFrame(dict.fromkeys(ONE, inputs) | {"rmse": [0.5] * count}), _run_table(rows, run_columns({}))


def test_a_changed_byte_of_a_table_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "gaps").mkdir()
    name, whole = "gaps/000000.parquet", tmp_path / "gaps" / "000000.parquet"
    Store(tmp_path).put(_chunk(0)[0], name)
    sound = whole.read_bytes()
    for at in range(4, len(sound) - 8, len(sound) // 60):
        whole.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
        with pytest.raises(ArtifactError, match=r"the table was changed or damaged|failed to read it"):
            Store(tmp_path).table(name)
    whole.write_bytes(sound)
    assert list(Store(tmp_path).table(name)["rmse"]) == [0.5, 0.5]
    (line,) = (tmp_path / "checksums.txt").read_text().splitlines()
    assert line == f"{digest(whole)}  {name}"
    (tmp_path / "checksums.txt").unlink()
    with pytest.raises(ArtifactError, match=r"checksums.txt holds no checksum of the table"):
        Store(tmp_path).table(name)


def test_copied_chunks_are_refused_at_the_first_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gaps", "runs"):
        (tmp_path / name).mkdir()
    store = Store(tmp_path)
    store.begin({"title": "copied"})
    store.put_chunk(0, *_chunk(0))
    for name in ("gaps", "runs"):
        content = (tmp_path / name / "000000.parquet").read_bytes()
        for number in range(1, 3000):
            (tmp_path / name / f"{number:06}.parquet").write_bytes(content)
    _sign(tmp_path)
    read = list[Path]()
    for module in (store_module, tables_module):
        monkeypatch.setattr(module, "read_table", _noting(module.read_table, read))
    with pytest.raises(ArtifactError, match=r"runs/000001.parquet: input 0 is there twice"):
        _ = etviz.Study.open(tmp_path).inputs
    with pytest.raises(ArtifactError, match=r"input 0 is there twice"):
        _ = etviz.Study.open(tmp_path).table
    assert len(read) == 4


def _noting(function: Callable[..., Any], calls: list[Path]) -> Callable[..., Any]:
    def noted(path: Path, *arguments: Any) -> Any:
        calls.append(path)
        return function(path, *arguments)

    return noted


def test_chunks_are_vetted_in_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder from somebody else with a hundred chunks: the child process is asked for many tables at once."""
    monkeypatch.setattr(etviz.options, "isolation", "always")
    for name in ("gaps", "runs"):
        (tmp_path / name).mkdir()
    store = Store(tmp_path)
    for number in range(100):
        store.put_chunk(number, *_chunk(2 * number))
    asked = list[int]()
    monkeypatch.setattr(store_module, "vet", lambda paths: asked.append(len(paths)))
    assert sum(len(frame) for _, frame in Store(tmp_path).runs()) == 200
    assert asked == [64, 36]


def test_nothing_is_read_where_a_link_leads(tmp_path: Path) -> None:
    mine, folder = tmp_path / "mine", tmp_path / "study"
    for name in ("runs", "kept"):
        (mine / name).mkdir(parents=True)
    Store(mine).begin({"title": "mine"})
    for name in ("runs/000000.parquet", "kept/abc.safetensors"):
        (mine / name).write_bytes(b"mine")
    folder.mkdir()
    (folder / "study.json").symlink_to(mine / "study.json")
    (folder / "runs").symlink_to(mine / "runs")
    (folder / "kept").mkdir()
    (folder / "kept" / "abc.safetensors").symlink_to(mine / "kept" / "abc.safetensors")
    store = Store(folder)
    for ask in (store.about, store.done, lambda: list(store.runs()), lambda: store.kept("abc")):
        with pytest.raises(ArtifactError, match="it is a link, which may lead out of the study"):
            ask()


@pytest.mark.parametrize("name", ["kept", "gaps", ".lock", "lowered"])
def test_a_study_does_not_write_where_a_link_leads(tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "weights.safetensors").write_bytes(b"mine")
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / name).symlink_to(mine if name != ".lock" else mine / "weights.safetensors")
    with pytest.raises(ArtifactError, match="it is a link"):
        Store(folder).claim()
    assert (mine / "weights.safetensors").read_bytes() == b"mine"


def test_a_program_is_what_its_name_says(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    program = executed("counter").path("pte")
    store = Store(tmp_path / "study")
    store.claim()
    own = store.adopt(Subject({"pte": str(program)})).pte
    own.write_bytes(b"another one")
    assert store.adopt(Subject({"pte": str(program)})).pte.read_bytes() == program.read_bytes()
    store.begin({"program": {"pte": own.stem}, "method": "forward", "title": "m"})
    assert store.subject().pte == own
    own.write_bytes(b"another one")
    with pytest.raises(ArtifactError, match="it is another file than the study began with"):
        Store(tmp_path / "study").subject()
    store.release()


def test_strides_of_a_kept_input_fit_its_shape() -> None:
    strided = torch.arange(12.0).reshape(3, 4).T
    (found,) = decode(encode([strided]))
    assert found.stride() == strided.stride()
    crop = torch.zeros(4000, 4000).T[:2, :2]
    assert decode(encode([crop]))[0].stride() == crop.stride()
    repeated, windows = torch.arange(3.0).expand(2, 3), torch.arange(4.0).unfold(0, 3, 1)
    for value in (repeated, windows, torch.empty_strided((2,), (1 << 25,)).zero_()):
        (found,) = decode(encode([value]))
        assert found.is_contiguous()
        assert torch.equal(found, value)


@pytest.mark.parametrize(
    "about",
    [
        *({"count": 10**12}, {"count": -1}, {"count": "1"}, {"values": [1]}, {"values": {"1": 2}}, {"strides": [1]}),
        *({"strides": {"0": stride}} for stride in ([0, 0], [-3, 1], [1 << 62, 1 << 62], [3.0, 1.5], [3], "ab")),
        {"strides": {"another": [1]}},
        3,
    ],
    ids=str,
)
def test_an_input_that_says_nonsense_of_itself_is_refused(about: Any) -> None:
    about = {"values": {}, "strides": {}, "count": 1} | about if isinstance(about, dict) else about
    with pytest.raises(ValueError, match=r"."):
        decode(save({"0": torch.zeros(2, 3)}, {"etviz": json.dumps(about)}))


@pytest.mark.parametrize("data", [b"", b"abc", b"\xff" * 16, (2).to_bytes(8, "little") + b"[]"], ids=repr)
def test_an_input_that_is_no_safetensors_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)
