"""Runs a program with a user's runner: a command on this machine, or on a device behind `adb`.

File and method names come from other people, and a
command may pass its words to a shell. No quoting survives an unknown number of shells, so `_fill` lets only plain
characters into text that a shell may read.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Protocol

from tqdm.auto import tqdm

from etviz.artifacts.files import PathLike, make_folder
from etviz.artifacts.program.logged import debug_buffer_bytes
from etviz.artifacts.program.program import Program
from etviz.artifacts.program.raw_values import write_inputs
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, ExecutionError, UsageError, checked

PLACEHOLDERS: Final = ("pte", "inputs", "etdump", "debug_buffer", "debug_buffer_size", "outputs", "method", "data")
DEFAULT_TIMEOUT: Final = 600.0
DEVICE_FOLDER: Final = "/data/local/tmp/etviz"
_FLAGS: Final = (
    "--model {pte} --method {method} --inputs {inputs} --etdump {etdump} --debug-output {debug_buffer} "
    "--debug-buffer-size {debug_buffer_size} --dump-intermediate-outputs --outputs {outputs}"
)
_PTE, _ETDUMP, _DEBUG_BUFFER, _OUTPUTS = "model.pte", "etdump.etdp", "debug_output.bin", "outputs"
_LOG: Final = "run.log"
_DEVICE_LOG: Final = "logcat.txt"
_KEPT_LINES: Final = 20
_MOST_SAID: Final = 256 << 20
_LOOK: Final = 0.2
_MARK: Final = "ETVIZ_RUN"
_SWEEPS: Final = 20
_GUARD: Final = """
read -r group && cat && kill -9 "-$group"
for found in 1 2 3; do
    for folder in $(grep -lsxzF -e "$1" /proc/[0-9]*/environ); do
        folder=${folder%/environ}
        kill -9 "${folder#/proc/}"
    done
done
"""
"""Ends a process group, and all processes with a mark, when its standard input closes."""
_STATUS: Final = re.compile(rb"etviz-status:(\d+)\s*$")
_SHELL: Final = re.compile(r"[\w-]*sh|adb|su|shell|watch|parallel|plink|dbclient|cmd|powershell", re.ASCII)
_PLAIN: Final = re.compile(r"[\w@%+=:,./-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class RunFiles:
    """None for files that were not written."""

    log: Path
    etdump: Path | None
    debug_buffer: Path | None
    outputs: tuple[Path, ...]
    problem: str = ""


class Machine(Protocol):
    def put(self, path: Path) -> str: ...

    def name(self, file: str) -> str: ...

    def run(self, command: Sequence[str], log: Path, timeout: float) -> None: ...

    def get(self, folder: Path) -> str: ...


@checked
def run_elsewhere(
    place: Machine,
    pte: PathLike,
    program: Program,
    method: str,
    runs: Sequence[Sequence[Any]],
    command: str,
    folder: Path,
    timeout: float | None = None,
    data: PathLike | None = None,
) -> RunFiles:
    """Run a program's method, and copy its files back.

    `command` has the placeholders ``{pte} {inputs} {etdump} {debug_buffer} {debug_buffer_size} {outputs} {method}
    {data}``, or gets the flags of `examples/cpp_runner`. It starts without a shell.

    `UsageError` for a file name that a shell could obey; `ArtifactError` if the method's name is no identifier;
    `ExecutionError` if the command fails, takes too long, or writes nothing.
    """
    if not method.isidentifier():
        raise ArtifactError(
            pte, f"it names a method {method!r}", "give a program whose methods have identifiers as names"
        )
    words = _words(command, data=data is not None)
    make_folder(folder)
    for old in (*folder.glob(f"{_OUTPUTS}-*.bin"), *(folder / name for name in (_ETDUMP, _DEBUG_BUFFER, _LOG))):
        old.unlink(missing_ok=True)
    plan = program.method(method)
    with Scratch() as scratch, _steps() as step:
        step("put")
        inputs = []
        for at, values in enumerate(runs):
            for name in write_inputs(Path(scratch), values, plan, prefix=f"input-{at}"):
                path, colon, shape = name.partition(":")
                inputs.append(place.put(Path(path)) + colon + shape)
        values = {
            "pte": place.put(Path(pte)),
            "inputs": ",".join(inputs),
            "etdump": place.name(_ETDUMP),
            "debug_buffer": place.name(_DEBUG_BUFFER),
            "debug_buffer_size": str(debug_buffer_bytes(program, method) * max(len(runs), 1)),
            "outputs": place.name(_OUTPUTS),
            "method": method,
            "data": place.put(Path(data)) if data is not None else "",
        }
        filled = _fill(words, values)
        step("run")
        failed = None
        try:
            limit = DEFAULT_TIMEOUT if timeout is None else timeout
            place.run(filled, folder / _LOG, limit)
        except ExecutionError as error:
            failed = error
        step("get")
        problem = ""
        try:
            problem = place.get(folder)
        except ExecutionError as error:
            failed = failed or error
    etdump, debug_buffer = (_written(folder / name) for name in (_ETDUMP, _DEBUG_BUFFER))
    ran = RunFiles(folder / _LOG, etdump, debug_buffer, _outputs(folder), problem)
    if failed is not None:
        kept = [path.name for path in (ran.etdump, ran.debug_buffer, *ran.outputs) if path is not None]
        tail = f" What it left is in {folder}: {', '.join(kept)}." if kept else f" Its log is {ran.log}."
        raise ExecutionError(failed.problem.rstrip(". ") + "." + tail, failed.exit_status, failed.last_lines)
    if ran.etdump is None and not ran.outputs:
        raise ExecutionError(
            "The command ended well but wrote neither an ETDump nor outputs to {etdump} and {outputs}",
            0,
            _last_lines(folder / _LOG),
        )
    return ran


@contextlib.contextmanager
def _steps() -> Generator[Any]:
    with tqdm(total=3, desc="run", leave=False, delay=1) as bar:
        done = [-1]

        def step(name: str) -> None:
            done[0] += 1
            bar.update(min(done[0], 1))
            bar.set_postfix_str(name)

        yield step
        bar.update()


def _words(command: str, *, data: bool) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the runner's command can't be split into words ({error}): {command}") from error
    if not words:
        raise UsageError("the runner's command is empty")
    named = re.findall(r"\{(\w*)\}", command)
    unknown = [name for name in named if name not in PLACEHOLDERS]
    if unknown:
        known = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise UsageError(f"the runner's command has the placeholder {{{unknown[0]}}}; known are {known}")
    if not named:
        words += shlex.split(_FLAGS + " --data {data}" * data)
    elif "etdump" not in named and "outputs" not in named:
        raise UsageError("the runner's command must say where it writes: {etdump} or {outputs}")
    return words


def _fill(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    direct = not any(_SHELL.fullmatch(Path(word).name.lower().removesuffix(".exe")) for word in words)

    def value(name: str, alone: bool) -> str:
        if not (direct and alone) and not _PLAIN.fullmatch(values[name]):
            raise UsageError(
                f"{{{name}}} is {values[name]!r}, and a shell may read it in this command: rename the file or its "
                f"folder, or run a program without a shell, with {{{name}}} as a word of its own"
            )
        return values[name]

    return [re.sub(r"\{(\w+)\}", lambda match, word=word: value(match[1], match[0] == word), word) for word in words]


def _written(path: Path) -> Path | None:
    return path if path.is_file() and path.stat().st_size else None


def _outputs(folder: Path) -> tuple[Path, ...]:
    paths = folder.glob(f"{_OUTPUTS}-*.bin")
    return tuple(sorted(paths, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)]))


def _last_lines(log: Path) -> list[str]:
    if not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        return file.read().decode(errors="replace").splitlines()[-_KEPT_LINES:]


def _call_logged(command: Sequence[str], log: Path, timeout: float) -> int:
    with log.open("wb") as file:
        try:
            return _call(command, file, timeout)
        except ExecutionError as error:
            raise ExecutionError(error.problem, error.exit_status, _last_lines(log)) from None


def _call(command: Sequence[str], log: IO[bytes], timeout: float) -> int:
    """The command's process group ends with it, and with this process; the server of `adb` continues."""
    name, end = Path(command[0]).name, time.monotonic() + timeout
    mark = f"{_MARK}={secrets.token_hex(16)}"
    with _ending(mark) as started:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, _MARK: mark.partition("=")[2]},
            )
        except OSError as error:
            raise ExecutionError(f"{command[0]} can't be started ({error.strerror or error})") from error
        started(process)
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(_LOOK, left))
            if os.fstat(log.fileno()).st_size > _MOST_SAID:
                raise ExecutionError(f"{name} printed more than {_MOST_SAID >> 20} MB and was ended")
        raise ExecutionError(f"{name} took longer than {timeout:g} s and was ended")


@contextlib.contextmanager
def _ending(mark: str) -> Generator[Callable[[subprocess.Popen[bytes]], None]]:
    """A guarding shell ends the process groups if this process is killed first."""
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "etviz", mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    groups = [guard]

    def started(process: subprocess.Popen[bytes]) -> None:
        groups.append(process)
        with contextlib.suppress(OSError):
            (guard.stdin or io.BytesIO()).write(b"%d\n" % process.pid)

    strays = True
    try:
        yield started
        strays = False
    finally:
        for process in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if guard.stdin is not None:
            guard.stdin.close()
        if strays:
            _end_marked(mark.encode())


def _end_marked(mark: bytes) -> None:
    """Linux only.

    A descriptor holds each process before its environment is read, so no other process can take its number.
    """
    for _ in range(_SWEEPS):
        stopped = False
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, AttributeError):
                held = os.pidfd_open(int(folder.name))
                try:
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        stopped = True
                        signal.pidfd_send_signal(held, signal.SIGKILL)
                finally:
                    os.close(held)
        if not stopped:
            return


def _why(status: int) -> str:
    if status >= 0:
        return f"failed with exit status {status}"
    try:
        return f"crashed ({signal.Signals(-status).name})"
    except ValueError:
        return f"was ended by signal {-status}"


class ThisMachine:
    """The command writes straight into the folder."""

    def __init__(self, folder: PathLike) -> None:
        self._folder = Path(folder).absolute()

    def put(self, path: Path) -> str:
        return str(path.absolute())

    def name(self, file: str) -> str:
        return str(self._folder / file)

    def run(self, command: Sequence[str], log: Path, timeout: float) -> None:
        status = _call_logged(command, log, timeout)
        if status:
            raise ExecutionError(f"The runner {_why(status)}", status, _last_lines(log))

    def get(self, folder: Path) -> str:
        return ""


class Adb:
    """`timeout` is seconds for pushing or pulling one file."""

    def __init__(
        self, serial: str | None = None, folder: str = DEVICE_FOLDER, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        command = shutil.which("adb")
        if command is None:
            raise UsageError("there is no adb on this machine's PATH; install the Android platform tools")
        self._adb = [command, *(["-s", serial] if serial else [])]
        self._folder, self._timeout = folder.rstrip("/"), timeout
        self._begin = ""
        state = self._ask("get-state")
        if state != "device":
            raise ExecutionError(f"The device is not ready: adb get-state says {state!r}")
        self._shell("rm", "-rf", self._folder)
        self._shell("mkdir", "-p", self._folder)

    def put(self, path: Path) -> str:
        self._do(f"{path.name} can't be pushed", "push", str(path), f"{self._folder}/{path.name}")
        return f"{self._folder}/{path.name}"

    def name(self, file: str) -> str:
        return f"{self._folder}/{file}"

    def run(self, command: Sequence[str], log: Path, timeout: float) -> None:
        """The last line holds the status, since older devices do not return it."""
        with contextlib.suppress(ExecutionError):
            self._begin = self._shell("date", "+%m-%d %H:%M:%S.000")
        line = f"cd {shlex.quote(self._folder)} && {shlex.join(command)}; echo etviz-status:$?"
        status = _call_logged([*self._adb, "shell", line], log, timeout)
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 64))
            match = _STATUS.search(file.read())
        if match is None:
            raise ExecutionError("The device went away while the program ran", status, _last_lines(log))
        if status := int(match[1]):
            status = 128 - status if 128 < status < 160 else status
            raise ExecutionError(f"The runner on the device {_why(status)}", status, _last_lines(log))

    def get(self, folder: Path) -> str:
        problems = []
        wanted = re.compile(rf"{re.escape(_ETDUMP)}|{re.escape(_DEBUG_BUFFER)}|{_OUTPUTS}-[\d-]+\.bin")
        listed = [name for name in self._shell("ls", self._folder).split() if wanted.fullmatch(name)]
        for name in sorted(listed, reverse=True):  # outputs and ETDump first: they are small
            remote = f"{self._folder}/{name}"
            self._do(f"{name} can't be pulled", "pull", remote, str(folder / name))
            size = self._shell("wc", "-c", remote).split()
            if size and size[0].isdigit() and int(size[0]) != (folder / name).stat().st_size:
                problems.append(f"{name} was cut: {(folder / name).stat().st_size} of {size[0]} bytes arrived.")
        with contextlib.suppress(ExecutionError):
            since = ["-T", self._begin] if self._begin else []
            (folder / _DEVICE_LOG).write_text(self._ask("logcat", "-d", *since), encoding="utf-8")
        self._shell("rm", "-rf", self._folder)
        return " ".join(problems)

    def _shell(self, *words: str) -> str:
        return self._ask("shell", shlex.join(words))

    def _ask(self, *words: str) -> str:
        return self._do(f"adb {words[0]} failed", *words)

    def _do(self, problem: str, *words: str) -> str:
        with tempfile.TemporaryFile() as file:
            status = _call([*self._adb, *words], file, self._timeout)
            file.seek(0)
            said = file.read().decode(errors="replace")
        if status:
            lines = said.strip().splitlines()
            reason = f": {lines[-1].strip()}" if lines else ""
            raise ExecutionError(f"{problem}{reason}", status, lines[-_KEPT_LINES:])
        return said.strip()
