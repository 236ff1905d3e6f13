"""The child process: it answers, stays, and ends with its parent; what happens to it harms nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from etviz.errors import ExecutionError
from etviz.pipeline.execute import execute
from etviz.pipeline.worker import WORKER, Worker, warm, worker_in
from tests.programs import Executed

LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

CHILD = """
import ctypes, os, time
from etviz.pipeline import service

def work(request, step):
    if request["work"] == "sleep":
        step(1)
        time.sleep(60)
    if request["work"] == "compute":
        step(1)
        ctypes.PyDLL(None).sleep(60)  # keeps the interpreter's lock, as the runtime does
    return {"pid": os.getpid()}

def main(connection, parent):
    service.serve(connection, parent, (), dict.fromkeys(("pid", "sleep", "compute"), work))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A child whose work is to tell its process id, to sleep, or to compute."""
    (tmp_path / "quick_child.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "quick_child"


@pytest.fixture
def worker(module: str) -> Iterator[Worker]:
    WORKER.stop()
    worker = Worker(module)
    yield worker
    worker.stop()


def pid(worker: Worker) -> int:
    return worker.run({"work": "pid"}, 30)["pid"]


def children() -> list[int]:
    """Processes that this one has started and that run."""
    of_threads = Path("/proc/self/task").glob("*/children")
    found = [int(number) for path in of_threads for number in path.read_text().split()]
    return [number for number in found if not ended(number, 0)]


def ended(pid: int, seconds: float = 5) -> bool:
    """Wait for a process to be gone."""
    end, status = time.monotonic() + seconds, Path(f"/proc/{pid}/status")
    while True:
        if not status.exists() or "Z (zombie)" in status.read_text():
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.05)


CRASHES = {
    "abort": ("import os; os.write(2, b'check failed\\n'); os.abort()", -signal.SIGABRT, "SIGABRT"),
    "segfault": ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, "SIGSEGV"),
    "kill": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "out-of-memory"),
    "exception": ("raise ValueError('nothing works')", 1, "exit status 1"),
    "exit": ("import sys; sys.exit(7)", 7, "exit status 7"),
    "silence": (
        "import os, sys; sys.stderr.write('good bye'); sys.stderr.flush(); os._exit(0)",
        0,
        "without an answer",
    ),
    "memory": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); bytes(1 << 34)",
        1,
        "MemoryError",
    ),
    "real-time signal": ("import os; os.kill(os.getpid(), 40)", -40, "signal 40"),
}


@pytest.mark.parametrize("how", CRASHES)
def test_a_crash_of_the_child_is_an_error_here(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, status, words = CRASHES[how]
    (tmp_path / "crashing_child.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ExecutionError, match=words) as found:
        Worker("crashing_child").run({"work": "anything"}, 30)
    assert found.value.exit_status == status
    said = {"abort": "check failed", "exception": "nothing works", "silence": "good bye"}
    assert said.get(how, "") in "\n".join(found.value.last_lines)


def test_what_a_child_writes_is_bounded_also_without_line_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os\nfor _ in range(64): os.write(2, b'x' * (1 << 20))\nos._exit(3)"
    (tmp_path / "chatty_child.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ExecutionError, match="exit status 3") as found:
        Worker("chatty_child").run({"work": "anything"}, 30)
    assert 0 < sum(map(len, found.value.last_lines)) < 1 << 20
    assert len(str(found.value)) < 40_000


@pytest.mark.parametrize(("program", "words"), [("/bin/true", "without an answer"), ("/none", "can't be started")])
def test_what_is_no_interpreter_is_named(program: str, words: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!{program}\n")
    python.chmod(0o755)
    with pytest.raises(ExecutionError, match=f"{words}.*{python} must be the Python interpreter .*try {python} -c"):
        worker_in(str(python)).run({"work": "versions"}, 30)


def test_a_process_stays_for_the_next_request(worker: Worker) -> None:
    assert pid(worker) == pid(worker) != os.getpid()


def test_a_request_that_fails_ends_its_process_and_says_why(worker: Worker) -> None:
    first = pid(worker)
    with pytest.raises(ExecutionError, match="exit status 1") as found:
        worker.run({"work": "nonsense"}, 30)
    assert "KeyError: 'nonsense'" in found.value.last_lines
    assert pid(worker) != first


@LINUX_ONLY
def test_a_time_limit_and_an_interrupt_end_the_process(worker: Worker) -> None:
    first = pid(worker)
    with pytest.raises(ExecutionError, match=r"did not end within 0\.5 s"):
        worker.run({"work": "compute"}, 0.5)
    assert ended(first)
    second = pid(worker)

    def interrupt(step: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.run({"work": "sleep"}, 30, interrupt)
    assert ended(second)


@LINUX_ONLY
def test_cancelling_ends_the_process(worker: Worker) -> None:
    first, cancel = pid(worker), threading.Event()
    with pytest.raises(ExecutionError, match="cancelled"):
        worker.run({"work": "sleep"}, 30, lambda step: cancel.set(), cancel)
    assert ended(first)


@LINUX_ONLY
def test_what_the_child_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging_child.py").write_text(
        "import pathlib, subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(other.pid))\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ExecutionError, match="did not end"):
        Worker("hanging_child").run({}, 3)
    assert ended(int((tmp_path / "pid").read_text()))


def test_two_requests_at_once_need_two_processes_and_one_stays(worker: Worker) -> None:
    started, cancel, errors = threading.Event(), threading.Event(), []

    def sleep() -> None:
        try:
            worker.run({"work": "sleep"}, 30, lambda step: started.set(), cancel)
        except ExecutionError as error:
            errors.append(error)

    thread = threading.Thread(target=sleep)
    thread.start()
    assert started.wait(30)
    other = pid(worker)
    cancel.set()
    thread.join()
    assert errors
    assert pid(worker) == other


@LINUX_ONLY
def test_the_thread_that_asks_may_end(worker: Worker) -> None:
    """Linux ends a process with the thread that started it, if it was asked to end it with its parent."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(pid(worker)))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert pid(worker) == found[0]


@LINUX_ONLY
def test_a_process_that_nobody_asks_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "idle_child.py").write_text(CHILD + "service.IDLE = 2\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = Worker("idle_child")
    first = pid(worker)
    assert ended(first)
    assert pid(worker) != first
    worker.stop()


def test_an_idle_process_prepares_a_zoom_where_somebody_may_ask_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "for_a_zoom.py").write_text(f"import os\nopen(rf'{tmp_path}/{{os.getpid()}}', 'w').close()\n")
    child = CHILD.replace("work))", "work), ('for_a_zoom',) * prepares)").replace("parent)", "parent, prepares=1)", 1)
    (tmp_path / "preparing_child.py").write_text(child)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    busy, other = Worker("preparing_child"), Worker("preparing_child")
    busy.prepares = False
    never, expected = pid(busy), pid(other)
    end = time.monotonic() + 30
    while not (tmp_path / str(expected)).exists():  # `busy` is idle for longer
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not (tmp_path / str(never)).exists()
    for worker in (busy, other):
        worker.stop()


@LINUX_ONLY
def test_warming_returns_before_it_starts_one_process(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    others = set(children())
    begun, may_start, start = list[bool](), threading.Event(), Worker._start  # pyright: ignore[reportPrivateUsage]

    def wait_and_start(self: Worker, *, another: bool = True) -> object:
        begun.append(may_start.wait(10))
        return start(self, another=another)

    monkeypatch.setattr(Worker, "_start", wait_and_start)
    for _ in range(5):
        worker.warm()
    assert not begun
    may_start.set()
    first = pid(worker)
    worker.warm()
    assert pid(worker) == first
    assert set(children()) - others == {first}


def test_warming_may_fail(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        context.setattr(sys, "executable", "/no/python")
        worker.warm()
        with pytest.raises(ExecutionError, match="can't be started"):
            pid(worker)
    assert pid(worker)


def test_nothing_is_imported_from_the_current_folder(
    executed: Callable[[str], Executed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = executed("counter")
    for name in ("json", "torch", "queue", "etviz", "flatbuffers"):
        (tmp_path / f"{name}.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    WORKER.stop()
    monkeypatch.chdir(tmp_path)
    assert execute(program.path("pte"), [[torch.zeros(3, 4)]]).outputs
    assert not (tmp_path / "ran").exists()


def test_paths_are_those_of_the_parents_folder(
    executed: Callable[[str], Executed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may have been started in another one."""
    program = executed("counter")
    warm()
    (tmp_path / "model.pte").write_bytes(program.path("pte").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert execute("model.pte", [[torch.zeros(3, 4)]], workdir="out").etdump == tmp_path / "out" / "etdump.etdp"


@LINUX_ONLY
def test_a_fork_has_processes_of_its_own_and_leaves_the_parents_alone(worker: Worker) -> None:
    first = pid(worker)
    read, write = os.pipe()
    fork = os.fork()
    if not fork:
        status = 1
        try:
            os.write(write, str(pid(worker)).encode())
            worker.stop()
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    assert os.waitpid(fork, 0)[1] == 0
    with os.fdopen(read) as stream:
        assert int(stream.read()) != first
    assert pid(worker) == first


@LINUX_ONLY
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_fork_that_ends_in_the_ordinary_way_does_not_hang(module: str) -> None:
    code = f"""
    import multiprocessing, os, sys
    from etviz.pipeline.worker import Worker
    worker = Worker({module!r})
    ask = lambda: worker.run({{"work": "pid"}}, 30)["pid"]
    first = ask()
    process = multiprocessing.get_context("fork").Process(target=print, args=("in the fork",))
    process.start()
    process.join(20)
    assert process.exitcode == 0, process.exitcode
    fork = os.fork()
    if not fork:
        sys.exit(0)  # with what is registered for the end
    assert os.waitpid(fork, 0)[1] == 0
    assert ask() == first
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], check=True, timeout=60)


@LINUX_ONLY
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, None], ids=lambda how: str(how))
@pytest.mark.parametrize("work", ["pid", "sleep", "compute"])
@pytest.mark.parametrize("forked", [False, True], ids=["", "forked"])
def test_the_process_ends_with_its_parent(how: signal.Signals | None, work: str, forked: bool, module: str) -> None:
    """Idle, waiting or computing, and also where a fork of the parent lives on with its files open."""
    code = f"""
    import os, signal, sys, threading, time
    from etviz.pipeline.worker import Worker
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    worker = Worker({module!r})
    child = worker.run({{"work": "pid"}}, 30)["pid"]
    busy = threading.Event()
    if {work!r} != "pid":
        asked = {{"work": {work!r}}}, 30, lambda step: busy.set()
        threading.Thread(target=worker.run, args=asked, daemon=True).start()
        busy.wait()
    if {forked!r} and not os.fork():
        os.close(1)
        time.sleep(20)
        os._exit(0)
    print(child, flush=True)
    {"time.sleep(30)" if how is not None else "sys.exit()"}
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if how is not None:
            assert not ended(child, 0.1)
            parent.send_signal(how)
        parent.wait(20)
        assert ended(child)
        if forked:
            os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits it so")
def test_memory_that_is_spared() -> None:
    """What would take all that is free fails at once; then all is as before."""
    code = """
    import resource
    from etviz.pipeline.service import _numbers, spared_memory
    free, before = _numbers("/proc/meminfo")["MemAvailable"], resource.getrlimit(resource.RLIMIT_DATA)
    with spared_memory():
        bytearray(64 << 20)
        try:
            bytearray(free)
        except MemoryError:
            print("refused")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert ended.stdout == "refused\n"


ASCII_ONLY = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_child_reads_files_as_utf8_in_an_ascii_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = '{"encoding": open(os.devnull).encoding}'
    (tmp_path / "reading_child.py").write_text(CHILD.replace('{"pid": os.getpid()}', told))
    for name, value in (ASCII_ONLY | {"PYTHONPATH": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    worker = Worker("reading_child")
    assert worker.run({"work": "pid"}, 30)["encoding"].lower() == "utf-8"
    worker.stop()


def test_a_zoom_in_an_ascii_locale(executed: Callable[[str], Executed]) -> None:
    """ExecuTorch, which lowers here, reads its files in the encoding of the locale: etviz's child does not let it."""
    code = """
    import locale, sys, etviz
    from etviz.pipeline.interpreters import INTERPRETERS
    INTERPRETERS.clear()
    inspection = etviz.load(sys.argv[1])
    row = inspection.gaps.index[inspection.gaps["kind"] == "delegate"][0]
    print(locale.getpreferredencoding(), len(inspection.zoom(int(row)).gaps))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(executed("residual_cnn").folder)],
        capture_output=True,
        check=False,
        env=os.environ | ASCII_ONLY | {"TQDM_DISABLE": "1"},
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert done.returncode == 0, done.stderr
    encoding, rows = done.stdout.split()[-2:]
    assert encoding == "ANSI_X3.4-1968"
    assert int(rows) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux hands the parent's peak to a new process")
def test_the_peak_of_a_process_is_its_own() -> None:
    """A parent that once held 600 MB leaves its child all memory that the child may take."""
    child = "from etviz.pipeline.service import _peak; print(_peak())"
    parent = f"""
        import subprocess, sys
        held = bytes(1) * (600 << 20)
        del held
        sys.exit(subprocess.run([sys.executable, "-c", {child!r}]).returncode)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(parent)], capture_output=True, text=True, check=True)
    assert 0 < int(ran.stdout) < 600 << 20
