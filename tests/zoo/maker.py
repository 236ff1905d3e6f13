"""Makes the programs of the zoo, each once, into a folder that keeps what a user's run leaves behind.

A plant is a program that is changed before it is lowered, as a bug would change it, and runs like any other. It is then
given the ETRecord and the record of the right program: the reference knows nothing of the change. What was changed is
read from the two lowered programs, instruction by instruction, and measured by `certificate.py`, without etviz.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib.metadata
import json
import operator
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.memory import alloc, view
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx.node import map_arg

import etviz
from tests.shelf import Shelf
from tests.zoo.certificate import LIMIT, TIE, Certificate, Node, certify
from tests.zoo.made import CACHE, FACTS, FILES, Made
from tests.zoo.models import Inputs
from tests.zoo.plants import Plant
from tests.zoo.programs import FAULTY, RECIPES, Recipe

_ROOT = Path(__file__).parents[2]
_FEW = 8
_DIGITS = 16
_LOWERED: dict[str, Lowered] = {}
_SOURCES = ("tests/zoo/models.py", "tests/zoo/maker.py", "tests/zoo/certificate.py", "tests/zoo/programs.py")
_SOURCES += tuple(f"etviz/pipeline/{name}.py" for name in ("lower", "capture", "record", "execute"))
_SOURCES += ("etviz/artifacts/record", "etviz/graph/ir_json.py")


@dataclass(frozen=True)
class Lowered:
    """A lowered program before `to_executorch()`, what that made of it, and the id of the graph that was lowered."""

    inputs: Inputs
    edge: ExportedProgram
    emitted: ExportedProgram
    exported: int

    def calls(self) -> list[dict[str, Any]]:
        """What each instruction computes: its operator, a digest of its arguments and constants, what is inside."""
        reader = _Reader(self.emitted, self.exported)
        found = []
        for node in self.emitted.graph.nodes:
            if node.op != "call_function" or node.target in (operator.getitem, alloc, view):
                continue
            about = reader.describe(node) | {"instruction": node.meta.get("debug_handle", -1)}
            if node.target is executorch_call_delegate:
                module: Any = getattr(self.emitted.graph_module, str(node.args[0].target))
                inner: ExportedProgram = module.original_module
                inside, given = _Reader(inner, self.exported), inner.graph_signature.user_inputs
                about |= {
                    "op": "delegate",
                    "inside": [inside.describe(n) for n in inner.graph.nodes if n.op == "call_function"],
                    "inputs": [_digest(map_arg(argument, reader.token)) for argument in node.args[1:]],
                    "readers": [[user.name for user in n.users] for n in inner.graph.nodes if n.name in given],
                }
            found.append(about)
        return found


def make(recipe: Recipe, cache: Path = CACHE, *, keep: bool = False) -> Made:
    """A program; `keep` takes what the cache has though the sources changed."""
    return _kept(recipe.name, _key(recipe.name), cache, lambda folder: _make(recipe, folder), keep=keep)


def make_plant(plant: Plant, cache: Path = CACHE, *, keep: bool = False) -> Made:
    """A program with a planted fault, beside the right one's ETRecord and record."""
    right = make(RECIPES[plant.base], cache, keep=keep)
    key = _key(plant.name, _text(_ROOT / "tests/zoo/plants.py"))
    return _kept(plant.name, key, cache, lambda folder: _make_plant(plant, right, folder), keep=keep)


def known(name: str, cache: Path = CACHE) -> list[Path]:
    """What the cache has of a program, from whatever sources it was made; the newest last."""
    made = cache.glob(f"{_slug(name)}-{'[0-9a-f]' * _DIGITS}/{FACTS}")
    return sorted(made, key=lambda path: path.stat().st_mtime)


def _kept(name: str, key: str, cache: Path, work: Callable[[Path], dict[str, Any]], *, keep: bool) -> Made:
    """A program of the cache; it is made if there is none, or only one that was made from other sources."""
    old = known(name, cache) if keep else []

    def fill(folder: Path) -> None:
        started = time.perf_counter()
        facts = work(folder)
        (folder / FACTS).write_text(json.dumps(facts | {"seconds": time.perf_counter() - started}))

    return Made(name, old[-1].parent if old else Shelf(cache).folder(f"{_slug(name)}-{key[:_DIGITS]}", fill))


def _make(recipe: Recipe, folder: Path) -> dict[str, Any]:
    lowered = _keep(recipe.name, lower(recipe, folder))
    (folder / "model.etviz").rename(folder / FILES["record"])
    calls, certificate = lowered.calls(), certify(lowered.edge, lowered.inputs)
    off = {check.node for check in certificate.local if check.ratio > LIMIT}
    culprits = [_culprit(call, recipe.fault) for call in calls if call["name"] in off]
    return {"calls": calls, "culprits": culprits, "size": certificate.worst.ratio} | _measured(certificate)


def _culprit(call: dict[str, Any], fault: str) -> dict[str, Any]:
    """A call that is off, and the nodes in it that executorch gets wrong."""
    inside = [node["name"] for node in call.get("inside", []) if fault in node["op"]]
    return {name: call[name] for name in ("instruction", "name", "op")} | {"inside": inside}


def _make_plant(plant: Plant, right: Made, folder: Path) -> dict[str, Any]:
    wrong = lower(RECIPES[plant.base], folder, plant)
    calls = wrong.calls()
    culprits = difference(right.facts["calls"], calls)
    edge, names = _right(plant.base).edge, {culprit["name"] for culprit in culprits}
    strict = certify(edge, wrong.inputs, executed=wrong.edge, step=TIE)
    shutil.copy(right.folder / FILES["etrecord"], folder / FILES["etrecord"])
    _adopt(right.folder / FILES["record"], folder / "model.etviz", folder / FILES["record"])
    (folder / "model.etviz").unlink()
    size = max((check.ratio for check in strict.local if check.node in names), default=0.0)
    return {"calls": calls, "culprits": culprits, "size": size} | _measured(
        certify(edge, wrong.inputs, executed=wrong.edge)
    )


def lower(recipe: Recipe, folder: Path, plant: Plant | None = None) -> Lowered:
    """Let `etviz.debug` lower and run a program, changed by a plant; keep what `to_executorch()` would overwrite."""
    program, inputs = _exported(recipe.name)
    program = copy.deepcopy(program)
    if plant is not None:
        plant.change(program)
    found: list[Any] = []
    original = EdgeProgramManager.to_executorch

    def watched(manager: EdgeProgramManager, *args: Any, **kwargs: Any) -> ExecutorchProgramManager:
        found.append(copy.deepcopy(manager.exported_program()))
        found.append(original(manager, *args, **kwargs))
        return found[-1]

    with mock.patch.object(EdgeProgramManager, "to_executorch", watched):
        etviz.debug(program, inputs, partitioner=recipe.partitioner(), workdir=folder)
    return Lowered(inputs, found[0], found[1].exported_program(), id(program.graph))


@functools.lru_cache(maxsize=1)
def _exported(name: str) -> tuple[ExportedProgram, Inputs]:
    return (RECIPES | FAULTY)[name].export()


def _right(name: str) -> Lowered:
    """A right program, for its plants; it is lowered again unless it was made a short while ago."""
    if name not in _LOWERED:
        with tempfile.TemporaryDirectory() as folder:
            _keep(name, lower(RECIPES[name], Path(folder) / "right"))
    return _LOWERED[name]


def _keep(name: str, lowered: Lowered) -> Lowered:
    """Have a right program at hand for its plants, in place of the oldest of them."""
    _LOWERED[name] = lowered
    if len(_LOWERED) > _FEW:
        del _LOWERED[next(iter(_LOWERED))]
    return lowered


class _Reader:
    """Describes nodes of a program so that two programs can be compared.

    Parameters
    ----------
    program
        The program.
    exported
        Id of the graph that it was lowered from.
    """

    def __init__(self, program: ExportedProgram, exported: int) -> None:
        self.exported = exported
        signature = program.graph_signature
        tables = (signature.inputs_to_parameters, signature.inputs_to_buffers)
        tables += (signature.inputs_to_lifted_tensor_constants,)
        names = {placeholder: target for table in tables for placeholder, target in table.items()}
        values = {**program.state_dict, **program.constants}
        self.constants = {name: _digest(values[target]) for name, target in names.items() if target in values}

    def describe(self, node: Node) -> dict[str, Any]:
        """Name, operator, digest of all that it reads, users, and the exported operators that it comes from."""
        delegate = node.target is executorch_call_delegate
        arguments = node.args[1:] if delegate else (node.args, node.kwargs)
        return {
            "name": node.name,
            "op": str(node.target).removeprefix("<EdgeOpOverload: ").partition(">")[0],
            "digest": _digest(map_arg(arguments, self.token)),
            "users": [user.name for user in node.users],
            "origins": sorted(_origins(node.meta.get("from_node", []), self.exported)),
        }

    def token(self, node: Node) -> str:
        """The digest of a constant, else a name; views of one are told by what they view."""
        if node.target is view:
            return f"view of {self.token(node.args[0])} as {node.args[1]}"
        return self.constants.get(node.name, str(node.name))


def _origins(sources: Sequence[Any], graph: int) -> set[str]:
    """Names in the exported program."""
    found = {source.name for source in sources if source.graph_id == graph}
    return found.union(*(_origins(source.from_node, graph) for source in sources))


def difference(right: list[dict[str, Any]], wrong: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls that are not the same in two programs of one structure; ``inside`` holds the nodes that differ there.

    Raises
    ------
    ValueError
        If the two are of different structure.
    """
    if [_structure(call) for call in right] != [_structure(call) for call in wrong]:
        raise ValueError("the change alters the structure of the program")
    found = []
    for a, b in zip(right, wrong, strict=True):
        nodes = zip(a.get("inside", []), b.get("inside", []), strict=True)
        inside = [x["name"] for x, y in nodes if x["digest"] != y["digest"]]
        inputs = zip(a.get("readers", []), a.get("inputs", []), b.get("inputs", []), strict=True)
        inside += [name for readers, x, y in inputs if x != y for name in readers]
        if inside or a["digest"] != b["digest"]:
            found.append(_culprit(a, "") | {"inside": inside})
    return found


def _structure(call: dict[str, Any]) -> tuple[Any, ...]:
    return call["instruction"], call["name"], [node["name"] for node in call.get("inside", [])]


def _digest(value: Any) -> str:
    content = _bytes(value) if isinstance(value, Tensor) else repr(value).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _bytes(tensor: Tensor) -> bytes:
    tensor = tensor.detach().contiguous()
    return f"{tensor.dtype}{tuple(tensor.shape)}".encode() + tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def _measured(certificate: Certificate) -> dict[str, Any]:
    return {
        "local": [asdict(check) for check in certificate.local],
        "outputs": [asdict(check) for check in certificate.outputs],
    }


def _adopt(right: Path, wrong: Path, target: Path) -> None:
    """Write the record of the right program as that of the `.pte` of the wrong one."""
    checksum = json.loads(zipfile.ZipFile(wrong).read("record.json"))["pte_checksum"]
    with zipfile.ZipFile(right) as source, zipfile.ZipFile(target, "w") as copied:
        for info in source.infolist():
            content = source.read(info)
            if info.filename == "record.json":
                content = json.dumps(json.loads(content) | {"pte_checksum": checksum}).encode()
            copied.writestr(info, content)


@functools.cache
def _sources() -> str:
    versions = [importlib.metadata.version(name) for name in ("torch", "torchao", "executorch")]
    return "".join([*versions, *(_text(_ROOT / source) for source in _SOURCES)])


def _text(path: Path) -> str:
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return "".join(file.read_text() for file in files)


def _key(*parts: str) -> str:
    return hashlib.sha256("".join([_sources(), *parts]).encode()).hexdigest()


def _slug(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_.-]+", "-", name)
