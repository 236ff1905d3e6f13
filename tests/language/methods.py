"""Programs of several methods that are called in turn: prefill and decode, encoder and decoder, a stream with state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime, Verification
from torch import Tensor, nn

import etviz

WORDS, WIDTH, ROOM = 32, 16, 12
Call = tuple[str, tuple[Any, ...]]
Next = Callable[[Sequence[Sequence[Tensor]]], Call]
"""Makes a call from the outputs of the calls before it."""


@dataclass(frozen=True)
class Methods:
    """A program of several methods.

    Attributes
    ----------
    modules
        By name of a method: its module, and the arguments with which it is exported.
    calls
        What the application does, call by call.
    """

    modules: Mapping[str, tuple[nn.Module, tuple[Any, ...]]]
    calls: Sequence[Next]


class _Speaker(nn.Module):
    """Attention over a cache of its own values; with `heard`, also over what an encoder gives."""

    cache: Tensor

    def __init__(self, *, hears: bool = False) -> None:
        super().__init__()
        self.embedding, self.key = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)
        self.across = nn.Linear(WIDTH, WIDTH) if hears else None
        self.register_buffer("cache", torch.zeros(ROOM, WIDTH))
        nn.init.normal_(self.embedding.weight, std=0.5)  # so that attention looks at more than its own position

    def forward(self, tokens: Tensor, at: Tensor, heard: Tensor | None = None) -> Tensor:
        x = self.key(self.embedding(tokens)[0])
        self.cache.index_copy_(0, at, x)
        seen = torch.arange(ROOM)[None] <= at[:, None]
        weights = torch.softmax(torch.where(seen, x @ self.cache.T, -1e9), -1)
        x = x + nn.functional.gelu(self.up(weights @ self.cache))
        if self.across is not None and heard is not None:
            x = x + torch.softmax(self.across(x) @ heard[0].T, -1) @ heard[0]
        return self.out(x)


class _Listener(nn.Module):
    """An encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(8, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, sound: Tensor) -> Tensor:
        return self.norm(self.outward(torch.relu(self.inward(sound))))


class _Stream(nn.Module):
    """A step of a recurrent model whose state the application keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.again, self.out = nn.Linear(8, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, sound: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(self.inward(sound) + self.again(state))
        return self.out(state), state


def _sound(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _tokens(*words: int) -> Tensor:
    return torch.tensor([words])


def prefill_and_decode() -> Methods:
    """One decoder as two methods that share its cache."""
    torch.manual_seed(0)
    model = _Speaker().eval()
    return Methods(
        {
            "prefill": (model, (_tokens(1, 2, 3), torch.arange(3))),
            "decode": (model, (_tokens(4), torch.tensor([3]))),
        },
        [
            lambda _: ("prefill", (_tokens(7, 2, 9), torch.arange(3))),
            lambda _: ("decode", (_tokens(4), torch.tensor([3]))),
            lambda _: ("decode", (_tokens(5), torch.tensor([4]))),
            lambda _: ("prefill", (_tokens(1, 8, 3), torch.arange(3))),
            lambda _: ("decode", (_tokens(6), torch.tensor([3]))),
        ],
    )


def encoder_and_decoder() -> Methods:
    """Speech to text: the decoder takes what the encoder gave."""
    torch.manual_seed(1)
    decoder = _Speaker(hears=True).eval()
    return Methods(
        {
            "encode": (_Listener().eval(), (_sound(0, 1, 6, 8),)),
            "decode": (decoder, (_tokens(4), torch.tensor([0]), _sound(1, 1, 6, WIDTH))),
        },
        [
            lambda _: ("encode", (_sound(2, 1, 6, 8),)),
            lambda given: ("decode", (_tokens(4), torch.tensor([0]), given[0][0])),
            lambda given: ("decode", (_tokens(9), torch.tensor([1]), given[0][0])),
        ],
    )


def stream() -> Methods:
    """Speech in pieces: the state of a call is an input of the next one."""
    torch.manual_seed(2)
    model = _Stream().eval()
    return Methods(
        {"forward": (model, (_sound(0, 1, 8), torch.zeros(1, WIDTH)))},
        [
            lambda _: ("forward", (_sound(3, 1, 8), torch.zeros(1, WIDTH))),
            lambda given: ("forward", (_sound(4, 1, 8), given[-1][1])),
            lambda given: ("forward", (_sound(5, 1, 8), given[-1][1])),
        ],
    )


def build(methods: Methods, folder: Path) -> None:
    """Lower a program and write it with its ETRecord and its record, as a user does."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = {}
    for name, (module, example) in methods.modules.items():
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        programs[name] = torch.export.export(module, example)
    edge: EdgeProgramManager = to_edge_transform_and_lower(
        programs, partitioner={name: [XnnpackPartitioner()] for name in programs}, generate_etrecord=True
    )
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    manager = edge.to_executorch(config)
    (folder / "model.pte").write_bytes(manager.buffer)
    manager.get_etrecord().save(str(folder / "etrecord.bin"))
    etviz.record(edge, manager, folder / "model.etviz")


def run(methods: Methods, pte: Path, folder: Path) -> list[Call]:
    """Call the methods of a program one after the other, and return the calls."""
    program = Runtime.get().load_program(
        pte, verification=Verification.Minimal, enable_etdump=True, debug_buffer_size=1 << 20
    )
    loaded = {name: program.load_method(name) for name in methods.modules}
    given: list[list[Tensor]] = []
    calls: list[Call] = []
    for made in methods.calls:
        name, values = made(given)
        method = loaded[name]
        assert method is not None
        calls.append((name, values))
        given.append([value.clone() for value in method.execute(list(values))])
    program.write_etdump_result_to_file(str(folder / "etdump.etdp"), str(folder / "debug_buffer.bin"))
    return calls


def load(
    folder: Path, calls: Sequence[Call], method: str, *, ran: Path | None = None, **given: Any
) -> etviz.Inspection:
    """The run of the program in `ran`, compared with the record in `folder`."""
    ran = ran or folder
    return etviz.load(
        ran / "etdump.etdp",
        etrecord=folder / "etrecord.bin",
        debug_buffer=ran / "debug_buffer.bin",
        pte=folder / "model.pte",
        inputs=list(calls),
        method=method,
    )
