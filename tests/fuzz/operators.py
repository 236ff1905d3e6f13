"""Every operator that etviz calls, with arguments that don't fit: in a process of its own, whose death is counted.

``python -m tests.fuzz.operators [TRIES]`` prints what came out by operator; nothing may die or hang.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIBRARIES = ("aten", "quantized_decomposed", "torchao", "llama", "et_vk", "dim_order_ops")
PATIENCE = 30
"""Seconds in which an operator has to get through a hundred tries."""
_SHAPES = ((), (0,), (1,), (3,), (4, 4), (2, 0, 3), (1, 2, 3), (2, 3, 4, 4), (1, 4, 6, 6), (1, 2, 3, 4, 5), (8, 8))
_DTYPES = ("float32", "float32", "float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
_INTEGERS = (
    0,
    0,
    1,
    1,
    1,
    2,
    2,
    3,
    4,
    -1,
    -1,
    -2,
    -3,
    7,
    64,
    127,
    255,
    10**6,
    2**31,
    2**62,
    2**63 - 1,
    -(2**63),
    2**64,
)
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-3, 1e308, float("inf"), float("nan"), 10**400)
_TEXTS = (
    "",
    "none",
    "mean",
    "nearest",
    "bilinear",
    "constant",
    "floor",
    "trunc",
    "ij,jk->ik",
    "ij->ji",
    "a" * 300,
    "\0",
)


def admitted() -> list[str]:
    """Names of the operators of this machine that etviz resolves."""
    import torch

    from etviz.errors import EtvizError
    from etviz.evaluation.operators import resolve
    from etviz.upstream.operators import load_operator_library

    for library in LIBRARIES:
        load_operator_library(library)
    found = []
    for kernel in sorted(torch._C._dispatch_get_all_op_names()):  # type: ignore[attr-defined]
        namespace, _, rest = kernel.partition("::")
        name, _, overload = rest.partition(".")
        target = f"{namespace}.{name}.{overload or 'default'}"
        if namespace in LIBRARIES:
            try:
                resolve(target)
            except EtvizError:
                continue
            found.append(target)
    return found


class Arguments:
    """Draws arguments: mostly of the types that the schema asks for, some of any."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shape: tuple[int, ...] = ()
        self.kind = "float32"

    def of(self, schema: Any) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments."""
        args, kwargs = [], {}
        self.shape, self.kind = self.random.choice(_SHAPES), self.random.choice(_DTYPES)
        wild = self.random.random() < 0.3
        for argument in schema.arguments:
            if argument.has_default_value() and self.random.random() < 0.5:
                if not argument.kwarg_only:
                    break
                continue
            real = str(getattr(argument, "real_type", argument.type))
            value = self.any() if wild and self.random.random() < 0.3 else self.value(real)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def value(self, kind: str) -> Any:
        pick = self.random.choice
        if kind.startswith("Optional[") or kind.endswith("?"):
            inner = kind[9:-1] if kind.startswith("Optional[") else kind[:-1]
            return None if self.random.random() < 0.4 else self.value(inner)
        if kind.startswith("List["):
            return [self.value(kind[5:-1]) for _ in range(pick((0, 1, 1, 2, 2, 2, 3, 4, 5)))]
        known = {
            "Tensor": self.tensor,
            "int": lambda: pick(_INTEGERS),
            "SymInt": lambda: pick(_INTEGERS),
            "float": lambda: pick(_FLOATS),
            "bool": lambda: pick((True, False)),
            "number": lambda: pick((*_INTEGERS, *_FLOATS)),
            "Scalar": lambda: pick((*_INTEGERS, *_FLOATS)),
            "str": lambda: pick(_TEXTS),
            "ScalarType": self.dtype,
            "Device": lambda: __import__("torch").device("cpu"),
        }
        return known[kind]() if kind in known else self.any()

    def dtype(self) -> Any:
        import torch

        return getattr(torch, self.random.choice((*_DTYPES, "complex64", "qint8", "float8_e4m3fn", "uint16")))

    def tensor(self) -> Any:
        import torch

        if self.random.random() < 0.6:  # several of one kind get further than several of different kinds
            return torch.ones(self.shape).mul(self.random.choice((0, 1, 3))).to(getattr(torch, self.kind))
        shape, dtype = self.random.choice(_SHAPES), getattr(torch, self.random.choice(_DTYPES))
        value = torch.zeros(shape, dtype=dtype) if self.random.random() < 0.3 else torch.ones(shape).mul(3).to(dtype)
        if self.random.random() < 0.1 and value.dim():
            value = value.transpose(0, -1)
        return torch.tensor(self.random.choice(_INTEGERS[:20])) if self.random.random() < 0.05 else value

    def any(self) -> Any:
        import torch

        pick = self.random.choice
        return pick(
            (
                *(None, True, 0, -1, 5, 2**62, 10**30, 0.5, float("nan"), "x", [], [0], [-1, 2**40], [[1]], [None], {}),
                *(torch.float32, torch.int8, torch.qint8, torch.channels_last, torch.strided, torch.device("cpu")),
                *([self.tensor()], [self.tensor(), None], self.tensor(), ["a"], [True], [0.5], (1, 2)),
            )
        )


def child(tries: int) -> None:
    """Answer the names of operators, one in a line, with how their calls ended."""
    import torch

    from etviz.errors import EtvizError
    from etviz.evaluation.limits import Limits
    from etviz.upstream.operators import load_operator_library

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for library in LIBRARIES:
        load_operator_library(library)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 30), size + (2 << 30)))
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        target, seed = json.loads(line)
        namespace, name, overload = target.split(".")
        schema = getattr(getattr(getattr(torch.ops, namespace), name), overload)._schema
        arguments, ends = Arguments(seed), Counter[str]()
        for _ in range(tries):
            args, kwargs = arguments.of(schema)
            if os.environ.get("ETVIZ_TELL"):
                sys.stderr.write(f"{target} {args} {kwargs}\n")
                sys.stderr.flush()
            limits = Limits()
            limits.begin([])
            try:
                with torch.no_grad():
                    limits.call(target, args, kwargs)
                ends["value"] += 1
            except EtvizError as error:
                ends[type(error).__name__] += 1
            except MemoryError:
                ends["memory"] += 1
            except Exception as error:  # noqa: BLE001 - an operator refuses in its own way
                ends["memory" if "allocate memory" in str(error) else "refused"] += 1
        answers.write(json.dumps(ends) + "\n")
        answers.flush()


def trials(targets: list[str], tries: int, seed: int = 0) -> Iterator[tuple[str, Counter[str]]]:
    """How the calls of each operator ended: ``value``, ``refused``, an error of etviz, a signal, ``hang``."""
    process = None
    for target in targets:
        process = process or _start(tries)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([target, seed]) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE * max(1, tries / 100))
        line = process.stdout.readline() if ready else ""
        if line:
            yield target, Counter(json.loads(line))
            continue
        if ready:
            status = process.wait()
            yield target, Counter({signal.Signals(-status).name if status < 0 else f"exit {status}": 1})
        else:
            process.kill()
            yield target, Counter({"hang": 1})
        process.communicate()
        process = None
    if process is not None:
        process.communicate()


def _start(tries: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.operators", "--child", str(tries)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("ETVIZ_TELL") else subprocess.DEVNULL,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"},
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


DEADLY = ("SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL", "SIGKILL", "hang")


def main() -> None:
    """Try all, and print what died."""
    tries = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    targets = admitted()
    total: Counter[str] = Counter()
    for target, ends in trials(targets, tries):
        total += ends
        if any(name in ends for name in (*DEADLY, "memory")):
            sys.stdout.write(f"{target} {dict(ends)}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(targets)} operators: {dict(total)}\n")


if __name__ == "__main__":
    child(int(sys.argv[2])) if sys.argv[1:2] == ["--child"] else main()
