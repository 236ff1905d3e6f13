"""How many threads torch may use while a model is evaluated."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator

import pytest
import torch

from etviz import native
from etviz.errors import UsageError
from etviz.evaluation import threads as of_torch
from etviz.evaluation.law import in_order
from etviz.evaluation.threads import free_cores, threads_for
from etviz.graph.ir import Graph, Input, Meta, Node
from etviz.tensors.sums import sums_of
from tests.forks import fork
from tests.programs import Executed


def graph(weights: int, values: int, operators: int) -> Graph:
    """A delegate with so many weights and operators that is called twice, and an input of any size."""
    result = Meta("float32", (values // operators,))
    nodes = [Node(f"n{at}", "aten.relu.default", (), {}, outputs=(result,)) for at in range(operators)]
    inner = Graph("inner", [Input("w", "constant", "w", Meta("float32", (2, weights // 2)))], nodes)
    large = Input("x", "user", "", Meta("float32", (1 << 20, 1 << 20)))
    return Graph("outer", [large], subgraphs={"a": inner, "b": inner})


@pytest.fixture
def two() -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("weights", "values", "free", "threads"),
    [
        (10_000_000, 1 << 40, 8, 1),
        (10_000_002, 1 << 40, 8, 2),
        (10_000_002, 1 << 40, 1, 1),
        (4096 * 20 * 65_536, 0, 8, 1),
        (4096 * 20 * 65_536 + 2, 0, 8, 2),
        (4096 * 20 * 65_536, 4096 * 10, 8, 2),
    ],
)
def test_small_operators_use_one_and_large_ones_what_is_free(
    weights: int, values: int, free: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_torch, "free_cores", lambda: free)
    with threads_for(graph(weights, values, 10 * 4096)):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_cores_of_busy_processes_are_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_torch, "_quota", lambda most: most)
    monkeypatch.setattr(of_torch.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(of_torch.os, "sched_getaffinity", lambda process: range(6), raising=False)
    for running, free in ((1, 6), (3, 6), (6, 3), (9, 1), (50, 1)):
        monkeypatch.setattr(of_torch, "_running", lambda running=running: running)
        monkeypatch.setattr(of_torch, "_own_running", lambda: 1)
        assert free_cores() == free
        monkeypatch.setattr(of_torch, "_running", lambda running=running: running + 3)
        monkeypatch.setattr(of_torch, "_own_running", lambda: 4)  # threads of this process take no core from it
        assert free_cores() == free


def test_a_core_is_free_that_another_process_needed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([3, 2, 1, 3])
    monkeypatch.setattr(of_torch, "_quota", lambda most: most)
    monkeypatch.setattr(of_torch.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(of_torch.os, "sched_getaffinity", lambda process: range(4), raising=False)
    monkeypatch.setattr(of_torch, "_running", lambda: next(seen))
    monkeypatch.setattr(of_torch, "_own_running", lambda: 1)
    assert free_cores() == 4
    assert next(seen) == 3  # nobody looked again


@pytest.mark.usefixtures("two")
def test_a_comparison_leaves_the_threads_alone(executed: Callable[[str], Executed]) -> None:
    assert len(executed("encoder").load().gaps) > 3
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two")
def test_what_was_set_before_is_set_again(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").load()
    seen: list[int] = []
    inspection.analysis.attribution(0, 0, progress=lambda done, total: seen.append(torch.get_num_threads()))
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2
    with pytest.raises(UsageError):
        inspection.attribution(loss=lambda outputs: 1.0)
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("count", [40_000, 3_000_001])
def test_compiled_passes_give_the_same_bits_with_any_number_of_threads(count: int) -> None:
    torch.manual_seed(0)
    reference = torch.randn(count)
    runtime, integers = reference + 1e-6 * torch.randn(count), torch.empty(count, dtype=torch.int8)

    def passes() -> list[object]:
        grid = native.to_grid(reference.data_ptr(), 0, count, (0, 20, 3, -128, 127), integers.data_ptr(), "int8")
        squares = native.pair_squares(reference.data_ptr(), runtime.data_ptr(), count)
        return [
            sums_of(reference, runtime),
            squares,
            grid,
            integers.sum(),
            in_order(runtime[:40_000].reshape(100, -1).double()).tolist(),
            native.powers(native.Elements(runtime.data_ptr(), "float32"), count),
        ]

    with_two = passes()
    torch.set_num_threads(1)
    assert passes() == with_two
    assert integers.equal((torch.round(reference * 20) + 3).clamp(-128, 127).to(torch.int8))
    runtime[count // 2] = torch.nan
    assert native.pair_squares(reference.data_ptr(), runtime.data_ptr(), count) is None
    assert sums_of(reference, runtime).classes[0][3] == 1


@pytest.mark.usefixtures("two")
def test_a_fork_does_not_wait_for_threads_that_it_does_not_have() -> None:
    reference = torch.randn(1_000_000)
    runtime = reference + 1e-6

    def compared() -> None:
        assert native.pair_squares(reference.data_ptr(), runtime.data_ptr(), len(reference)) is not None

    compared()
    child = fork(compared, 0, 1, 2)
    deadline = time.monotonic() + 30
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
