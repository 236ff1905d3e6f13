"""BundledPrograms: a program with test sets and expected outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves
from tqdm.auto import tqdm

from etviz.artifacts.files import PathLike, check_target, write_file
from etviz.artifacts.program.bundled_program import BundledProgram, BundledTensor, BundledValue, read_bundled_program
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, UsageError, during
from etviz.evaluation.evaluator import Evaluator
from etviz.pipeline.capture import capture
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from etviz.upstream.executorch import quietly

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager


RTOL: Final = 1e-3
"""Relative tolerance of ExecuTorch's documents and of its example_runner."""
ATOL: Final = 1e-5
COLUMNS: Final = (
    *("method", "test_set", "output", "dtype", "shape", "verified", "elements", "off"),
    *("index", "found", "expected", "max_abs", "reason"),
)
Sets = dict[str, list[tuple[Any, ...]]]


@during("writing the bundled program")
def bundle(
    model_or_program: torch.nn.Module | ExportedProgram | ExecutorchProgramManager | PathLike,
    inputs: Any,
    path: PathLike,
    *,
    expected: Any = None,
    partitioner: Sequence[Any] | None = None,
) -> Path:
    """Write a BundledProgram (`.bpte`): a program, test sets for its methods, and their expected outputs.

    Parameters
    ----------
    model_or_program
        An eager `nn.Module` or an `ExportedProgram`, which is lowered; the result of `to_executorch()`; or a `.pte`.
    inputs
        A tuple of arguments, a list of tuples (test sets), or a dict of lists by method.
    expected
        The outputs of each test set, in the same form. By default the model computes them, in the order of the test
        sets, or the recorded reference graph of a program manager. A `.pte` alone has no reference.
    partitioner
        Partitioners of the backends to delegate to, if a model is lowered; None means portable kernels only.

    Raises
    ------
    UsageError
        If the arguments do not fit together, or the expected outputs of a `.pte` are not given.
    LoweringError
        If upstream refuses the model.
    ArtifactError
        If the file can't be written.
    """
    check_target(path, "the bundle")
    sets = _sets(inputs, "inputs")
    given = _sets(expected, "expected") if expected is not None else None
    if isinstance(model_or_program, (torch.nn.Module, ExportedProgram)):
        if list(sets) != ["forward"]:
            raise UsageError(f"a model has the method forward only, inputs are for {', '.join(sets)}")
        with Scratch() as folder:
            computed = given or {"forward": _eager_outputs(model_or_program, sets["forward"])}
            lowered = lower(model_or_program, sets["forward"][0], Path(folder), partitioner=partitioner)
            return _write(None, lowered.pte, sets, computed, path)
    if partitioner is not None:
        raise UsageError("partitioner is for models; this program is lowered already")
    if hasattr(model_or_program, "executorch_program"):
        manager: Any = model_or_program
        _check_methods(sets, sorted(manager.methods))
        return _write(manager, None, sets, given or _reference_outputs(manager, sets), path)
    if isinstance(model_or_program, (str, os.PathLike)):
        if given is None:
            raise UsageError("a .pte alone has no reference; give the outputs of the test sets with expected=")
        return _write(None, Path(model_or_program), sets, given, path)
    raise UsageError(
        "model_or_program must be an nn.Module, an ExportedProgram, what to_executorch() returns, or the path of a "
        f".pte, found {type(model_or_program).__name__}"
    )


def _sets(given: Any, name: str) -> Sets:
    by_method = given if isinstance(given, Mapping) else {"forward": given}
    sets: Sets = {}
    for method, items in by_method.items():
        cases = items if isinstance(items, list) else [items]
        cases = [(case,) if name == "expected" and not isinstance(case, (tuple, list)) else case for case in cases]
        if not cases or not all(isinstance(case, (tuple, list)) for case in cases):
            raise UsageError(f"{name} must be a tuple, a list of tuples (test sets), or a dict of such lists by method")
        sets[str(method)] = [tuple(case) for case in cases]
    if not sets:
        raise UsageError(f"{name} is empty")
    return sets


def _check_methods(sets: Sets, methods: Sequence[str]) -> None:
    for method in sets:
        if method not in methods:
            raise UsageError(f"inputs are for the method {method}, the program has {', '.join(methods)}")


def _eager_outputs(model: torch.nn.Module | ExportedProgram, cases: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    call: Any = model if isinstance(model, torch.nn.Module) else model.module()
    with torch.no_grad():
        return [tuple(tree_leaves(call(*case))) for case in tqdm(cases, desc="expected outputs", leave=False, delay=1)]


def _reference_outputs(manager: ExecutorchProgramManager, sets: Sets) -> Sets:
    graphs, constants = capture(manager)
    outputs: Sets = {}
    for method, cases in sets.items():
        evaluator = Evaluator(graphs[method], constants)
        outputs[method] = [tuple(evaluator.run(tree_leaves(case))) for case in cases]
    return outputs


def _write(
    manager: ExecutorchProgramManager | None, pte: Path | None, sets: Sets, expected: Sets, path: PathLike
) -> Path:
    with quietly():
        from executorch.devtools import BundledProgram
        from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
        from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

    suites = []
    for method, cases in sets.items():
        outputs = expected.get(method, [])
        if len(outputs) != len(cases):
            raise UsageError(f"{method} has {len(cases)} test sets, expected= has {len(outputs)}")
        try:
            pairs = [MethodTestCase(tree_leaves(i), tree_leaves(o)) for i, o in zip(cases, outputs, strict=True)]
        except AssertionError as error:
            raise UsageError(f"a test set of {method} can't be bundled: {error}") from error
        suites.append(MethodTestSuite(method, pairs))
    try:
        with quietly():
            bundled = BundledProgram(manager, suites, str(pte) if pte is not None else None)
            content = serialize_from_bundled_program_to_flatbuffer(bundled)
    except (AssertionError, RuntimeError, ValueError, TypeError) as error:
        raise UsageError(f"the test sets can't be bundled with this program: {str(error).strip()}") from error
    except OSError as error:
        problem = f"the program can't be read ({error.strerror or error})"
        raise ArtifactError(pte or "", problem, "name a .pte") from error
    return write_file(path, "the bundle", bytes(content))


@during("verifying the bundled program")
def verify(
    path: PathLike, *, rtol: float = RTOL, atol: float = ATOL, method: str | None = None, timeout: float | None = None
) -> pd.DataFrame:
    """Run a BundledProgram's test sets here, and compare their outputs with the expected ones.

    As upstream does it, an element is verified if both are NaN, the same infinity, or ``|expected − found| ≤ atol +
    rtol·|found|`` in the arithmetic of its dtype (half precision in float64); every other dtype bit for bit. The test
    sets of a method run in order in one process, so mutable buffers keep their state.

    Parameters
    ----------
    path
        The `.bpte`.
    rtol, atol
        Tolerances; 0 and 0 demand equality.
    method
        Only this method; by default all that have test sets.
    timeout
        Seconds for each method's run.

    Returns
    -------
    A row for each output of each test set: ``verified``, the number of ``elements`` and how many are ``off``; of the
    worst one its ``index`` (a tuple), the value ``found`` and the ``expected`` one; ``max_abs``, the largest difference
    (NaN where nothing finite can be subtracted); and the ``reason`` where outputs can't be compared.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or no BundledProgram.
    UsageError
        If a tolerance makes no sense, the method does not exist, or there is nothing to verify.
    ExecutionError
        If the program can't be run.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not 0 <= value < float("inf"):
            raise UsageError(f"{name} must be a finite number, 0 or more, found {value}")
    bundled = read_bundled_program(path)
    chosen = _methods(bundled, method)
    rows: list[dict[str, Any]] = []
    with Scratch() as folder:
        pte = Path(folder) / "model.pte"
        pte.write_bytes(bundled.program_bytes)
        for name in tqdm(chosen, desc="verify", leave=False, delay=1):
            cases = bundled.suites[name]
            run = execute(pte, [case.input_values() for case in cases], method=name, timeout=timeout)
            for test_set, (case, outputs) in enumerate(zip(cases, run.outputs, strict=True)):
                for row in _case_rows(case.expected_outputs, outputs, rtol, atol):
                    rows.append({"method": name, "test_set": test_set} | row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _methods(bundled: BundledProgram, method: str | None) -> list[str]:
    if method is not None and method not in bundled.suites:
        known = ", ".join(bundled.suites) or "none"
        raise UsageError(f"{bundled.path} has no test sets of the method {method!r}; it has those of: {known}")
    chosen = [name for name, cases in bundled.suites.items() if cases and method in (None, name)]
    if not chosen:
        raise UsageError(f"{bundled.path} holds no test sets; write it again with etviz.bundle()")
    return chosen


def _case_rows(
    expected: Sequence[BundledValue], outputs: Sequence[Any], rtol: float, atol: float
) -> list[dict[str, Any]]:
    if len(expected) != len(outputs):
        many = "no expected outputs" if not expected else f"{len(expected)} expected outputs"
        reason = f"the test set has {many}, the program gives {len(outputs)}"
        return [{"output": -1, "verified": False, "reason": reason, "max_abs": np.nan}]
    return [
        {"output": at} | _difference(wanted, found, rtol, atol)
        for at, (wanted, found) in enumerate(zip(expected, outputs, strict=True))
    ]


def _difference(expected: BundledValue, found: Any, rtol: float, atol: float) -> dict[str, Any]:
    if not isinstance(expected, BundledTensor) or not isinstance(found, torch.Tensor):
        same = not isinstance(expected, BundledTensor) and not isinstance(found, torch.Tensor) and expected == found
        plain = {"dtype": type(found).__name__, "shape": (), "elements": 1, "off": int(not same), "index": ()}
        return plain | {"verified": same, "found": found, "expected": expected, "max_abs": np.nan, "reason": ""}
    dtype, shape = str(found.dtype).removeprefix("torch."), tuple(found.shape)
    row = {"dtype": dtype, "shape": shape, "elements": found.numel(), "max_abs": np.nan, "reason": ""}
    if (expected.dtype, tuple(expected.data.shape)) != (dtype, shape):
        wanted = f"{expected.dtype} {tuple(expected.data.shape)}"
        reason = f"the expected output is {wanted}, the program gives {dtype} {shape}"
        return row | {"verified": False, "reason": reason}
    a, b = expected.tensor(), found.cpu()
    off = _off(a, b, rtol, atol)
    wide_a, wide_b = (t.to(torch.float64).numpy() if not t.is_complex() else t.numpy() for t in (a, b))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(wide_a - wide_b)
    finite = np.isfinite(error)
    most = error[finite].max() if finite.any() else np.nan
    row |= {"verified": not off.any(), "off": int(off.sum()), "max_abs": most}
    if off.any():
        at = np.unravel_index(int(np.argmax(np.where(off, np.nan_to_num(error, nan=np.inf), -1))), shape)
        place = tuple(int(i) for i in at)
        row |= {"index": place, "found": wide_b[place].item(), "expected": wide_a[place].item()}
    return row


def _off(expected: torch.Tensor, found: torch.Tensor, rtol: float, atol: float) -> np.ndarray:
    if expected.dtype not in (torch.float16, torch.float32, torch.float64):
        bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}.get(expected.dtype.itemsize, torch.int64)
        a, b = (t.contiguous().view(bits) for t in (expected, found))
        return (a != b).reshape(*expected.shape, -1).any(-1).numpy()
    a, b = ((t.to(torch.float64) if t.dtype is torch.float16 else t).numpy() for t in (expected, found))
    same = (np.isnan(a) & np.isnan(b)) | (np.isinf(a) & np.isinf(b) & ((a > 0) == (b > 0)))
    if rtol == 0 and atol == 0:
        return ~(same | (a == b))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(a - b)
        allowed = atol + np.abs(np.float64(rtol) * b.astype(np.float64))
    return ~(same | (np.isfinite(error) & (error.astype(np.float64) <= allowed)))
