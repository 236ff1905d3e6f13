"""Draws docs/images/noise.svg: the error of correct kernels over the noise that the law gives them.

``python docs/noise_picture.py``
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor

from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.law import noise_of
from etviz.graph.ir import Graph, Node

mpl.use("svg")
from matplotlib import pyplot as plt

TARGET = Path(__file__).parent / "images" / "noise.svg"
TERMS = [2**power for power in range(2, 16)]
KINDS = {
    "zero mean": lambda x: x,
    "one sign": torch.abs,
    "mean of 10 deviations": lambda x: x + 10.0,
    "equal terms": lambda x: x[:, :1].abs().expand_as(x).contiguous(),
}
KERNELS: dict[str, tuple[str, Any]] = {
    "sum": ("aten.sum.dim_IntList", lambda width: ([1],)),
    "product of matrices": ("aten.mm.default", lambda width: (drawn(width, 20, 1),)),
    "layer norm": ("aten.native_layer_norm.default", lambda width: ([width], None, None, 1e-5)),
    "softmax": ("aten._softmax.default", lambda width: (1, False)),
}


def drawn(rows: int, columns: int, seed: int = 0) -> Tensor:
    """Normal numbers."""
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def rms(values: Any) -> float:
    """Root of the mean square."""
    return math.sqrt(float(torch.as_tensor(values).double().square().mean()))


def ratio(target: str, args: tuple[Any, ...], found: Tensor | None = None) -> float:
    """The error of a result, by default of torch's own kernel, over the noise by law."""
    call, node = Evaluator(Graph("forward"), {}).limits.call, Node("node", target, args)
    value = call(target, args, {})
    exact = call(target, [item.double() if isinstance(item, Tensor) else item for item in args], {})
    first, wide = (item[0] if isinstance(item, (list, tuple)) else item for item in (value, exact))
    return rms((first if found is None else found) - wide) / noise_of(call, node, args, {}, value)[0]


def main() -> None:
    """Draw it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for name, make in KINDS.items():
        rows = [make(drawn(60, terms)) for terms in TERMS]
        sums = [torch.from_numpy(np.add.accumulate(x.numpy(), axis=1)[:, -1]) for x in rows]
        found = [ratio("aten.sum.dim_IntList", (x, [1]), total) for x, total in zip(rows, sums, strict=True)]
        left.plot(TERMS, found, marker="o", markersize=3, label=name)
    for name, (target, rest) in KERNELS.items():
        found = [ratio(target, (drawn(60, terms), *rest(terms))) for terms in TERMS[:11]]
        right.plot(TERMS[:11], found, marker="o", markersize=3, label=name)
    left.set_title("one element after another (portable kernels)", fontsize=9)
    right.set_title("torch's kernels, zero mean", fontsize=9)
    left.set_ylabel("error / noise by law")
    for axes in (left, right):
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 1.2)
        axes.set_xlabel("terms K")
        axes.legend(fontsize=8, frameon=False)
    plt.rcParams["svg.hashsalt"] = "etviz"
    figure.savefig(TARGET, metadata={"Date": None})


if __name__ == "__main__":
    main()
