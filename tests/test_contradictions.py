"""Whatever two files say of the same thing is compared: sound files that contradict one another are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import etviz
from etviz.errors import ArtifactError
from tests import tampering
from tests.programs import Executed
from tests.tampering import Described

Make = Callable[[str], Executed]
INT32 = 3


def _two(content: bytearray, tensors: list[Described]) -> tuple[Described, Described]:
    """Two tensors of the same sizes that different instructions logged."""
    for one in tensors:
        for other in tensors:
            sizes = [tampering.get(content, item.sizes, item.rank) for item in (one, other)]
            if 0 <= one.instruction < other.instruction and sizes[0] == sizes[1]:
                return one, other
    raise LookupError


def _matrix(content: bytearray, tensors: list[Described]) -> Described:
    """The last tensor that an instruction gave which is not the same the other way round."""
    return next(
        item
        for item in reversed(tensors)
        if item.instruction >= 0 and item.rank > 1 and len({1, *tampering.get(content, item.sizes, item.rank)}) > 2
    )


def _dtype(content: bytearray, tensors: list[Described]) -> None:
    tampering.set_dtype(content, _matrix(content, tensors), INT32)


def _output(content: bytearray, tensors: list[Described]) -> None:
    tampering.set_dtype(content, next(item for item in tensors if item.instruction < 0), INT32)


def _sizes(content: bytearray, tensors: list[Described]) -> None:
    tampering.turn(content, _matrix(content, tensors))


def _strides(content: bytearray, tensors: list[Described]) -> None:
    tampering.transpose(content, _matrix(content, tensors))


def _same_place(content: bytearray, tensors: list[Described]) -> None:
    tampering.copy_offset(content, *_two(content, tensors))


def _exchanged(content: bytearray, tensors: list[Described]) -> None:
    tampering.exchange(content, *_two(content, tensors))


def tampered(program: Executed, folder: Path, change: tampering.Change, *kinds: str) -> dict[str, Any]:
    """A program's files, of which the ETDump says something else."""
    content = bytearray(program.path("etdump").read_bytes())
    change(content, tampering.described(bytes(content)))
    (folder / "etdump.etdp").write_bytes(content)
    return {kind: program.path(kind) for kind in kinds} | {"etdump": folder / "etdump.etdp"}


@pytest.mark.parametrize(
    "kinds", [("pte", "record"), ("pte", "etrecord"), ("pte",), ("record", "etrecord")], ids="-".join
)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_dtype, r"instruction \d+ gives int32 in the one and float32 in the other"),
        (_output, "an output gives int32 in the one and float32"),
        (_sizes, r"gives sizes \(.*\) in the one and \(.*\) in the other"),
        (_strides, r"gives strides \(.*\) in the one and \(.*\) in the other"),
    ],
)
def test_values_that_contradict_the_program(
    change: tampering.Change, words: str, kinds: tuple[str, ...], executed: Make, tmp_path: Path
) -> None:
    if "pte" not in kinds and change in (_output, _strides):
        pytest.skip("only the program tells strides, and what its outputs are")
    files = tampered(executed("many_outputs"), tmp_path, change, "debug_buffer", *kinds)
    with pytest.raises(ArtifactError, match=rf"etdump.etdp: the ETDump belongs to another program.*{words}") as found:
        etviz.load(**files)
    assert "give that program's model as reference=" in str(found.value)


def test_values_that_share_their_bytes(executed: Make, tmp_path: Path) -> None:
    files = tampered(executed("many_outputs"), tmp_path, _same_place, "debug_buffer", "pte", "record")
    with pytest.raises(ArtifactError, match="overlaps the one at offset"):
        etviz.load(**files)


def test_values_that_are_exchanged(executed: Make, tmp_path: Path) -> None:
    """Nothing but the order in which a runtime writes contradicts it: that is said."""
    program = executed("many_outputs")
    files = tampered(program, tmp_path, _exchanged, "debug_buffer", "pte", "record")
    said = "is not where the runtime would have written it"
    assert said in etviz.load(**files).summary()
    assert said not in program.inspection.summary()
