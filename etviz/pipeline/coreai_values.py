"""Runs Core AI's model of a delegate in Apple's runtime, which also runs on Linux."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.program.payload import Payload
from etviz.errors import UsageError
from etviz.graph.exposure import expose, parts_of_next
from etviz.graph.ir import Graph, Meta
from etviz.graph.uses import Uses, only_moves
from etviz.pipeline.interpreters import ShownInside
from etviz.upstream.coreai import run_model

if TYPE_CHECKING:
    import torch

_INLINE: Final = "inline"
_PLAIN: Final = re.compile(r"[\w.-]+\Z")
_MERGED: Final = "Core AI merges this move of elements with what follows"
_NO_VALUE: Final = "Core AI's runtime logs no value of its shape and dtype; lower with ENABLE_DEBUG_INFO=1"


def show_inside(graph: Graph, payload: Payload, names: Sequence[str], inputs: Sequence[Any], path: Path) -> ShownInside:
    """`UsageError` for no model, or a compiled one; `ImportError` without the extra ``coreai``."""
    folder = _unpacked(payload, path.parent / "coreai")
    outputs, logged = run_model(folder, list(inputs))
    if len(outputs) != len(graph.outputs):
        raise UsageError(f"Core AI's model returns {len(outputs)} values, the delegate {len(graph.outputs)}")
    uses, inner = Uses(graph), dict[str, Any]()
    for name in names:
        value = uses.value(name)
        values, meta = logged.get(value[0], []), uses.meta(value)
        if values and meta is not None and _has(values[-1], meta):
            inner[name] = values[-1]
    idle = [name for name in names if name not in inner and only_moves(uses.nodes[uses.value(name)[0]])]
    parts = parts_of_next(graph, expose(graph), idle, inner)
    missing = {name: _MERGED if name in parts else _NO_VALUE for name in names if name not in inner}
    return ShownInside(list(inner), [*outputs, *inner.values()], missing, parts)


def _has(value: torch.Tensor, meta: Meta) -> bool:
    return tuple(value.shape) == meta.shape and str(value.dtype).removeprefix("torch.") == meta.dtype


def _unpacked(payload: Payload, folder: Path) -> Path:
    try:
        manifest = json.loads(bytes(payload.data))
        packaging, digest, files = manifest["packaging"], str(manifest["hash"]), list(map(str, manifest["files"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError("the delegate's manifest can't be read; lower it with executorch 1.5") from error
    if packaging != _INLINE:
        raise UsageError(f"the delegate's model is {packaging}; only one that the .pte holds (inline) runs here")
    for name in files:
        parts = PurePosixPath(name).parts
        if not parts or not all(_PLAIN.match(part) and part not in (".", "..") for part in parts):
            raise UsageError(f"the delegate's manifest names the file {name[:80]!r}")
        content = payload.named.get(f"coreai/{digest}/{name}")
        if content is None:
            raise UsageError(f"the program lacks the file {name[:80]} of the delegate's model")
        place = folder.joinpath(*parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(bytes(content))
    models = sorted(folder.glob("*.aimodel"))
    if len(models) != 1:
        raise UsageError(f"the delegate has {len(models)} models, expected one")
    return models[0]
