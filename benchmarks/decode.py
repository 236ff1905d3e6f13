"""What tokens cost: ``python -m benchmarks.decode`` decodes 128 forced tokens of a Llama of 30 layers, and prints.

The model is upstream's, 256 wide, with its own cache and attention; it is lowered for XNNPACK and runs in this
process's child. All tokens are given, or the reference chooses the second half of them.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from executorch.runtime import Runtime
from rich.console import Console
from rich.table import Table
from torch.utils._pytree import tree_leaves

from etviz.pipeline.execute import execute
from tests.language.programs import RECIPES, make, model_of

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS: Final = 128
_WORDS: Final = 1024
_SIZES: Final = {"n_layers": 30, "dim": 256, "n_heads": 8, "n_kv_heads": 4, "hidden_dim": 512, "vocab_size": _WORDS}
_ROOM: Final = {"max_seq_len": 160, "max_context_len": 160}


def main() -> int:
    """Make the program, measure and print; returns the exit status."""
    import etviz

    recipe = RECIPES["custom"]
    recipe = replace(recipe, settings={**recipe.settings, **_SIZES, **_ROOM})
    ids = [(7 * at + 3) % _WORDS for at in range(TOKENS)]
    calls = [(torch.tensor([[token]]), {"input_pos": torch.tensor([at])}) for at, token in enumerate(ids)]
    table = Table("128 tokens, 30 layers, 256 wide", "wall, s", "processor, s", "peak, MB")
    with tempfile.TemporaryDirectory(prefix="etviz-bench-") as name:
        folder, model = make(recipe, Path(name), 1), model_of(recipe)

        def eager() -> None:
            with torch.no_grad():
                for token, position in calls:
                    model(token, position)

        eager()
        table.add_row("eager model", *_measured(eager))
        table.add_row("runtime", *_measured(lambda: execute(folder / "model.pte", list(map(tree_leaves, calls)))))
        method: Any = Runtime.get().load_program(folder / "model.pte").load_method("forward")

        def steps() -> None:
            for call in map(tree_leaves, calls):
                method.execute(call)

        steps()
        table.add_row("runtime in this process", *_measured(steps))
        with etviz.record_calls(Path(name) / "calls"):
            table.add_row("… with its calls recorded", *_measured(steps))
        for what, given in (("all given", TOKENS), ("64 given, 64 chosen", TOKENS // 2)):
            run: list[Any] = []

            def first(given: int = given, run: list[Any] = run) -> None:
                run.append(etviz.decode(folder, [ids[:given]], steps=TOKENS - given + 1, noise=False))

            first()
            table.add_row(f"first table, {what}", *_measured(first))
            table.add_row(f"noise, {what}", *_measured(run[-1].compute_noise))
    Console().print(table)
    return 0


def _measured(function: Callable[[], object]) -> tuple[str, str, str]:
    wall, processor = time.perf_counter(), time.process_time()
    function()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return f"{wall:.2f}", f"{processor:.2f}", f"{peak:.0f}"


if __name__ == "__main__":
    sys.exit(main())
