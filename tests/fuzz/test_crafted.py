"""Files that are made to harm: each is refused, by name where possible, before it takes memory, time or control."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import etviz
from etviz.errors import EtvizError, ExecutionError
from tests.fuzz.conftest import Attempts

Sound = Callable[..., dict[str, Any]]
WHOLE = ("etdump", "etrecord", "debug_buffer", "pte", "record")
REF = {"$": "ref", "v": "first"}
BIG = 10**12


def rewrite(source: Path, target: Path, change: Callable[[str, bytes], bytes], packed: Sequence[str] = ()) -> Path:
    """A copy of an archive with changed members, each stored as before or, if it is among `packed`, deflated."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            method = zipfile.ZIP_DEFLATED if info.filename in packed else info.compress_type
            new.writestr(info.filename, change(info.filename, old.read(info)), method)
    return target


def with_record(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A record whose JSON is changed."""

    def edit(name: str, data: bytes) -> bytes:
        if name != "record.json":
            return data
        body = json.loads(data)
        change(body)
        return json.dumps(body).encode()

    return rewrite(source, target, edit)


def with_graph(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A record whose method's graph is changed."""
    return with_record(source, target, lambda body: change(body["graphs"][0][1]))


def node(name: str, target: str, args: list[Any], subgraphs: Sequence[str] = ()) -> list[Any]:
    return [name, target, args, None, [None], -1, "", [], "", 0, 0, list(subgraphs)]


CALLS: dict[str, tuple[str, list[Any]]] = {
    "full": ("aten.full.default", [[BIG], 1.0]),
    "full of factors": ("aten.full.default", [[1 << 20, 1 << 20], 1.0]),
    "empty": ("aten.empty.memory_format", [[BIG]]),
    "rand": ("aten.rand.default", [[BIG]]),
    "arange": ("aten.arange.start_step", [0, BIG, 1]),
    "arange in small steps": ("aten.arange.start_step", [0, 1, 1e-12]),
    "eye": ("aten.eye.default", [10**7]),
    "linspace": ("aten.linspace.default", [0.0, 1.0, BIG]),
    "expand": ("aten.expand_copy.default", [REF, [10**9, 3, 4]]),
    "repeat": ("aten.repeat.default", [REF, [10**9, 1]]),
    "pad": ("aten.constant_pad_nd.default", [REF, [0, 10**11]]),
    "upsample": ("aten.upsample_nearest2d.vec", [REF, [10**6, 10**6], None]),
    "strided": ("aten.as_strided_copy.default", [REF, [10**6, 10**6], [0, 0]]),
    "diagonal": ("aten.diag_embed.default", [REF, BIG]),
    "histogram": ("aten.histc.default", [REF, BIG]),
    "window": ("aten.hann_window.default", [BIG]),
    "transform": ("aten.fft_fft.default", [REF, BIG]),
    "file": ("aten.from_file.default", ["/etc/passwd"]),
    "packed": ("aten.fbgemm_linear_fp16_weight.default", [REF, REF, REF]),
    "system": ("os.system", ["touch canary"]),
    "eval": ("builtins.eval", ["open('canary', 'w')"]),
    "dunder": ("aten.__class__.__init__", []),
    "power": ("py.pow", [10, 10**10]),
    "shift": ("py.lshift", [1, 10**11]),
    "text": ("py.mul", ["x", 10**11]),
    "format": ("py.mod", ["%99999999999d", 1]),
    "list": ("py.mul", [[0], 10**11]),
    "item from the end": ("getitem", [REF, -3]),
    "primitive": ("executorch_prim.mul.Scalar", ["x", 10**11]),
}


@pytest.mark.parametrize("call", CALLS)
def test_hostile_calls(call: str, ask: Attempts, sound: Sound, tmp_path: Path) -> None:
    """Nothing that an operator of a file asks for is granted beyond what the file itself justifies."""
    target, args = CALLS[call]
    files = sound("counter", *WHOLE)

    def insert(graph: dict[str, Any]) -> None:
        first = json.loads(json.dumps(args).replace('"first"', json.dumps(graph["inputs"][-1][0])))
        graph["nodes"].insert(0, node("hostile", target, first))

    files["record"] = with_graph(files["record"], tmp_path / "hostile.etviz", insert)
    found = ask("hostile calls", "load", files)
    refused = ("TooLargeError", "UnknownOperatorError", "ArgumentError", "PairingError", "ArtifactError")
    assert found.kind in refused, found
    assert not list(Path.cwd().glob("canary*"))


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are evaluated in the child process, with 512 MB."""
    monkeypatch.setattr(etviz.options, "isolation", "always")
    monkeypatch.setattr(etviz.options, "isolation_megabytes", 512)


@pytest.mark.usefixtures("apart")
def test_many_large_values(sound: Sound, tmp_path: Path) -> None:
    """Each is small enough, all of them are not."""
    files = sound("counter", *WHOLE)

    def insert(graph: dict[str, Any]) -> None:
        graph["nodes"][:0] = [node(f"v{i}", "aten.full.default", [[1 << 22], 1.0]) for i in range(400)]
        graph["outputs"] += [{"$": "ref", "v": f"v{i}"} for i in range(400)]

    files["record"] = with_graph(files["record"], tmp_path / "many.etviz", insert)
    with pytest.raises(EtvizError, match="memory"):
        etviz.load(**files)


def test_one_value_many_times(ask: Attempts, sound: Sound, tmp_path: Path) -> None:
    """A list may name one tensor two thousand times."""
    files = sound("counter", *WHOLE)

    def insert(graph: dict[str, Any]) -> None:
        many = node("many", "aten.cat.default", [[REF] * 2000])
        graph["nodes"][:0] = [node("first", "aten.full.default", [[1 << 20], 1.0]), many]

    files["record"] = with_graph(files["record"], tmp_path / "cat.etviz", insert)
    assert ask("hostile graphs", "load", files).kind == "TooLargeError"


def test_hours_of_work(
    sound: Sound, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse_operators: Callable[[], None]
) -> None:
    """A thousand products of large matrices, from a file of a few kilobytes: the child process is stopped.

    Nothing is evaluated without a limit instead.
    """
    files = sound("counter", *WHOLE)

    def insert(graph: dict[str, Any]) -> None:
        products = [node(f"p{i}", "aten.mm.default", [REF, REF]) for i in range(1000)]
        graph["nodes"][:0] = [node("first", "aten.full.default", [[3000, 3000], 1.0]), *products]

    files["record"] = with_graph(files["record"], tmp_path / "work.etviz", insert)
    monkeypatch.setattr(etviz.options, "isolation", "always")
    refuse_operators()
    etviz.load(**sound("counter", *WHOLE))  # the child has imported torch
    monkeypatch.setattr(etviz.options, "isolation_seconds", 3)
    with pytest.raises(ExecutionError, match=r"did not end .* longer etviz\.options\.isolation_seconds"):
        etviz.load(**files)


LOOPS: dict[str, tuple[list[Any], list[Any], str]] = {
    "no axis": ([], [], "PairingError"),
    "more carries than it takes": ([2], [REF, REF], "ArtifactError"),
}


@pytest.mark.parametrize(("rows", "carries", "kind"), LOOPS.values(), ids=LOOPS)
def test_loops(rows: list[int], carries: list[Any], kind: str, ask: Attempts, sound: Sound, tmp_path: Path) -> None:
    """That never end, grow, or are none."""
    files = sound("counter", *WHOLE)

    def insert(graph: dict[str, Any]) -> None:
        def ref(name: str) -> dict[str, str]:
            return {"$": "ref", "v": name}

        given = [[name, "user", "", None] for name in (*["carry"] * bool(carries), "rows", "round")]
        nodes = [node("row", "aten.select_copy.int", [ref("rows"), 0, ref("round")])]
        nodes += [node("twice", "aten.cat.default", [[ref("carry"), ref("carry")]])] * bool(carries)
        body: dict[str, Any] = {
            "name": "s",
            "inputs": given,
            "nodes": nodes,
            "outputs": [ref(nodes[-1][0]), ref("row")],
        }
        body["outputs"] = body["outputs"] if carries else [ref("row")]
        body |= {"mutations": [], "subgraphs": [], "backend_id": "", "compile_specs": []}
        graph["subgraphs"].append(["s", body])
        first = node("first", "aten.full.default", [rows, 1.0])
        graph["nodes"][:0] = [first, node("loop", "scan", [carries, [REF], []], ["s"])]

    files["record"] = with_graph(files["record"], tmp_path / "loop.etviz", insert)
    assert ask("hostile graphs", "load", files).kind == kind


def test_subgraphs_that_unfold_without_end(ask: Attempts, sound: Sound, tmp_path: Path) -> None:
    """Forty levels, each of which calls the next one twice."""
    files = sound("counter", *WHOLE)

    def insert(graph: dict[str, Any]) -> None:
        inner: dict[str, Any] = {"name": "s", "inputs": [], "nodes": [node("n", "aten.ones.default", [[1]])]}
        inner |= {"outputs": [], "mutations": [], "subgraphs": [], "backend_id": "", "compile_specs": []}
        for _ in range(40):
            twice = [node(name, "delegate", [], ["s"]) for name in ("a", "b")]
            inner = inner | {"nodes": twice, "subgraphs": [["s", inner]]}
        graph["subgraphs"].append(["s", inner])
        graph["nodes"].append(node("unfold", "delegate", [], ["s"]))

    files["record"] = with_graph(files["record"], tmp_path / "unfold.etviz", insert)
    found = ask("hostile graphs", "load", files)
    assert found.kind == "ArtifactError"
    assert "far too often" in found.text


class Trap:
    """Leaves a file behind when a pickle of it is read with trust."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def saved(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def laughs() -> list[Any]:
    value: list[Any] = [torch.zeros(1)]
    for _ in range(60):
        value = [value, value]
    return value


def deep() -> Any:
    value: Any = torch.zeros(1)
    for _ in range(300):
        value = (value,)
    return value


def packed(value: Any) -> bytes:
    """A torch file whose members are deflated: three gigabytes in three megabytes is as easy."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(value))) as old, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    return stream.getvalue()


TENSORS: dict[str, Callable[[Path], bytes]] = {
    "code": lambda canary: saved({"linear.weight": Trap(canary)}),
    "broadcast": lambda canary: saved({"linear.weight": torch.zeros(1).expand(BIG)}),
    "sparse": lambda canary: saved({"linear.weight": torch.zeros(4, 4).to_sparse()}),
    "bomb": lambda canary: packed({"linear.weight": torch.zeros(64 << 20)}),
    "legacy": lambda canary: b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
    "laughs": lambda canary: saved(laughs()),
    "deep": lambda canary: saved(deep()),
}


@pytest.mark.parametrize("member", ["representative_inputs", "edge_dialect_exported_program/forward_state_dict"])
@pytest.mark.parametrize("tensors", TENSORS)
def test_hostile_tensor_files(tensors: str, member: str, ask: Attempts, sound: Sound, tmp_path: Path) -> None:
    files = sound("counter", "etdump", "etrecord", "debug_buffer", "pte")
    canary = tmp_path / "canary"
    content = TENSORS[tensors](canary)
    files["etrecord"] = rewrite(
        files["etrecord"], tmp_path / "hostile.bin", lambda name, data: content if name == member else data
    )
    found = ask("hostile tensor files", "load", files)
    assert found.kind == "ArtifactError", found
    assert not canary.exists()


def test_code_in_symbolic_sizes(ask: Attempts, sound: Sound, tmp_path: Path) -> None:
    """Upstream evaluates these expressions; here a size stays a text."""
    files = sound("counter", "etdump", "etrecord", "debug_buffer", "pte")
    canary = tmp_path / "canary"
    code = {"as_expr": {"expr_str": f"__import__('pathlib').Path({str(canary)!r}).touch()", "hint": None}}

    def edit(name: str, data: bytes) -> bytes:
        if not name.startswith("edge_dialect_exported_program/") or data[:1] != b"{":
            return data
        body = json.loads(data)
        for value in body["graph_module"]["graph"]["tensor_values"].values():
            value["sizes"] = [code for _ in value["sizes"]]
        return json.dumps(body).encode()

    files["etrecord"] = rewrite(files["etrecord"], tmp_path / "code.bin", edit)
    ask("hostile graphs", "load", files)
    assert not canary.exists()


def test_json_bombs(ask: Attempts, sound: Sound, tmp_path: Path) -> None:
    files = sound("counter", "etdump", "etrecord", "debug_buffer", "pte")
    many = b"[" + b"[]," * 20_000_000 + b"[]]"
    files["etrecord"] = rewrite(
        files["etrecord"],
        tmp_path / "many.bin",
        lambda name, data: many if name == "edge_dialect_exported_program/forward" else data,
    )
    assert ask("archive bombs", "load", files).kind == "ArtifactError"
    record = sound("counter", "record")
    for content in (b" " * (256 << 20), b"[" * (60 << 20), many[: 60 << 20], b'"' + b"x" * (62 << 20) + b'"'):
        path = rewrite(
            record["record"],
            tmp_path / "bomb.etviz",
            lambda name, data, content=content: content if name == "record.json" else data,
            ("record.json",),
        )
        assert ask("archive bombs", "record", {"record": path}).kind == "ArtifactError"


def test_packed_members_of_an_etrecord(ask: Attempts, sound: Sound, tmp_path: Path) -> None:
    files = sound("counter", "etdump", "etrecord", "debug_buffer", "pte")
    member = "edge_dialect_exported_program/forward"
    files["etrecord"] = rewrite(
        files["etrecord"],
        tmp_path / "bomb.bin",
        lambda name, data: b" " * (1 << 30) if name == member else data,
        (member,),
    )
    assert ask("archive bombs", "load", files).kind == "ArtifactError"


@pytest.mark.parametrize("member", ["edge_dialect_exported_program/forward", "debug_handle_map", "delegate_map"])
def test_members_of_another_etrecord(member: str, ask: Attempts, sound: Sound, tmp_path: Path) -> None:
    """What belongs to another program is refused, or gives rows that say what is missing; it ends nothing."""
    files = sound("counter", "etdump", "etrecord", "debug_buffer", "pte")
    with zipfile.ZipFile(sound("poisoned", "etrecord")["etrecord"]) as other:
        content = other.read(member)
    files["etrecord"] = rewrite(
        files["etrecord"], tmp_path / "mixed.bin", lambda name, data: content if name == member else data
    )
    assert ask("exchanged members", "load", files).kind != "bug"
