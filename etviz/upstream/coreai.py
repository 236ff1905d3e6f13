# pyright: reportMissingImports=false
"""Apple's Core AI runtime. Imports are in the function: the extra ``coreai`` may not be installed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def run_model(folder: Path, inputs: list[torch.Tensor]) -> tuple[list[torch.Tensor], dict[str, list[torch.Tensor]]]:
    """A model's (``*.aimodel``) outputs, and by lowered operator its operations' values, in order.

    Inner values need lowering with ``ENABLE_DEBUG_INFO=1``. `ImportError` without the extra ``coreai``.
    """
    import asyncio

    import torch
    from coreai.authoring.asset import AIModelAsset
    from coreai.runtime import CompileIdentifiers, IntermediateLogger, NDArray

    async def run() -> tuple[list[torch.Tensor], dict[str, list[torch.Tensor]]]:
        inner: dict[str, list[torch.Tensor]] = {}
        asset: Any = AIModelAsset.load(folder)
        async with asset.executable() as model:
            origins = dict(_origins(json.loads(model._debug_infos)))

            def see(arrays: list[Any], kind: str, identifiers: Any) -> None:
                if kind == "output" and len(arrays) == 1 and arrays[0] is not None:
                    value = torch.from_dlpack(arrays[0].to_dlpack()).clone()
                    inner.setdefault(origins[identifiers.id], []).append(value)

            logger = IntermediateLogger([CompileIdentifiers(number) for number in origins], see, is_enabled=True)
            function = model.load_function(model.function_names[0], logger)
            given = zip(function.desc.input_names, inputs, strict=True)
            results = await function({name: NDArray(value.detach().contiguous().numpy()) for name, value in given})
            return [torch.from_numpy(results[name].numpy().copy()) for name in function.desc.output_names], inner

    return asyncio.run(run())


def _origins(infos: list[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    for info in infos:
        for operation in info.get("operations", ()):
            sources = [entry for entry in operation.get("metadatas", ()) if entry.get("key") == "sources"]
            names = {text["_0"] for text in _strings(sources)}
            if len(names) == 1:
                yield operation["odixId"], names.pop()


def _strings(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for part in value:
            yield from _strings(part)
    elif isinstance(value, dict):
        if "identifiers" in value:
            yield from (part["string"] for part in value["identifiers"]["array"]["_0"])
            return
        for part in value.values():
            yield from _strings(part)
