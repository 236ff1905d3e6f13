"""Programs of upstream's exporters, recorded by one line around the exporter."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import etviz
from etviz.errors import UsageError
from etviz.pipeline.execute import execute
from tests.language.programs import RECIPES, ROOM, model_of
from tests.shelf import Shelf

_LLAMA = "executorch.examples.models.llama"
STEPS = 3


def _export(folder: Path) -> None:
    """`export_llm` with a configuration and a checkpoint written here: 8da4w, 4-bit embeddings, custom attention."""
    sizes = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 128, "vocab_size": 128}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(sizes))
    torch.save(dict(model_of(RECIPES["plain"]).state_dict()), folder / "checkpoint.pth")
    config = importlib.import_module("executorch.extension.llm.export.config.llm_config").LlmConfig()
    config.base.checkpoint, config.base.params = str(folder / "checkpoint.pth"), str(folder / "params.json")
    config.model.use_kv_cache = config.model.use_sdpa_with_kv_cache = True
    config.quantization.qmode, config.quantization.group_size = "8da4w", 32
    config.quantization.embedding_quantize = "4,32"
    config.export.max_seq_length = config.export.max_context_length = ROOM
    config.export.output_name = str(folder / "model.pte")
    config.backend.xnnpack.enabled = config.backend.xnnpack.extended_ops = True
    config.debug.generate_etrecord = True
    with etviz.recording(folder / "model.etviz"):
        importlib.import_module(f"{_LLAMA}.export_llama_lib").export_llama(config)
    calls = [(torch.tensor([[7, 3, 9]]), {"input_pos": torch.tensor([0])})]
    calls += [(torch.tensor([[5 + at]]), {"input_pos": torch.tensor([3 + at])}) for at in range(STEPS - 1)]
    torch.save([tuple(tree_leaves(call)) for call in calls], folder / "calls.pt")
    execute(folder / "model.pte", [tree_leaves(call) for call in calls], workdir=folder)


@pytest.mark.slow
def test_export_llm(shelf: Shelf) -> None:
    folder = shelf.folder("export-llm", _export)
    calls = torch.load(folder / "calls.pt", weights_only=True)
    for record in (folder / "model.etviz", None):
        pte = folder / "model.pte"
        if record is None:
            pte = folder / "alone" / "model.pte"
            pte.parent.mkdir(exist_ok=True)
            pte.write_bytes((folder / "model.pte").read_bytes())
        files: dict[str, Any] = {
            "etrecord": folder / "etrecord.bin",
            "debug_buffer": folder / "debug_buffer.bin",
            "pte": pte,
        }
        found = etviz.load(folder / "etdump.etdp", **files, record=record, inputs=calls)
        assert set(found.gaps["pairing"]) == {"exact" if record else "derived"}
        assert found.outputs["event_block"].nunique() == STEPS
        assert found.first_divergence is None
        assert "other weights" not in found.summary()
        rest = found.coverage[found.coverage["status"] == "not compared"]
        assert set(rest["reason"]) == {"the runtime logged no value for it"}


def test_operators_of_the_exporter_are_found_where_only_files_are_loaded() -> None:
    """An exporter registers operators for the process that it runs in; who loads its files has not imported it."""
    names = ("embedding_4bit.dtype", "embedding_byte.dtype", "quantize_per_tensor.default")
    code = (
        f"from etviz.evaluation.operator_rules import resolve; [resolve('quantized_decomposed.' + n) for n in {names}]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_recording_takes_one_program(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found 0"), etviz.recording(tmp_path / "model.etviz"):
        pass
    assert not (tmp_path / "model.etviz").exists()
