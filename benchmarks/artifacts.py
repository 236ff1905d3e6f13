"""Makes the artifacts of each measured program once, and keeps them in a cache folder.

A folder appears under its name only when it is complete, and its name holds the versions that made it, so artifacts of
another executorch are never measured by mistake.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tqdm.auto import tqdm

from etviz.artifacts.known_files import note_written
from etviz.artifacts.record.record_file import VERSION as RECORD_FORMAT

if TYPE_CHECKING:
    from torch import Tensor, nn

Build = Callable[[], "tuple[nn.Module, tuple[Tensor, ...]]"]

STACKS: Final = (12, 24, 48, 96, 192)
DEEP_STACKS: Final = (*STACKS, 400)
QUICK_STACKS: Final = (2, 4)


@dataclass(frozen=True, slots=True)
class Program:
    """One program to measure.

    Attributes
    ----------
    name
        For ``--only`` and for the cache folder.
    title
        For people.
    build
        Makes the eager model and its inputs.
    delegated
        True: lowered to XNNPACK as in the ExecuTorch tutorial; False: portable kernels only.
    buffer
        Bytes of the debug buffer file, which ExecuTorch's Python bindings write at full capacity; 0 keeps what is used.
    layers
        Size on the axis along which growth is measured, 0 for a program that stands alone.
    needs
        Package that building takes, empty if torch is enough.
    """

    name: str
    title: str
    build: Build
    delegated: bool = False
    buffer: int = 0
    layers: int = 0
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Paths of the files of an executed program; `record` is beside the `.pte`, and not beside ``alone``, the same."""

    folder: Path

    @property
    def paths(self) -> dict[str, str]:
        """The files by the name of `etviz.load`'s argument."""
        names = {
            "etdump": "etdump.etdp",
            "etrecord": "etrecord.bin",
            "debug_buffer": "debug_buffer.bin",
            "pte": "model.pte",
            "record": "model.etviz",
            "alone": "alone/model.pte",
        }
        return {kind: str(self.folder / name) for kind, name in names.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(Path(path).stat().st_size for path in self.paths.values())


def programs(*, quick: bool = False, deep: bool = False) -> list[Program]:
    """What is measured: two vision transformers through XNNPACK, and portable stacks of growing depth."""
    from benchmarks import models

    size = "small ViT" if quick else "ViT-B/16"
    found = [
        Program("vit", f"{size}, XNNPACK", partial(models.vit, small=quick), True, buffer=0 if quick else 1 << 30),
        Program(
            "vit-transformers",
            f"{size} of transformers, XNNPACK",
            partial(models.vit_transformers, small=quick),
            True,
            buffer=0 if quick else 1 << 30,
            needs="transformers",
        ),
    ]
    for layers in QUICK_STACKS if quick else DEEP_STACKS if deep else STACKS:
        build = partial(models.decoder_stack, layers)
        found.append(Program(f"stack-{layers}", f"{layers}-layer stack, portable", build, layers=layers))
    return found


def tiny() -> Program:
    """The program that warms a process up."""
    from benchmarks import models

    return Program("tiny", "tiny", models.tiny)


def missing(program: Program) -> str:
    """Why a program can't be built here, empty if it can."""
    if not program.needs:
        return ""
    try:
        version(program.needs)
    except PackageNotFoundError:
        return f"{program.needs} is not installed (pip install 'etviz[bench]')"
    return ""


def prepare(chosen: Sequence[Program], cache: Path, *, quick: bool) -> dict[str, Artifacts]:
    """The artifacts of the programs, made where they are not in the cache yet."""
    cache.mkdir(parents=True, exist_ok=True)
    folders = {program.name: cache / f"{program.name}{'-quick' * quick}-{_stamp()}" for program in chosen}
    new = [program for program in chosen if not folders[program.name].is_dir()]
    for program in tqdm(new, desc="make artifacts", unit="program", disable=not new):
        _make(program, folders[program.name])
    found = {name: Artifacts(folder) for name, folder in folders.items()}
    for artifacts in found.values():  # they were cut and linked after etviz wrote them, which makes them foreign
        note_written(artifacts.paths.values())
    return found


def _stamp() -> str:
    """What the artifacts depend on, in a few characters: versions, the record's format, and the models' source."""
    versions = f"executorch {version('executorch')} torch {version('torch')} record {RECORD_FORMAT}"
    models = b"".join(Path(__file__).with_name(name).read_bytes() for name in ("models.py", "artifacts.py"))
    return hashlib.sha256(versions.encode() + models).hexdigest()[:8]


def _make(program: Program, folder: Path) -> None:
    from torch.utils._pytree import tree_leaves

    from etviz.pipeline.execute import execute
    from etviz.pipeline.lower import lower

    partial_folder = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial_folder, ignore_errors=True)
    partial_folder.mkdir()
    try:
        model, inputs = program.build()
        lowered = lower(model, inputs, partial_folder, partitioner=_partitioner() if program.delegated else None)
        run = execute(lowered.pte, [tree_leaves(inputs)], workdir=partial_folder)
        if program.buffer and run.debug_buffer is not None:
            os.truncate(run.debug_buffer, program.buffer)
        (partial_folder / "alone").mkdir()
        os.link(partial_folder / "model.pte", partial_folder / "alone" / "model.pte")
        partial_folder.rename(folder)
    finally:
        shutil.rmtree(partial_folder, ignore_errors=True)


def _partitioner() -> list[Any]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return [XnnpackPartitioner()]
