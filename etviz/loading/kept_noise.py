"""Keeps the noise of large programs: it follows from program, weights and inputs, so the next load need not measure it.

A file in the user's state folder for each program and inputs, and one for each log of them. Device, inode, size and
times tell the files, so what a file from elsewhere leaves here is for that file alone.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import torch

import etviz.evaluation
from etviz._version import __version__
from etviz.artifacts.files import write_file
from etviz.artifacts.known_files import identity, state_folder
from etviz.errors import EtvizError
from etviz.evaluation.noise import Samples
from etviz.evaluation.threads import has_few_values, is_small
from etviz.tensors.digest import digest
from etviz.tensors.metrics import Noise
from etviz.upstream.libraries import is_users

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etviz.graph.ir import Graph
    from etviz.loading.paired import Paired

logger = logging.getLogger(__name__)

_MOST: Final = 64
_PROGRAM: Final = ("pte", "etrecord", "record")
_LOG: Final = ("etdump", "debug_buffer")
_DAMAGED: Final = (OSError, ValueError, LookupError, TypeError, AttributeError)


class KeptNoise:
    """What one program's noise was on some inputs; `graph` is the reference's, without operators of the user's."""

    def __init__(self, paired: Paired, graph: Graph) -> None:
        named = paired.artifacts.named
        self._files = [path for kind, path in named.items() if kind in _PROGRAM]
        self._log = [named[kind] for kind in _LOG if kind in named] if not paired.artifacts.dump.made else []
        self._names = [(node.name, node.target, node.instruction) for node in graph.walk()]
        whole = ("etrecord" in named or "record" in named) and not (paired.turns or paired.forgotten)
        users = paired.own_operators is not None or any(is_users(target) for _, target, _ in self._names)
        self._is_kept = whole and not users and not (is_small(graph) and has_few_values(graph))
        self._pairing = paired.pairing

    def of(self, inputs: Sequence[Any]) -> Samples | None:
        try:
            told = self._told(self._files, inputs)
            return Samples.of_told(told) if told is not None else None
        except _DAMAGED:
            return None

    def keep(self, inputs: Sequence[Any], samples: Samples) -> None:
        self._keep(self._files, inputs, samples.told)

    def introduced(self, inputs: Sequence[Any]) -> dict[str, list[Noise]]:
        try:
            told = self._told([*self._files, *self._log], inputs) if len(self._log) == len(_LOG) else None
            each = {} if told is None else told.items()
            return {key: [Noise(float.fromhex(noise), str(how)) for noise, how in noises] for key, noises in each}
        except _DAMAGED:
            return {}

    def keep_introduced(self, inputs: Sequence[Any], noises: Mapping[str, list[Noise]]) -> None:
        if len(self._log) == len(_LOG):
            told = {key: [(noise.hex(), noise.how) for noise in each] for key, each in noises.items()}
            self._keep([*self._files, *self._log], inputs, lambda: told)

    def _told(self, files: Sequence[str], inputs: Sequence[Any]) -> Any:
        return orjson.loads(self._place(files, inputs).read_bytes()) if self._is_kept else None

    def _keep(self, files: Sequence[str], inputs: Sequence[Any], told: Callable[[], Any]) -> None:
        if not self._is_kept:
            return
        try:
            place = self._place(files, inputs)
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(place, "noise", orjson.dumps(told()))
            for old in sorted(place.parent.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:-_MOST]:
                old.unlink(missing_ok=True)
        except (OSError, RuntimeError, TypeError, EtvizError) as error:
            logger.debug("the noise can't be kept: %s", error)

    def _place(self, files: Sequence[str], inputs: Sequence[Any]) -> Path:
        key = digest([*_versions(), self._pairing, *map(identity, files), self._names, *inputs])
        return state_folder() / "noise" / f"{key.hex()}.json"


@cache
def _versions() -> tuple[str, ...]:
    code = Path(etviz.evaluation.__file__).parent.glob("*.py")
    return (__version__, torch.__version__, *map(identity, sorted(code)))
