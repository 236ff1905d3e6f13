"""``make bench-large``: a Llama-like decoder of a billion parameters, one decode step with a KV cache, and a prefill.

Random weights, 4 bits in groups of 32, as ExecuTorch's own recipe for XNNPACK quantizes them. Made once, kept in the
cache folder; each measurement runs in a fresh process, the eager model's right before that of the files.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from benchmarks.tasks import Meter

if TYPE_CHECKING:
    from etviz.evaluation.replay import Replay

CACHE: Final = Path("build/bench-large")
CONTEXT: Final = 128
PREFILL: Final = 64
GROUP: Final = 32


@dataclass(frozen=True, slots=True)
class Size:
    """What a decoder is made of; the defaults are a billion parameters."""

    layers: int = 16
    dim: int = 2048
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 8192
    vocabulary: int = 32_000

    @property
    def name(self) -> str:
        """For the cache folder."""
        return "-".join(str(value) for value in asdict(self).values())


class Attention(nn.Module):
    """Grouped-query attention with rotary positions over a cache of keys and values: ``[1, tokens, dim]``."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = size.heads, size.kv_heads, size.dim // size.heads
        self.q = nn.Linear(size.dim, size.heads * self.width, bias=False)
        self.k = nn.Linear(size.dim, size.kv_heads * self.width, bias=False)
        self.v = nn.Linear(size.dim, size.kv_heads * self.width, bias=False)
        self.o = nn.Linear(size.dim, size.dim, bias=False)
        shape = (1, size.kv_heads, CONTEXT, self.width)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, x: Tensor, where: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Keys and values of these tokens are written at `where`; all of the cache is attended, but for the mask."""
        tokens = x.shape[1]
        q = self.q(x).view(1, tokens, self.heads, self.width).transpose(1, 2)
        k = self.k(x).view(1, tokens, self.kv_heads, self.width).transpose(1, 2)
        v = self.v(x).view(1, tokens, self.kv_heads, self.width).transpose(1, 2)
        keys = self.get_buffer("keys").index_copy_(2, where, _rotated(k, turn))
        values = self.get_buffer("values").index_copy_(2, where, v)
        repeat = self.heads // self.kv_heads
        mixed = nn.functional.scaled_dot_product_attention(
            _rotated(q, turn), keys.repeat_interleave(repeat, 1), values.repeat_interleave(repeat, 1), attn_mask=mask
        )
        return self.o(mixed.transpose(1, 2).reshape(1, tokens, -1))


def _rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Block(nn.Module):
    """Attention and a gated MLP, each on normalized values and added to what came in."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(size.dim, eps=1e-5), nn.RMSNorm(size.dim, eps=1e-5)
        self.attention = Attention(size)
        self.gate = nn.Linear(size.dim, size.hidden, bias=False)
        self.up = nn.Linear(size.dim, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.dim, bias=False)

    def forward(self, x: Tensor, where: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """``[1, tokens, dim]`` → the same."""
        x = x + self.attention(self.norm_1(x), where, turn, mask)
        y = self.norm_2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Token ids ``[1, tokens]`` and their positions ``[tokens]`` → scores of the last one ``[1, vocabulary]``."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.dim)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.dim, eps=1e-5)
        self.head = nn.Linear(size.dim, size.vocabulary, bias=False)
        width = size.dim // size.heads
        speed = 10_000.0 ** (-torch.arange(0, width, 2) / width)
        angle = torch.arange(CONTEXT)[:, None] * torch.cat([speed, speed])
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -1e4).triu(1))

    def forward(self, ids: Tensor, where: Tensor) -> Tensor:
        """Scores of the token that follows."""
        turn = self.get_buffer("cos")[where], self.get_buffer("sin")[where]
        mask = self.get_buffer("mask")[where]
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, where, turn, mask)
        return self.head(self.norm(x[:, -1]))


def build(size: Size, tokens: int) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """The quantized decoder and its inputs."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass

    torch.manual_seed(0)
    model = Decoder(size).eval()
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(GROUP))  # pyright: ignore[reportAttributeAccessIssue]
    quantize_(model, config)
    return unwrap_tensor_subclass(model), (torch.randint(0, size.vocabulary, (1, tokens)), torch.arange(tokens))


def make(size: Size, tokens: int, folder: Path) -> None:
    """Lower, run and keep the artifacts, the record among them."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from torch.utils._pytree import tree_leaves

    from etviz.pipeline.execute import execute
    from etviz.pipeline.lower import lower

    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        model, inputs = build(size, tokens)
        lowered = lower(model, inputs, partial, partitioner=[XnnpackPartitioner()])
        del model
        gc.collect()
        execute(lowered.pte, [tree_leaves(inputs)], workdir=partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def measure_eager(size: Size, tokens: int) -> dict[str, Any]:
    """The quantized model in memory, called for the second and third time: the quicker one."""
    model, inputs = build(size, tokens)
    found = []
    with torch.no_grad():
        model(*inputs)
        for _ in range(2):
            meter = Meter()
            model(*inputs)
            found.append(meter.read())
    best = min(found, key=lambda item: item["seconds"])
    return {f"eager_{what}": best[what] for what in ("seconds", "processor")}


def measure(folder: Path) -> dict[str, Any]:
    """Files to table, report, attribution and one look inside; in a process that did nothing before.

    ``forward`` is the operators of the edge program, one after the other on the mapped weights: what a reference costs
    at least.
    """
    import etviz

    found: dict[str, Any] = {}
    found["files_mb"] = sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) / 2**20
    given = {
        "etrecord": folder / "etrecord.bin",
        "debug_buffer": folder / "debug_buffer.bin",
        "pte": folder / "model.pte",
    }
    for name, introduced in (("table", False), ("introduced", True)):
        meter = Meter(apart=True)
        inspection = etviz.load(folder / "etdump.etdp", **given, introduced=introduced)  # pyright: ignore[reportArgumentType]
        found |= {f"{name}_rows": len(inspection.gaps)}
        found |= {f"{name}_{what}": value for what, value in meter.read().items()}
        found["verdict"] = inspection.analysis.digest.verdict
        meter = Meter(apart=True)
        if not introduced:
            found |= _forward(inspection.analysis.tables.compared.replay)
            continue
        with tempfile.TemporaryDirectory() as out:
            report = inspection.to_html(Path(out) / "report.html")
            found["report_mb"] = Path(report).stat().st_size / 2**20
        found |= {f"report_{what}": value for what, value in meter.read().items()}
        meter = Meter(apart=True)
        found["attribution_sum"] = float(inspection.attribution()["share"].sum())
        found |= {f"attribution_{what}": value for what, value in meter.read().items()}
        delegate = inspection.gaps[inspection.gaps["kind"] == "delegate"].iloc[0]
        meter = Meter(apart=True)
        found["inside_rows"] = len(inspection.zoom(delegate).gaps)
        found |= {f"inside_{what}": value for what, value in meter.read().items()}
    return found


def _forward(replay: Replay | None) -> dict[str, float]:
    """The edge program on the mapped weights, twice."""
    found: dict[str, float] = {}
    if replay is None:
        return found
    for often in ("first", "again"):
        meter = Meter(apart=True)
        replay.fresh().run(replay.executions[0].inputs)
        found |= {f"forward_{often}_{what}": value for what, value in meter.read().items()}
    return found


def main() -> int:
    """Make what is missing, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    for name, value in asdict(Size()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--tokens", type=int, action="append", help=f"1 is a decode step; 1 and {PREFILL} by default")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--eager", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = Size(**{name: getattr(options, name) for name in asdict(Size())})
    if options.one or options.eager:
        print(json.dumps(measure(options.one) if options.one else measure_eager(size, options.eager)))
        return 0
    for tokens in options.tokens or (1, PREFILL):
        folder = options.cache / f"{size.name}-{tokens}"
        if not folder.is_dir():
            make(size, tokens, folder)
        found: dict[str, Any] = {}
        model = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(size).items()]
        for what in (["--eager", str(tokens), *model], ["--one", str(folder)]):
            command = [sys.executable, "-m", "benchmarks.large", *what]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                return done.returncode
            found |= json.loads(done.stdout.splitlines()[-1])
        found["table_per_eager"] = found["table_seconds"] / found["eager_seconds"]
        print(f"{tokens} token{'s' * (tokens > 1)}:")
        for name, value in found.items():
            print(f"  {name:24} {value:,.2f}" if isinstance(value, float) else f"  {name:24} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
