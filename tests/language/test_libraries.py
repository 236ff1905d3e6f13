"""A user's own operator: the library that the user names is loaded where the program runs and where it is compared."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import executorch
import pytest
import torch
from torch import nn

import etviz
from etviz.errors import ExecutionError, PairingError, UsageError
from tests.fuzz.test_crafted import rewrite
from tests.shelf import Shelf

_KERNEL = """
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
using executorch::aten::Tensor;
using executorch::runtime::KernelRuntimeContext;
Tensor& tripled(KernelRuntimeContext&, const Tensor& x, Tensor& out) {
  for (ssize_t at = 0; at < x.numel(); ++at)
    out.mutable_data_ptr<float>()[at] = 3.0f * x.const_data_ptr<float>()[at];
  return out;
}
EXECUTORCH_LIBRARY(etviz_users, "tripled.out", tripled);
"""
_MODULE = """
import ctypes
import torch
ctypes.CDLL({library!r})
library = torch.library.Library("etviz_users", "DEF")
library.define("tripled(Tensor x) -> Tensor")
library.define("tripled.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
library.impl("tripled", lambda x: {factor} * x, "CompositeExplicitAutograd")
library.impl("tripled.out", lambda x, *, out: out.copy_({factor} * x), "CompositeExplicitAutograd")
"""


class Tripled(nn.Module):
    """One of the user's operators between two of torch's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.etviz_users.tripled(x.sin()).exp()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module with an operator and its kernel; the option is as before in the end."""
    if shutil.which("g++") is None:
        pytest.skip("a kernel can't be built here: there is no g++")
    wheel = Path(next(iter(executorch.__path__)))
    include = wheel / "include"
    source, library = tmp_path / "kernel.cpp", tmp_path / "libkernel.so"
    source.write_text(_KERNEL)
    portable = include / "executorch/runtime/core/portable_type/c10"
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-DC10_USING_CUSTOM_GENERATED_MACROS"]
    command += ["-DET_EVENT_TRACER_ENABLED", str(source)]  # without it, the kernel logs nothing
    command += [f"-I{include}", f"-I{portable}", f"-L{wheel / 'lib'}", "-lexecutorch", "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "etviz_test_operators.py").write_text(_MODULE.format(library=str(library), factor=3))
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(etviz.options.operator_libraries)
    yield "etviz_test_operators"
    etviz.options.operator_libraries = before


def test_a_library_of_the_users(module: str) -> None:
    importlib.import_module("executorch.extension.pybindings.portable_lib")
    importlib.import_module(module)
    inputs = (torch.linspace(-2, 2, 12).reshape(3, 4),)
    with pytest.raises(ExecutionError, match=r"no kernel for etviz_users::tripled\.out; .* libraries=") as missing:
        etviz.debug(Tripled(), inputs)
    assert missing.value.last_lines
    found = etviz.debug(Tripled(), inputs, libraries=[module])
    assert etviz.options.operator_libraries == [module]
    assert "matches the reference" in found.summary()
    row = found.gaps.set_index("op").loc["etviz_users::tripled.out"]
    assert row["max_abs"] < 1e-6


def test_a_library_that_can_not_be_loaded() -> None:
    before = list(etviz.options.operator_libraries)
    try:
        with pytest.raises(UsageError, match=r"libraries: no_such_module can't be loaded .* give the name of a module"):
            etviz.debug(nn.ReLU(), (torch.ones(2),), libraries=["no_such_module"])
    finally:
        etviz.options.operator_libraries = before
    with pytest.raises(UsageError, match="libraries must be a list of names"):
        etviz.debug(nn.ReLU(), (torch.ones(2),), libraries=[3])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            (b'"name": "negative_slope"', b'"name": "slope"'),
            r"an argument 'slope' that it does not take; here it is aten::leaky_relu\(Tensor self, Scalar "
            r"negative_slope=0\.01.*\. Load its library in the version that the program was exported with\.",
        ),
        (
            (b"ops.aten.leaky_relu.default", b"ops.aten.leaky_relu.Tensor"),
            r"uses aten\.leaky_relu\.Tensor, which is not registered here; there is aten\.leaky_relu\.default.*version",
        ),
        (
            (b"ops.aten.leaky_relu.default", b"ops.users.leaky_relu.default"),
            r"uses users\.leaky_relu\.default, which etviz does not evaluate\. Give the library that registers it",
        ),
    ],
    ids=["argument", "overload", "library"],
)
def test_an_operator_of_another_version(change: tuple[bytes, bytes], says: str, shelf: Shelf, tmp_path: Path) -> None:
    """The message names the file that the operator comes from, and what is registered here."""
    inputs = (torch.linspace(-2, 2, 12).reshape(3, 4),)
    run = shelf.folder("leaky", lambda folder: etviz.debug(nn.LeakyReLU(0.1), inputs, workdir=folder))
    other = rewrite(run / "etrecord.bin", tmp_path / "other.bin", lambda _, data: data.replace(*change))
    values = run / "debug_buffer.bin"
    found = etviz.load(run / "etdump.etdp", etrecord=run / "etrecord.bin", debug_buffer=values)
    assert found.first_divergence is None
    with pytest.raises(PairingError, match=rf"^{other}: The reference .*{says}"):
        etviz.load(run / "etdump.etdp", etrecord=other, debug_buffer=values)
