"""Who does the work makes no difference to the result, also when a worker is lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import etviz
from etviz.errors import UsageError
from etviz.evidence import executors
from tests.programs import Executed

Get = Callable[[str], Executed]


@pytest.fixture(scope="module")
def inputs() -> list[Any]:
    """Enough for several chunks."""
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(2, 3, 8, 8, generator=generator),) for _ in range(12)]


@pytest.fixture(scope="module")
def serial(executed: Get, inputs: list[Any]) -> etviz.Study:
    """The study by this process alone."""
    return etviz.study(executed("plain_cnn").folder, inputs, chunk=2)


def _same(a: etviz.Study, b: etviz.Study) -> None:
    pd.testing.assert_frame_equal(a.table, b.table, check_exact=True)
    pd.testing.assert_frame_equal(a.inputs, b.inputs, check_exact=True)
    assert a.kept == b.kept


def test_processes_take_over_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)
    with executors.WherePaying(3, 2, pays=0.0) as pool:  # a script: only it knows whether it guards its top level
        assert {pool.submit(os.getpid).result() for _ in range(3)} == {os.getpid()}
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    with executors.WherePaying(4, 2, pays=0.0) as pool:
        assert [pool.submit(_own, lambda: 0).result() for _ in range(2)] == [os.getpid()] * 2  # that can't cross
        assert pool.submit(os.getpid).result() != os.getpid()
        worker = "__import__('sys').modules['etviz.pipeline.worker'].WORKER"
        assert pool.submit(eval, f"{worker}.prepares").result() is False  # nobody zooms there
    with executors.executor_of(None, 4) as (pool, _):
        assert isinstance(pool, executors.WherePaying)


def test_a_script_that_its_own_processes_run_again_is_told_to_guard_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)  # while it is run again
    with pytest.raises(UsageError, match="below if __name__"), executors.executor_of(2):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_their_parent(number: signal.Signals) -> None:
    code = (
        "import os, time\n"
        "from etviz.evidence.executors import executor_of\n"
        "with executor_of(1) as (pool, _):\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(number)
    end = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < end
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "Z (zombie)" not in status.read_text()


def _own(_: Any) -> int:
    return os.getpid()


@pytest.mark.slow
def test_two_processes_give_what_one_gives(executed: Get, inputs: list[Any], serial: etviz.Study) -> None:
    _same(etviz.study(executed("plain_cnn").folder, inputs, chunk=2, executor=2), serial)


@pytest.mark.slow
def test_dask_does_the_work_of_a_killed_worker_again(
    executed: Get, inputs: list[Any], serial: etviz.Study, tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = client.run(os.getpid)
        victim = next(iter(workers.values()))

        def kill() -> None:
            while not list((tmp_path / "runs").glob("*.parquet")):
                time.sleep(0.01)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        study = etviz.study(
            executed("plain_cnn").folder, inputs, chunk=2, executor=client.get_executor(), folder=tmp_path
        )
        killer.join(60)
        assert not killer.is_alive()
        assert victim not in client.run(os.getpid).values()
    _same(study, serial)
