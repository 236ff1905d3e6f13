"""Every file that people may give damaged, in one table: what was done to it, how it is given, what etviz answers.

Damage at random is tried in `tests/fuzz`.
"""

from __future__ import annotations

import base64
import copy
import functools
import gzip
import io
import json
import math
import os
import re
import shutil
import struct
import time
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from executorch.exir import schema
from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary

import etviz
from etviz.artifacts.call_file import FILE as CALLS
from etviz.artifacts.call_file import Writer, read_calls
from etviz.artifacts.collection import collect
from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.inputs import read_inputs
from etviz.artifacts.probes import FILE as PROBES
from etviz.artifacts.probes import read_table
from etviz.artifacts.program.bundled_program import read_bundled_program
from etviz.artifacts.program.program import read_program
from etviz.artifacts.program.raw_values import read_tensor
from etviz.artifacts.record.etrecord import ETRecord
from etviz.artifacts.record.record_file import VERSION, Record, read_record, write_record
from etviz.errors import ArtifactError, EtvizError
from etviz.evidence.store import FORMAT, Store
from etviz.evidence.store import VERSION as STUDY_VERSION
from etviz.evidence.subject import digest
from tests.fuzz.test_crafted import rewrite, with_record
from tests.programs import FILES, Executed

if TYPE_CHECKING:
    from tests.artifacts.conftest import Bundle

SECONDS = 5
OWN = ("etdump", "etrecord", "debug_buffer", "pte", "record")
"""Files of one run."""


@dataclass(frozen=True)
class World:
    """Sound files of each kind."""

    executed: Callable[[str], Executed]
    others: Callable[[str], Path]

    def sound(self, artifact: str) -> Path | None:
        """A sound file: of a program (`pte of counter`; else of the encoder), or one that `OTHERS` makes."""
        kind, _, name = artifact.partition(" of ")
        if kind in FILES:
            return self.executed(name or "encoder").path(kind)
        return self.others(kind) if kind in OTHERS or kind == "bundle" else None


# ---- what is done to a file ----

Change = Callable[[Path, World], object]


def data(change: Callable[[bytes], bytes]) -> Change:
    return lambda path, _: path.write_bytes(change(path.read_bytes()))


def cut(share: float) -> Change:
    return data(lambda content: content[: int(len(content) * share)])


def be(content: bytes) -> Change:
    return data(lambda _: content)


def put(at: int, new: bytes) -> Change:
    return data(lambda content: content[:at] + new + content[at + len(new) :])


def other(artifact: str) -> Change:
    """Another file under this name."""
    return lambda path, world: path.write_bytes(Path(world.sound(artifact) or "").read_bytes())


def missing(path: Path, _: World) -> None:
    path.unlink()


def directory(path: Path, _: World) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path, _: World) -> None:
    path.unlink()
    os.mkfifo(path)


def again(edit: Callable[[Path, Path], object]) -> Change:
    """What writes another file from this one."""

    def change(path: Path, _: World) -> None:
        whole = path.rename(path.with_name("whole"))
        edit(whole, path)
        whole.unlink()

    return change


def fields(**changes: Any) -> Change:
    return again(lambda old, new: with_record(old, new, lambda body: body.update(changes)))


def in_node(position: int, value: Any) -> Change:
    def edit(body: dict[str, Any]) -> None:
        body["graphs"][0][1]["nodes"][1][position] = value

    return again(lambda old, new: with_record(old, new, edit))


def tensors(header: bytes) -> Change:
    """A record whose tensors begin with this header."""

    def edit(old: Path, new: Path) -> None:
        text = header.replace(b"%s", next(iter(read_record(old).tensors)).encode())
        content = len(text).to_bytes(8, "little") + text + b"\0" * 4 if text else b""
        rewrite(old, new, lambda name, data: content if name == "tensors.safetensors" else data)

    return again(edit)


def order(*axes: int) -> Change:
    """A program with a dimension order that is none."""

    def change(content: bytes) -> bytes:
        file: Any = deserialize_pte_binary(content)
        values: Any = [value.val for value in file.program.execution_plan[0].values]
        tensor: Any = next(value for value in values if isinstance(value, schema.Tensor) and value.dim_order)
        tensor.dim_order = bytes(axes)
        return bytes(serialize_pte_binary(file))

    return data(change)


def trap(path: Path, _: World) -> None:
    """Inputs that are a pickle of code, in an ETRecord."""

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (path.with_name("trapped"),)

    torch.save(Trap(), stream := io.BytesIO())
    inputs = "representative_inputs"
    again(lambda old, new: rewrite(old, new, lambda name, data: stream.getvalue() if name == inputs else data))(path, _)


def zipped(*members: tuple[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> Change:
    def change(path: Path, _: World) -> None:
        with zipfile.ZipFile(path, "w", packed) as archive:
            for name, content in members:
                archive.writestr(name, content)

    return change


def overlapped(path: Path, _: World) -> None:
    """A zip archive whose directory names one member many times: checking 100 MB of each would take hours."""
    with zipfile.ZipFile(path, "a" if path.stat().st_size else "w") as archive:
        archive.writestr("large", bytes(1 << 16))
        for number in range(1000):
            again = copy.copy(archive.getinfo("large"))
            again.filename = f"large {number}"
            archive.filelist.append(again)


def in_directory(offset: int, *number: int) -> Change:
    """Other bytes in each entry of a zip archive's directory."""
    return data(
        lambda content: re.sub(
            rb"(?s)(PK\x01\x02.{%d}).{%d}" % (offset - 4, len(number)), lambda at: at[1] + bytes(number), content
        )
    )


def table(edit: Callable[[dict[str, Any]], object]) -> Change:
    def change(path: Path, _: World) -> None:
        body = json.loads(path.read_text("utf-8"))
        edit(body)
        path.write_text(json.dumps(body), "utf-8")

    return change


def parquet(columns: Any, **how: Any) -> Change:
    return lambda path, _: pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **how)


def many_equal(path: Path, _: World) -> None:
    """Millions of rows in some kilobytes."""
    with pq.ParquetWriter(path, pa.schema([("x", pa.float64())])) as writer:
        piece = pa.table({"x": pa.array(np.full(1 << 22, np.nan))})
        for _group in range(3):
            writer.write_table(piece, row_group_size=1 << 22)


def long_texts() -> pa.Table:
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 20, np.int32)), pa.array(["x" * (1 << 16)]))
    return pa.table({"name": text})


def npy(shape: tuple[int, ...], dtype: str = "<f4", count: int = 12) -> Change:
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    return be(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(4 * count))


def saved(make: Callable[[], Any]) -> Change:
    return lambda path, _: torch.save(make(), path)


def laughs() -> Any:
    value: Any = [1]
    for _ in range(40):
        value = [value, value]
    return value


# ---- sound files that are not of a program ----


def _archive(folder: Path, executed: Callable[[str], Executed]) -> Path:
    """The files of a run as people send them."""
    with zipfile.ZipFile(folder / "sent.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES.values():
            archive.write(executed("plain_cnn").folder / name, name)
    return folder / "sent.zip"


def log_of(folder: Path) -> str:
    """What an Arm runner without a file system prints."""
    parts = ["I [executorch:arm_executor_runner.cpp] done", ""]
    for name, source in {"etdump.bin": "etdump.etdp", "debug_buffer.bin": "debug_buffer.bin"}.items():
        text = base64.encodebytes((folder / source).read_bytes()).decode()
        parts += [f'echo "{text}" | base64 -d >{name}', "#----"]
    return "\n".join([*parts, "EXITTHESIM"])


def _log(folder: Path, executed: Callable[[str], Executed]) -> Path:
    (folder / "uart.log").write_text(log_of(executed("plain_cnn").folder))
    return folder / "uart.log"


def _calls(folder: Path, _: Callable[[str], Executed]) -> Path:
    writer = Writer(folder)
    writer.call("forward", (torch.ones(2), 3))
    writer.close()
    return folder / CALLS


def _probes(folder: Path, executed: Callable[[str], Executed]) -> Path:
    etviz.probe(executed("plain_cnn").path("record"), workdir=folder)
    return folder / PROBES


OTHERS: dict[str, Callable[[Path, Callable[[str], Executed]], Path]] = {
    "archive": _archive,
    "log": _log,
    "calls": _calls,
    "probes": _probes,
}


# ---- how it is given ----


def loaded(*kinds: str, as_: str, of: str = "encoder", copied: bool = False) -> Callable[[Path, World], object]:
    """`etviz.load` on the file, in place of a program's own, with these others of it, or copies of them."""

    def read(path: Path, world: World) -> object:
        files: dict[str, Any] = {kind: world.executed(of).path(kind) for kind in kinds}
        if copied:
            files = {kind: shutil.copy(file, path.with_name(f"copy-{file.name}")) for kind, file in files.items()}
        files |= {as_: path}
        return etviz.load(files.pop("etdump"), **files)

    return read


def stored(name: str) -> Callable[[Path, World], object]:
    """A study's table, with the checksum that whoever made the folder could write."""

    def read(path: Path, _: World) -> object:
        folder = path.parent / "study"
        (folder / name).parent.mkdir(parents=True)
        path.rename(folder / name)
        if (folder / name).is_file():
            (folder / "checksums.txt").write_text(f"{digest(folder / name)}  {name}\n")
        return Store(folder).table(name)

    return read


def described(path: Path, _: World) -> object:
    (path.parent / "study").mkdir()
    path.rename(path.parent / "study" / "study.json")
    return etviz.Study.open(path.parent / "study")


def raw_outputs(path: Path, world: World) -> object:
    """Outputs of a runner, in a folder."""
    program = world.executed("plain_cnn")
    given: dict[str, Any] = {kind: program.path(kind) for kind in ("record", "etrecord", "pte")}
    return etviz.load(outputs=path.parent if path.suffix else path, **given)


def only(read: Callable[[Path], object]) -> Callable[[Path, World], object]:
    return lambda path, _: read(path)


READERS: dict[str, Callable[[Path, World], object]] = {
    **{f"load({kind}=)": loaded(*OWN, as_=kind) for kind in OWN},
    "load(etrecord=), no pte": loaded("etdump", "debug_buffer", as_="etrecord"),
    "load(etrecord=), no record": loaded("etdump", "debug_buffer", "pte", as_="etrecord", copied=True),
    "load(etdump=), pte": loaded("pte", as_="etdump"),
    "load(etdump=), record": loaded("record", as_="etdump"),
    "load(etdump=), etrecord": loaded("etrecord", as_="etdump"),
    "load(etdump=), etrecord, debug_buffer": loaded("etrecord", "debug_buffer", as_="etdump"),
    "load(record=) of branches": loaded("etdump", "debug_buffer", "pte", of="branches", as_="record"),
    "load(record=) of counter": loaded(*OWN, of="counter", as_="record"),
    "load(etrecord=) of plain_cnn": loaded("etdump", of="plain_cnn", as_="etrecord"),
    "load": only(etviz.load),
    "read_etdump": only(read_etdump),
    "read_program": only(read_program),
    "read_bundled_program": only(read_bundled_program),
    "DebugBuffer": only(DebugBuffer),
    "ETRecord": only(ETRecord),
    "read_record": only(read_record),
    "tensors of a record": only(lambda path: list(dict(read_record(path).tensors))),
    "read_inputs": only(read_inputs),
    "read_inputs of a program": lambda path, world: read_inputs(
        path, read_program(world.executed("plain_cnn").path("pte")).method()
    ),
    "read_inputs, float32:2x3": lambda path, _: read_inputs(f"{path}:float32:2x3"),
    "read_tensor, float32 (2, 2)": lambda path, _: read_tensor(path, "float32", (2, 2)),
    "collect": only(collect),
    "read_calls": only(lambda path: read_calls(path.parent)),
    "read_table of probes": only(read_table),
    "outputs of a runner": raw_outputs,
    "study.json": described,
    **{
        f"study/{name}": stored(name)
        for name in ("table.parquet", "operators.parquet", "gaps/000000.parquet", "runs/000000.parquet")
    },
}


class Row(NamedTuple):
    """One line of the table.

    Attributes
    ----------
    artifact
        Whose sound file is copied, or the name of a file that begins empty.
    damage
        In words.
    change
        Does the damage.
    given
        Who reads it, of `READERS`.
    says
        Regular expression that the error matches.
    error
        Its class.
    """

    artifact: str
    damage: str
    change: Change
    given: str
    says: str
    error: type[EtvizError] | tuple[type[EtvizError], ...] = ArtifactError


HTML = b"<html>404 not found</html>" * 40
NOISE = np.random.default_rng(0).bytes(3000)
WHAT = {
    "etdump": "an ETDump",
    "etrecord": "an ETRecord",
    "debug_buffer": "a debug buffer",
    "pte": r"an ExecuTorch program( \(\.pte\))?",
    "record": "an etviz record",
}
TRUNCATED = {
    "etdump": r"is truncated: it has \d+ bytes of \d+",
    "etrecord": "is truncated: its directory is missing",
    "debug_buffer": r"has \d+ bytes but the tensor .* needs \d+: it is truncated",
    "pte": r"is truncated: it has \d+ bytes of \d+",
    "record": "the archive is damaged",
}
LOOKS = {
    "etdump": "an ETDump",
    "pte": r"an ExecuTorch program \(\.pte\)",
    "etrecord": "a zip archive",
    "record": "a zip archive",
}
EXCHANGED = {
    ("etdump", "record"): "there is no ETDump in it",
    ("etrecord", "record"): "the ETRecord was packed again",
    ("record", "etrecord"): "a record has the members record.json and tensors.safetensors",
}
"""What is said of one file of a run in another one's place, where it is not that it looks like the other one."""
CLAIMS = "the inputs can't be read"
ONE = {"input": [0], "instruction": [0], "output": [0]}
GAPS = "study/gaps/000000.parquet"


def of_a_run() -> Iterable[Row]:
    """Each file of a run, by `etviz.load`."""
    for kind in OWN:
        given, what = f"load({kind}=)", WHAT[kind]
        no_values = TRUNCATED[kind] if kind == "debug_buffer" else f"this is not {what}"
        in_it = "there is no ETDump in it" if kind == "etdump" else f"this is a directory, not {what}"
        yield Row(kind, "missing", missing, given, "there is no such file")
        yield Row(kind, "a directory", directory, given, in_it)
        yield Row(kind, "empty", be(b""), given, f"the file is empty; expected {what}")
        yield Row(kind, "noise", be(NOISE), given, no_values)
        yield Row(kind, "a page of the web", be(HTML), given, no_values)
        yield Row(kind, "half of it", cut(0.5), given, TRUNCATED[kind])
        yield Row(kind, "without its last 40 bytes", data(lambda content: content[:-40]), given, TRUNCATED[kind])
        for twin in OWN:
            if twin != kind:
                looks = f"; it looks like {LOOKS[twin]}" if twin in LOOKS else ""
                yield Row(
                    kind, f"the {twin}", other(twin), given, EXCHANGED.get((kind, twin), f"this is not {what}{looks}")
                )
    for known in ("pte", "record", "etrecord", "etrecord, debug_buffer"):
        says = r"the ETDump belongs to another program than .*instruction \d+ calls"
        yield Row("etdump", "of another program", other("etdump of residual_cnn"), f"load(etdump=), {known}", says)
    says = "the ETRecord belongs to another program"
    for name in ("residual_cnn", "plain_cnn"):
        for how in ("load(etrecord=)", "load(etrecord=), no record"):
            yield Row("etrecord", f"of {name}", other(f"etrecord of {name}"), how, says)
        says_of_it = r"the ETDump belongs to another program than .*etrecord\.bin \(instruction \d+ calls"
        yield Row(
            "etrecord", f"of {name}", other(f"etrecord of {name}"), "load(etrecord=), no pte", says_of_it, EtvizError
        )
    yield Row("etrecord", "inputs that are a pickle of code", trap, "load(etrecord=)", "representative_inputs")
    yield Row("etrecord", "members that overlap", overlapped, "ETRecord", "members overlap")
    packed = again(lambda old, new: rewrite(old, new, lambda _, data: data, tuple(zipfile.ZipFile(old).namelist())))
    yield Row(
        "etrecord of plain_cnn",
        "packed again",
        packed,
        "load(etrecord=) of plain_cnn",
        "the ETRecord was packed again.*zip -0",
    )


def alone() -> Iterable[Row]:
    """ETDumps, programs, bundles and debug buffers, each by its reader."""
    yield Row("etdump", "empty", be(b""), "read_etdump", "empty")
    yield Row("etdump", "zeros", be(b"\0" * 100), "read_etdump", "a file of zeros")
    yield Row("etdump", "a zip archive", be(b"PK\x03\x04" + b"\0" * 100), "read_etdump", "a zip archive")
    yield Row("etdump", "text", be(b"random bytes that mean nothing at all"), "read_etdump", "not an ETDump")
    yield Row("etdump", "one byte", be(b"x"), "read_etdump", "not an ETDump")
    yield Row("etdump", "a program", other("pte"), "read_etdump", r"looks like an ExecuTorch program \(\.pte\)")
    yield Row("etdump", "missing", missing, "read_etdump", "no such file")
    yield Row("etdump", "a directory", directory, "read_etdump", "is a directory")
    yield Row(
        "etdump", "0xff", data(lambda old: old[:12] + b"\xff" * (len(old) - 12)), "read_etdump", r"damaged at byte \d+"
    )
    for share in (0.2, 0.5, 0.999):
        yield Row("etdump", f"{share} of it", cut(share), "read_etdump", r"truncated: it has \d+ bytes of \d+")
    for share in (0.1, 0.5, 0.95):
        yield Row("pte", f"{share} of it", cut(share), "read_program", r"truncated: it has \d+ bytes")
    yield Row("pte", "an ETDump", other("etdump"), "read_program", "looks like an ETDump")
    for axes in ((200, 1), (0, 0), (1,), (0, 1, 2, 3, 3)):
        yield Row(
            "pte", f"dimension order {axes}", order(*axes), "read_program", "a tensor's dimension order is impossible"
        )
    yield Row(
        "bundle", "a program", other("pte"), "read_bundled_program", r"looks like an ExecuTorch program \(\.pte\)"
    )
    yield Row("bundle", "half of it", cut(0.5), "read_bundled_program", "damaged at byte")
    yield Row("debug_buffer", "an ETDump", other("etdump"), "DebugBuffer", "looks like an ETDump")
    yield Row("debug_buffer", "a program", other("pte"), "DebugBuffer", "looks like an ExecuTorch program")
    yield Row("debug_buffer", "missing", missing, "DebugBuffer", "no such file")
    yield Row("debug_buffer", "empty", be(b""), "DebugBuffer", "empty")
    yield Row(
        "output",
        "three numbers of four",
        be(bytes(12)),
        "read_tensor, float32 (2, 2)",
        r"the file has 12 bytes, a tensor of float32 \(2, 2\) has 16",
    )


def records() -> Iterable[Row]:
    given = "load(record=) of branches"
    for version in (VERSION - 1, VERSION + 1):
        yield Row(
            "record of counter",
            f"version {version}",
            fields(version=version),
            "read_record",
            rf"version {version}.*reads version {VERSION}",
        )
    for says, *several in (
        ("'int' object is not iterable", {"graphs": 3}),
        ("a field is missing or has the wrong type", {"graphs": [["forward", {}]]}),
        ("the table of texts is not a list of texts", {"texts": "text"}, {"texts": [1]}),
        ("not enough values to unpack", {"places": [["a", "b"]]}),
        ("a table has the wrong type", {"delegation": []}, {"extra": 1}, {"checksums": []}),
        ("record.json is not an etviz record", {"format": "another"}),
        ("the record is damaged .'forward'", {"delegation": {}}),
        ("the record is damaged", {"delegation": {"forward": {"subgraphs": "many", "delegated": []}}}),
        (r"model\.etviz: there are no weights named input.0", {"checksums": {}}),
        (r"model\.etviz: there are no weights named missing", {"extra": {"inputs": [{"tensor": "missing"}]}}),
    ):
        for changes in several:
            yield Row("record of branches", str(changes), fields(**changes), given, says, EtvizError)
    for share in (0.0, 0.01, 0.3, 0.7, 0.99):
        says = "empty" if not share else TRUNCATED["record"]
        yield Row("record of branches", f"{share} of it", cut(share), given, says)
    given = "load(record=) of counter"
    for position, value in (
        (0, 7), (1, None), (2, {"$": "ref", "v": "nobody"}), (2, [{"$": "ref", "v": "nobody"}]),
        (2, [{"$": "code", "v": "import os"}]), (4, [["float32", ["a", None], None]]), (5, "first"), (9, 10_000),
        (9, -1), (11, ["no_such_graph"]),
    ):  # fmt: skip
        yield Row("record of counter", f"{value} at {position} of a node", in_node(position, value), given, "damaged")
    for target in ("aten.from_file.default", "os.system", "aten.add_.Tensor", "py.exec", "aten.nope.x"):
        yield Row("record of counter", f"calls {target}", in_node(1, target), given, re.escape(target), EtvizError)
    yield Row(
        "record of counter", "of another program", other("record of plain_cnn"), given, "another program.*checksums"
    )
    whose = again(lambda old, new: write_record(replace(read_record(old), pte_checksum="xxh3:" + "0" * 32), new))
    yield Row("record of counter", "other weights", whose, given, "checksums")
    yield Row(
        "record of counter",
        "no method",
        lambda path, _: write_record(Record({}, {}, "checksum"), path),
        "read_record",
        "it has no method",
    )
    for header, says in (
        (b"", "beyond the end"), (b"[" * 100_000, "not JSON"), (b"[]", "not a table"), (b"{}", "not described"),
        (b'{"%s":{"dtype":"F32","shape":[1],"data_offsets":[0,1000000000000]}}', "beyond the end"),
        (b'{"%s":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}', "its shape needs"),
        (b'{"%s":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}', "checksum"),
        (b"{" + b",".join(b'"%d":[]' % number for number in range(1_000_000)) + b"}", "beyond the end"),
    ):  # fmt: skip
        yield Row("record of branches", f"tensors {header[:40]!r}", tensors(header), "tensors of a record", says)


def inputs() -> Iterable[Row]:
    for name, content, says in (
        ("a.safetensors", b"{not json", CLAIMS),
        ("a.npz", b"PK\x03\x04 nothing", CLAIMS),
        ("a.npy", b"\x93NUMPY", CLAIMS),
        ("a.pt", b"\x80\x02c__builtin__\neval\n.", "the file with inputs can't be read"),
        ("input_list.txt", b"\n\n", "the list names no files"),
        ("other.txt", b"\xff\xfe", "the list can't be read"),
    ):
        yield Row(name, repr(content), be(content), "read_inputs", says)
        yield Row(name, "missing", missing, "read_inputs of a program", "there is no such file")
        yield Row(name, "a pipe", pipe, "read_inputs", "a pipe or a device")
    yield Row("a.raw", "missing", missing, "read_inputs of a program", "there is no such file")
    yield Row("a.raw", "a pipe", pipe, "read_inputs, float32:2x3", "a pipe or a device")
    for damage, change in {
        "huge": npy((10**11,)), "beyond": npy((1 << 62, 8)), "negative": npy((-1,)),
        "empty": npy((0, 1 << 62), count=0), "objects": npy((3,), "|O"), "texts": npy((3,), "<U4"),
        "times": npy((6,), "<M8[s]"),
        "deep": be(b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000),
    }.items():  # fmt: skip
        yield Row("a.npy", damage, change, "read_inputs", CLAIMS)
    yield Row("a.safetensors", "long", be(struct.pack("<Q", 1 << 62) + b"{}"), "read_inputs", CLAIMS)
    far = lambda path, _: np.savez_compressed(path, np.zeros(35_000_000))  # noqa: E731
    yield Row("a.npz", "zeros", far, "read_inputs", "unpack to 280,")
    for damage, make in {
        "laughs": laughs,
        "broadcast": lambda: torch.zeros(1).expand(1 << 40),
        "meta": lambda: torch.zeros(2, device="meta"),
    }.items():
        yield Row("a.pt", damage, saved(make), "read_inputs", "too many values|not a plain one")


def collections() -> Iterable[Row]:
    yield Row("archive", "packed as bzip2", in_directory(10, 12, 0), "load", "packed in an unusual way")
    yield Row("archive", "directory elsewhere", data(lambda old: old[:-6] + b"\xff" * 4 + old[-2:]), "load", "damaged")
    yield Row("archive", "members elsewhere", in_directory(42, 0xF0, 0xFF, 0xFF, 0xFF), "load", "damaged")
    yield Row("archive", "half of it", cut(0.5), "load", "damaged")
    yield Row("archive", "its first 100 bytes", data(lambda old: old[:100]), "collect", "the zip archive is damaged")
    bomb = zipped(("etdump.etdp", bytes(100 << 20)))
    yield Row("archive", "100 MB of zeros", bomb, "collect", "unpacks to more than")
    twice = zipped(("a/etdump.etdp", b"1"), ("b/etdump.etdp", b"2"))
    yield Row("archive", "two of a name", twice, "collect", r"two of its files are called etdump\.etdp")
    many = zipped(*((str(number), b"") for number in range(10_001)), packed=zipfile.ZIP_STORED)
    yield Row("archive", "very many files", many, "collect", "more than 10000 files")
    yield Row("sent.zip", "members that overlap", overlapped, "collect", "its files overlap")
    yield Row("etdump.gz", "100 MB of zeros", be(gzip.compress(bytes(100 << 20))), "collect", "unpacks to more than")
    yield Row("etdump.gz", "cut", be(gzip.compress(b"abc" * 1000)[:-20]), "collect", "the gzip file is damaged")
    for damage, change in {
        "last block": lambda text: text[: text.rindex(b" | base64")][:-500],
        "first block": lambda text: text[:200] + text[text.index(b"#----") :],
        "one character": lambda text: text.replace(b'" | base64 -d >etdump.bin', b'A" | base64 -d >etdump.bin'),
        "before any block": lambda text: text.split(b"echo")[0] + b"base64",
    }.items():
        yield Row("log", f"cut: {damage}", data(change), "load", "cut off|holds no base64 block")
    for part in ("echo AAAA ", "echo" + " " * 9, "echo AAAA | ", 'echo "AAAAAAAAAAAAAAAA'):
        yield Row("log", f"no end: {part}", be(b"base64 " + part.encode() * 200_000), "collect", "")


def rest() -> Iterable[Row]:
    """Calls, probes, outputs, studies."""
    yield Row("calls", "something else", be(b"something else entirely"), "read_calls", "does not begin with ETVCALLS")
    yield Row("calls", "version", put(8, struct.pack("<I", 9)), "read_calls", "version 9; this etviz reads version 1")
    yield Row("calls", "a kind", put(16, b"X"), "read_calls", "unknown kind")
    yield Row("calls", "missing", missing, "read_calls", "no such file")
    for damage, edit in {
        "position": lambda body: body["probes"][0]["values"][0].update(position=99),
        "negative size": lambda body: body["probes"][0]["values"][0].update(shape=[-1]),
        "two of a name": lambda body: body["probes"].append(body["probes"][0]),
        "no values": lambda body: body["probes"][0].pop("values"),
        "version": lambda body: body.update(version=9),
        "other file": lambda body: body.update(format="x"),
        "infinite": lambda body: body["probes"][0].update(outputs=math.inf),
    }.items():
        yield Row("probes", damage, table(edit), "read_table of probes", "table of probes")
    yield Row("out", "no folder", missing, "outputs of a runner", "no such folder")
    yield Row("out", "an empty folder", directory, "outputs of a runner", "no raw outputs")
    yield Row("out-1.bin", "output 1 of one", be(bytes(40)), "outputs of a runner", "output 0 of model is missing")
    yield Row(
        "out-0.bin",
        "39 bytes",
        be(bytes(39)),
        "outputs of a runner",
        r"has 39 bytes, a tensor of float32 \(2, 5\) has 40",
    )
    for about in (
        {"metrics": 3},
        {"tasks": [1]},
        {"tasks": ["name"]},
        {"program": "x"},
        {"title": None},
        {"method": []},
    ):
        content = json.dumps({"format": FORMAT, "version": STUDY_VERSION} | about).encode()
        yield Row("about", str(about), be(content), "study.json", "it does not describe a study")
    text = pa.array(["a", "b"]).dictionary_encode()
    for damage, change, says in (
        ("rows", many_equal, "it has 12,582,912 rows and 1 columns in"),
        ("long texts", parquet(long_texts(), store_schema=False), "its texts would take 68,719,476,736 characters"),
        ("categories", parquet({"name": text}), "column .name. does not hold texts"),
        ("nested", parquet({"x": pa.array([[1.0] * 1000])}), "column .x. does not hold numbers"),
        ("compressed twice", parquet({"x": np.zeros(10)}, compression="zstd"), "it is compressed by ZSTD"),
        ("no table", be(b"PAR1" + bytes(100) + b"PAR1"), "it can't be read"),
        ("a folder", directory, "folder|directory|holds no checksum"),
    ):
        yield Row("table", damage, change, "study/table.parquet", says)
    for damage, given, columns, says in (
        ("a column is missing", "study/operators.parquet", {"instruction": [0]}, "no column 'output'"),
        ("texts", "study/operators.parquet", {"instruction": ["../x"], "output": [0]}, "'instruction' does not hold"),
        (
            "nothing",
            "study/operators.parquet",
            {"instruction": [0, 1], "output": [0, None]},
            "'output' does not have a value in each row",
        ),
        ("of runs", "study/runs/000000.parquet", {"input": [0]}, "no column 'name'"),
        ("halves", GAPS, {"input": [0.5], "instruction": [0], "output": [0]}, "'input' does not hold"),
        ("a text for a metric", GAPS, ONE | {"rmse": ["../x"]}, "'rmse' does not hold numbers"),
        ("a date for a metric", GAPS, ONE | {"rmse": [np.datetime64(0, "s")]}, "'rmse' does not hold"),
        ("a number for a text", GAPS, ONE | {"status": [1.0]}, "'status' does not hold texts"),
        ("two of a name", GAPS, pa.table([[0]] * 4, names=[*ONE, "output"]), "column 'output' is there 2 times"),
    ):
        yield Row("table", damage, parquet(columns), given, says)


TABLE = [*of_a_run(), *alone(), *records(), *inputs(), *collections(), *rest()]


@pytest.fixture(scope="module")
def others(
    executed: Callable[[str], Executed], bundle: Bundle, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A sound file that is not of a program, by name."""

    @functools.cache
    def get(name: str) -> Path:
        return bundle[0] if name == "bundle" else OTHERS[name](tmp_path_factory.mktemp(name), executed)

    return get


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.artifact}: {row.damage[:50]}: {row.given}")
def test_the_answer(
    row: Row, executed: Callable[[str], Executed], others: Callable[[str], Path], tmp_path: Path
) -> None:
    """One error, soon: it names the file and what is wrong with it, says what to do, and has run nothing."""
    world = World(executed, others)
    source = world.sound(row.artifact)
    path = tmp_path / (source.name if source else row.artifact)
    path.write_bytes(source.read_bytes() if source else b"")
    row.change(path, world)
    start = time.process_time()
    with pytest.raises(row.error, match=f"(?s){row.says}") as found:
        READERS[row.given](path, world)
    assert time.process_time() - start < SECONDS
    assert not (tmp_path / "trapped").exists()
    error = found.value
    if row.error is ArtifactError:
        assert isinstance(error, ArtifactError)
        assert str(tmp_path) in str(error)
        assert error.path.startswith(str(tmp_path))
        assert error.advice
        assert ("damaged at byte" in error.problem) <= isinstance(error.where, int)
        assert (row.given == "read_record" and "version" in row.damage) <= (error.expected == VERSION != error.found)
