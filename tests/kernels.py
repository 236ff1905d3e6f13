"""Kernels of the tests: forked from a process that has imported torch and ExecuTorch, so a fresh one is there at once.

`Kernels` starts that process and writes a kernel spec for it. The spec's command is this file run as a script: it
asks for a fork, hands on interrupts, and lives as long as its kernel. etviz itself is not imported before the fork.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

LONGEST = 1 << 20


class Kernels:
    """A process that forks kernels; `path` is to be put into JUPYTER_PATH. `lowers`: their programs lower models."""

    def __init__(self, folder: Path, *, lowers: bool) -> None:
        self.path = folder / "jupyter"
        self._address = folder / "kernels.sock"
        spec = self.path / "kernels" / "python3"
        spec.mkdir(parents=True)
        command = [sys.executable, __file__, "ask", str(self._address), "-f", "{connection_file}"]
        body = {"argv": command, "display_name": "Python 3 (forked)", "language": "python"}
        (spec / "kernel.json").write_text(json.dumps(body), encoding="utf-8")
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(self._address))
            door.listen(8)
            command = [sys.executable, __file__, "serve", str(door.fileno()), str(int(lowers))]
            self._process = subprocess.Popen(command, pass_fds=[door.fileno()], stdin=subprocess.PIPE)

    def stop(self) -> None:
        """End it; kernels that were forked live on until they are shut down."""
        self._process.kill()
        self._process.communicate()


def ask(address: str, *argv: str) -> None:
    """Have a kernel with these arguments forked, and stay until it ends."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        request = {"argv": argv, "cwd": str(Path.cwd()), "env": dict(os.environ)}
        socket.send_fds(line, [json.dumps(request).encode()], [1, 2])
        kernel = int(line.recv(32))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(kernel, number))
        while line.recv(32):
            pass


def serve(door: int, lowers: int) -> None:
    """Import, then fork a kernel for everyone who asks."""
    for name in ("torch", "matplotlib.pyplot", "pandas"):
        importlib.import_module(name)
    if lowers:
        _lower()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with socket.socket(fileno=door) as listening:
        while True:
            line, _ = listening.accept()
            body, outputs, _, _ = socket.recv_fds(line, LONGEST, 2)
            if not os.fork():
                listening.close()
                _kernel(line, json.loads(body), outputs)
            line.close()
            for output in outputs:
                os.close(output)


def _lower() -> None:
    """Import what lowers; quantizing and lowering a program brings the rest of it."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    importlib.import_module("upstream_memo").keep_results()  # this file is run as a script
    exported = torch.export.export(torch.nn.Linear(3, 3), (torch.zeros(2, 3),))
    prepare_pt2e(exported.module(), XNNPACKQuantizer().set_global(get_symmetric_quantization_config()))
    to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _end_with(line: socket.socket) -> None:
    line.recv(32)
    os._exit(1)


def _kernel(line: socket.socket, request: dict[str, Any], outputs: list[int]) -> None:
    os.setsid()
    for number, output in enumerate(outputs, 1):
        os.dup2(output, number)
    os.environ.clear()
    os.environ.update(request["env"], JPY_PARENT_PID=str(os.getppid()))
    os.chdir(request["cwd"])
    sys.path[0] = ""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line.send(str(os.getpid()).encode())
    threading.Thread(target=_end_with, args=[line], daemon=True).start()
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=request["argv"])
    os._exit(0)


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    ask(*arguments) if verb == "ask" else serve(*map(int, arguments))
