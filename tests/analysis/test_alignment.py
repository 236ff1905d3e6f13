"""Two random programs, of which one has an operator more: every other operator has its own partner."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from etviz.explain.stages.alignment import align
from etviz.graph.ir import Graph
from etviz.pipeline.capture import capture_program

UNARY = [torch.sin, torch.tanh, torch.exp, torch.relu, torch.sigmoid]
BINARY = [torch.add, torch.mul, torch.sub, torch.maximum]
STEPS = 24


@dataclass
class Step:
    function: Any
    reads: list[int]


class Program(nn.Module):
    """`put` is the step after which every later one reads the value times 1.25; None for none."""

    def __init__(self, steps: list[Step], put: int | None = None) -> None:
        super().__init__()
        self.steps, self.put = steps, put

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        values = [x, y]
        for at, step in enumerate(self.steps):
            value = step.function(*(values[read] for read in step.reads))
            values.append(value * 1.25 if at == self.put else value)
        return torch.cat(values[2:])


def steps_of(seed: int) -> list[Step]:
    drawn = random.Random(seed)
    steps: list[Step] = []
    while len(steps) < STEPS:
        function = drawn.choice(UNARY + BINARY)
        reads = drawn.sample(range(max(0, len(steps) - 4), len(steps) + 2), 1 if function in UNARY else 2)
        if (function, reads) not in [(step.function, step.reads) for step in steps]:  # equal ones may change places
            steps.append(Step(function, reads))
    return steps


def graph_of(program: Program) -> Graph:
    inputs = (torch.randn(2, 3), torch.randn(2, 3))
    return capture_program(torch.export.export(program, inputs), "forward", "", {})


@pytest.mark.parametrize("seed", range(10))
def test_an_operator_more_leaves_all_others_their_partners(seed: int) -> None:
    steps = steps_of(seed)
    put = random.Random(seed).randrange(STEPS - 1)
    reference, program = graph_of(Program(steps)), graph_of(Program(steps, put))
    more = program.nodes[put + 1].name
    partners = [node.name for node in program.nodes if node.name != more]
    for right, wrong, only in ((reference, program, ([more], [])), (program, reference, ([], [more]))):
        found = align(wrong, right, {})
        assert (found.more, found.fewer) == only
        of = {a[0]: b[0] for a, b in found.reference.partner.items()}
        pairs = dict(zip((node.name for node in reference.nodes), partners, strict=True))
        pairs = pairs if right is reference else {b: a for a, b in pairs.items()}
        assert {name: of.get(name) for name in pairs} == pairs
