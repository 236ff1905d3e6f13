"""Programs of several methods that are called in turn: prefill and decode, encoder and decoder, a stream with state."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime, Verification
from torch import Tensor, nn

import etviz
from tests.language.programs import Recipe, model_of

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
    dynamic
        By name of a method: the dimensions of its inputs that vary.
    """

    modules: Mapping[str, tuple[nn.Module, tuple[Any, ...]]]
    calls: Sequence[Next]
    dynamic: Mapping[str, Any] = field(default_factory=dict)


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


class _Eye(nn.Module):
    """CLIP's tower in small, and the projector after it: patches of a picture become embeddings."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4, bias=False)
        self.place = nn.Embedding(9, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.outward, self.projector = nn.Linear(WIDTH, width), nn.Linear(width, width)

    def forward(self, picture: Tensor) -> Tensor:
        x = self.patches(picture[None].float() / 255 - 0.5).flatten(2).transpose(1, 2)
        x = self.layer(x + self.place(torch.arange(9)))
        return self.projector(nn.functional.gelu(self.outward(x)))


class _Text(nn.Module):
    """Upstream's Llama on embeddings, as upstream's LLaVA exports it."""

    def __init__(self, llama: nn.Module) -> None:
        super().__init__()
        self.text_model = llama

    def forward(self, embeddings: Tensor, input_pos: Tensor) -> Tensor:
        return self.text_model(None, {"input_pos": input_pos}, embeddings)


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


def vision_and_text() -> Methods:
    """LLaVA's three methods: a picture between two pieces of text, then token by token."""
    llama = model_of(Recipe({"enable_dynamic_shape": True, "n_layers": 1}, weights="8da4w"))
    torch.manual_seed(4)
    embedding, width = nn.Embedding(128, 64), 64
    eye, text = _Eye(width).eval(), _Text(llama).eval()
    length = torch.export.Dim("length", min=2, max=ROOM)
    picture = torch.randint(0, 255, (3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(6))
    calls: list[Next] = [
        lambda _: ("token_embedding", (_tokens(1, 5, 9),)),
        lambda given: ("text_decoder", (given[-1][0], torch.tensor([0]))),
        lambda _: ("vision_encoder", (picture,)),
        lambda given: ("text_decoder", (given[-1][0], torch.tensor([3]))),
    ]
    for at, words in enumerate([(30, 31), (77,), (12,)]):
        start = (12, 14, 15)[at]
        calls += [
            lambda _, words=words: ("token_embedding", (_tokens(*words),)),
            lambda given, start=start: ("text_decoder", (given[-1][0], torch.tensor([start]))),
        ]
    return Methods(
        {
            "vision_encoder": (eye, (picture,)),
            "token_embedding": (embedding, (_tokens(1, 2, 3, 4),)),
            "text_decoder": (text, (_sound(7, 1, 5, width), torch.tensor([0]))),
        },
        calls,
        {"token_embedding": ({1: length},), "text_decoder": ({1: length}, None)},
    )


def build(methods: Methods, folder: Path) -> None:
    """Lower a program and write it with its ETRecord and its record, as a user does."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = {}
    for name, (module, example) in methods.modules.items():
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        programs[name] = torch.export.export(module, example, dynamic_shapes=methods.dynamic.get(name), strict=False)
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
    importlib.import_module("executorch.extension.llm.custom_ops.custom_ops")  # registers its kernels
    program = Runtime.get().load_program(
        pte, verification=Verification.Minimal, enable_etdump=True, debug_buffer_size=1 << 24
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
        method=method,
        **{"inputs": list(calls), **given},
    )
