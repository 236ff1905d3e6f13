"""All tensors of a run as safetensors files, with an index in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.files import whole_files
from etviz.errors import EtvizError, UsageError, during

if TYPE_CHECKING:
    import torch

    from etviz.analysis.analysis import Analysis

INDEX: Final = "index.json"
_FORMAT: Final = "etviz-tensors"
_SHARD: Final = 256 << 20
"""Bytes after which another file begins, to bound the memory of a dump."""
_ABOUT: Final = ("name", "event_block", "instruction", "kind", "op", "output", "module", "source", "status", "reason")


class _Shards:
    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._count, self._most = folder, 0, most
        self._held: dict[str, torch.Tensor] = {}

    def add(self, key: str, tensor: torch.Tensor) -> dict[str, Any]:
        import torch

        held = sum(item.nbytes for item in self._held.values())
        if self._held and held + tensor.nbytes > self._most:
            self.write()
        self._held[key] = tensor.detach().clone(memory_format=torch.contiguous_format)
        about = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        return {"file": f"tensors-{self._count:05}.safetensors", "key": key, **about}

    def write(self) -> None:
        from safetensors.torch import save_file

        if self._held:
            save_file(self._held, self._folder / f"tensors-{self._count:05}.safetensors")
            self._count, self._held = self._count + 1, {}


@during("writing the tensors")
def write_tensors(analysis: Analysis, folder: Any, most: int = _SHARD) -> Path:
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file; name a folder for the tensors")
    with whole_files(target) as fresh:
        shards = _Shards(fresh, most)
        body = {
            "format": _FORMAT,
            "version": 1,
            "title": analysis.title,
            "rows": list(_rows(analysis, shards)),
            "outputs": list(_outputs(analysis, shards)),
            "inputs": list(_inputs(analysis, shards)),
        }
        shards.write()
        (fresh / INDEX).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return target / INDEX


def _rows(analysis: Analysis, shards: _Shards) -> Iterator[dict[str, Any]]:
    from tqdm.auto import tqdm

    for row in tqdm(range(len(analysis.rows)), desc="tensors", unit="row", leave=False, delay=1):
        about = analysis.rows.find(row).about
        entry: dict[str, Any] = {"row": row} | {name: _plain(about.get(name)) for name in _ABOUT}
        try:
            pair = analysis.values.pair(row)
        except EtvizError as error:
            yield entry | {"missing": str(error)}
            continue
        sides = {"runtime": pair.runtime, "reference": pair.reference}
        entry |= {side: shards.add(f"{row}.{side}", value) for side, value in sides.items() if value is not None}
        yield entry | ({"missing": pair.missing} if pair.missing else {})


def _outputs(analysis: Analysis, shards: _Shards) -> Iterator[dict[str, Any]]:
    from etviz.comparison.measurement import as_tensor

    for number, run in enumerate(analysis.tables.compared.runs):
        sides = {"runtime": run.comparison.runtime_outputs, "reference": run.comparison.reference_outputs}
        for output in range(max(map(len, sides.values()))):
            entry: dict[str, Any] = {"event_block": run.event_block, "output": output}
            for side, values in sides.items():
                tensor = as_tensor(values[output]) if output < len(values) else None
                if tensor is not None:
                    entry[side] = shards.add(f"output.{number}.{output}.{side}", tensor)
            yield entry


def _inputs(analysis: Analysis, shards: _Shards) -> Iterator[dict[str, Any]]:
    replay = analysis.tables.compared.replay
    for number, run in enumerate(replay.executions if replay is not None else ()):
        for at, value in enumerate(run.inputs):
            entry: dict[str, Any] = {"execution": number, "input": at}
            known = shards.add(f"input.{number}.{at}", value) if hasattr(value, "nbytes") else _plain(value)
            yield entry | {"value": known}


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)
