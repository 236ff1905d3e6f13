# pyright: reportPrivateUsage=false
"""`etviz.debug` from the model to the files: what it keeps, and how it says that a model can't be taken."""

from __future__ import annotations

import inspect
import math
import os
import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import etviz
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.comparison.references import References
from etviz.errors import ArtifactError, EtvizError, ExecutionError, UsageError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.spill import SpillFile
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import LoweringError
from etviz.view.payload.tensor import build_tensor
from tests.programs import FILES, Counter, Executed


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class DependsOnData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class NoKernel(nn.Module):
    """An operator that neither the portable library nor a backend has."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.svd(x)[1]


def test_the_folder_keeps_every_artifact(program: Executed) -> None:
    names = {path.name for path in program.folder.iterdir()}
    expected = set(FILES.values())
    if program.name == "branches":
        expected.remove("etrecord.bin")
    assert names == expected


def test_times_are_those_of_executions_without_a_debug_buffer(executed: Callable[[str], Executed]) -> None:
    made = executed("residual_cnn")
    inspection = made.load(timing=made.path("timing"))
    timed = inspection.events
    runs = [block for block in read_etdump(made.path("timing")).blocks if block.name == "Execute"]
    assert all(not block.debug for block in runs)
    assert 2 <= len(runs) <= 11
    calls = timed[timed.name == "DELEGATE_CALL"]
    assert set(calls["count"]) == {len(runs) - 1}, "the first one warms up"
    assert inspection.time.latency[int(calls.instruction.iloc[0])] == pytest.approx(calls.avg_ms.iloc[0])
    assert f"{len(runs) - 1} execution" in timed.attrs["note"]
    logged = made.inspection
    assert set(logged.events.query("name == 'DELEGATE_CALL'")["count"]) == {1}
    assert "while values were logged" in logged.events.attrs["note"]
    with pytest.raises(ArtifactError, match="belongs to another program"):
        made.load(timing=executed("encoder").path("timing"))
    with pytest.raises(ArtifactError, match="no such file"):
        made.load(timing=made.folder / "none.etdp")


def test_without_a_folder_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    inspection = etviz.debug(Nothing(), (torch.ones(3),))
    assert inspection.gaps["rmse"].tolist() == [0.0] * len(inspection.gaps)
    reference, runtime = inspection.tensors(inspection.gaps.index[-1])
    assert reference.tolist() == runtime.tolist() == [2, 2, 2]
    assert list(tmp_path.iterdir())
    del inspection, reference, runtime
    import gc

    gc.collect()
    assert not list(tmp_path.iterdir())


def test_an_exported_program(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = Counter().eval(), (torch.randn(3, 4),)
    inspection = etviz.debug(torch.export.export(model, inputs), inputs, workdir=tmp_path)
    same = executed("counter").inspection
    assert inspection.gaps["op"].tolist() == same.gaps["op"].tolist()
    assert "ExportedProgram" in inspection.analysis.title


class Large(nn.Module):
    """Its five values take 8 MB each, more than the memory for reference tensors."""

    steps = (torch.sin, torch.cos, torch.tanh, torch.neg, torch.exp)

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
        return x


def test_references_that_are_not_kept_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory does not suffice for all reference tensors they are computed again, once for each click."""
    value = torch.rand(2048, 1024)
    found = etviz.debug(Large(), (value,))
    kept = [gap.reference is not None for gap in found.analysis.tables.gaps]
    assert any(kept)
    assert not all(kept)
    for index, step in zip(found.gaps.index, Large.steps, strict=True):
        value = step(value)
        torch.testing.assert_close(found.tensors(index)[0], value, rtol=1e-6, atol=1e-6)
    asked: list[Any] = []
    reference = References.reference
    monkeypatch.setattr(References, "reference", lambda self, gap: asked.append(gap) or reference(self, gap))
    build_tensor(found.analysis, kept.index(False))
    assert len(asked) == 1


def test_executions_on_the_same_inputs_are_compared_as_each_alone(
    executed: Callable[[str], Executed], monkeypatch: Any, tmp_path: Path
) -> None:
    """The reference is evaluated once for them; no number differs, and no reference is lost."""
    program = executed("residual_cnn")
    x, y = program.inputs, tuple(value + 1 for value in program.inputs)
    run = execute(program.path("pte"), [list(item) for item in (x, x, x, y, x)], workdir=tmp_path)
    given: dict[str, Any] = {"etrecord": program.path("etrecord"), "pte": program.path("pte")}
    given |= {"debug_buffer": run.debug_buffer, "inputs": [x, x, x, y, x]}
    evaluated: list[int] = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        evaluated.append(len(args[2]))
        return run_together(*args, **kwargs)

    run_together = Evaluator.run_together
    monkeypatch.setattr(Evaluator, "run_together", counting)
    for introduced in (False, True):
        evaluated.clear()
        together = etviz.load(run.etdump, introduced=introduced, **given)
        assert evaluated[:2] == [1, 2]  # the first alone, then the next two on the same inputs
        blocks = list(together.gaps["event_block"].unique())
        assert len(blocks) == 5
        for number, inputs, of_it in ((0, x, (0, 1, 2, 4)), (1, y, (3,))):
            single = execute(program.path("pte"), [list(inputs)], workdir=tmp_path / f"{introduced}-{number}")
            own = given | {"debug_buffer": single.debug_buffer, "inputs": inputs}
            alone = etviz.load(single.etdump, introduced=introduced, **own)
            for at in of_it:
                for name in ("gaps", "outputs"):
                    table, expected = getattr(together, name), getattr(alone, name)
                    rows = table[table["event_block"] == blocks[at]]
                    exact = [item for item in rows if item not in ("name", "event_block", "input_index", "latency_ms")]
                    pd.testing.assert_frame_equal(
                        rows[exact].reset_index(drop=True), expected[exact].reset_index(drop=True), check_exact=True
                    )
                rows = together.gaps[together.gaps["event_block"] == blocks[at]]
                for index, other in zip(rows.index, alone.gaps.index, strict=True):
                    for ours, expected in zip(together.tensors(index), alone.tensors(other), strict=True):
                        assert torch.equal(ours, expected)


def test_values_in_a_file_take_few_descriptors() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    values = [torch.full((size,), float(size)) for size in range(200)]
    before = descriptors()
    with SpillFile() as file:
        kept = [file.put(value) for value in values]
        assert descriptors() <= before + 2
    kept[7][0] = -1.0
    assert all(torch.equal(*pair) for pair in zip(kept[8:], values[8:], strict=True))


@pytest.mark.parametrize(
    ("model", "inputs", "words"),
    [
        (lambda x: x, (torch.ones(1),), r"model must be an nn\.Module.*found function"),
        (Nothing(), torch.ones(1), r"example_inputs must be a tuple.*found Tensor.*\(x,\)"),
    ],
)
def test_arguments_of_the_wrong_kind(model: Any, inputs: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        etviz.debug(model, inputs, workdir=tmp_path)


def test_calibration_without_a_quantizer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="calibration= means nothing without a quantizer"):
        etviz.debug(Nothing(), (torch.ones(1),), calibration=[(torch.ones(1),)], workdir=tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"partitioner": object()}, "partitioner must be a list of partitioners, found object"),
        ({"partitioner": "xnnpack"}, "partitioner must be a list of partitioners, found str"),
        ({"partitioner": [object]}, "partitioner must hold partitioners, found the class object; call it"),
    ],
)
def test_options_that_are_none(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        etviz.debug(Nothing(), (torch.ones(3),), workdir=tmp_path, **given)


def test_a_model_that_cannot_be_copied_is_not_at_fault_for_that(tmp_path: Path) -> None:
    class Locked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(LoweringError):
        etviz.debug(Locked(), (torch.ones(3),), workdir=tmp_path)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ((torch.ones(2, 9),), r"\(float32 \[2, 9\]\): RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ((), r"TypeError: .* missing 1 required positional argument"),
        (([[1.0] * 8],), r"TypeError: "),
        ([[torch.ones(2, 8)], [torch.ones(2, 8)]], r"several calls are a list of tuples\.$"),
    ],
)
def test_inputs_that_the_model_itself_does_not_take(inputs: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^The model itself fails on example_inputs.*" + words):
        etviz.debug(nn.Linear(8, 4), inputs, workdir=tmp_path)


def test_a_call_that_fails_is_told_by_its_number(tmp_path: Path) -> None:
    calls = [(torch.ones(2, 8),), (torch.ones(3, 8),)]
    with pytest.raises(ExecutionError, match=r"resize a static tensor.*(?s:.*)in run 1$"):
        etviz.debug(nn.Linear(8, 4), calls, workdir=tmp_path)


class Dropped(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.nn.functional.dropout(x, 0.5, training=True) * 3, x + 1


class DroppedBeside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sin(torch.exp(3 * self.linear(x)) * 1000)
        return torch.nn.functional.dropout(x, 0.5, training=True)


def test_what_comes_before_random_numbers_is_judged_by_its_noise(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = DroppedBeside(), 3 * torch.randn(16, 64)
    found = etviz.debug(model, (x,), workdir=tmp_path)
    assert found.analysis.digest.verdict == "Final outputs were not compared: they follow from random numbers."
    row = found.gaps.set_index("reference_ops").loc["sin"]
    with torch.no_grad():
        exact = torch.sin(torch.exp(3 * model.linear.double()(x.double())) * 1000)
        own = (torch.sin(torch.exp(3 * model.linear.float()(x)) * 1000) - exact).square().mean().sqrt()
    assert row["rmse"] > 100 * 2**-24
    assert 0.3 < row["noise"] / own < 3
    assert row["severity"] < 3


def test_random_numbers_are_not_held_against_the_reference(tmp_path: Path) -> None:
    found = etviz.debug(Dropped(), (torch.randn(4, 8),), workdir=tmp_path)
    gaps = found.gaps.set_index("op")
    drawn, after, apart = (gaps.loc[name] for name in ("aten::native_dropout.out", "aten::mul.out", "aten::add.out"))
    assert drawn[["rmse", "introduced_rmse"]].isna().all(axis=None)
    assert math.isnan(after["rmse"])
    assert after["introduced_rmse"] == 0
    assert apart["rmse"] == 0
    assert found.first_divergence is None
    assert found.analysis.digest.verdict == "Final outputs were not compared: they follow from random numbers."
    assert "draws random numbers (dropout)" in found.summary()
    assert "model.eval()" in found.summary()
    with pytest.raises(UsageError, match="notes"):
        found.attribution()
    etdump, etrecord, debug_buffer = (tmp_path / FILES[kind] for kind in ("etdump", "etrecord", "debug_buffer"))
    by_handles = etviz.load(etdump, etrecord=etrecord, debug_buffer=debug_buffer)
    assert by_handles.gaps["rmse"].isna().all()


class NormedOnGrid(torch.nn.Module):
    """What quantization takes, what follows from that, and what does not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.norm(self.linear(x)), torch.cumsum(x, -1)


@pytest.mark.parametrize(("dynamic", "values"), [(False, math.nan), (True, math.inf)])
def test_integers_that_are_made_of_nan_are_not_held_against_the_runtime(
    dynamic: bool, values: float, tmp_path: Path
) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    torch.manual_seed(0)
    x = torch.randn(4, 8)
    bad = x.clone()
    bad[1, 3] = values
    found = etviz.debug(
        NormedOnGrid().eval(),
        (bad,),
        partitioner=[XnnpackPartitioner()],
        quantizer=XNNPACKQuantizer().set_global(
            get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
        ),
        calibration=[(x,)],
        workdir=tmp_path,
    )
    gaps = found.gaps.set_index("op")
    delegate, after, apart = (
        gaps.loc[name] for name in ("DELEGATE_CALL", "aten::native_layer_norm.out", "aten::cumsum.out")
    )
    assert math.isnan(delegate["rmse"])
    assert math.isnan(delegate["introduced_rmse"])
    assert "any number may come of it" in delegate["reason"]
    assert after["rmse"].isna().all()
    assert (after["introduced_severity"].iloc[0] < 1) if not dynamic else True
    assert apart["reference_nan"] + apart["reference_inf"] == apart["runtime_nan"] + apart["runtime_inf"] > 0
    assert found.first_divergence is None
    assert (
        found.analysis.digest.verdict
        == "Final outputs were not compared: they follow from NaN or Inf that was put on an integer grid."
    )
    assert re.search(r"The input x holds NaN or Inf\. #\d linear puts that on an integer grid", found.summary())
    etdump, etrecord, debug_buffer = (tmp_path / FILES[kind] for kind in ("etdump", "etrecord", "debug_buffer"))
    by_handles = etviz.load(etdump, etrecord=etrecord, debug_buffer=debug_buffer)
    assert by_handles.first_divergence is None
    assert (
        by_handles.analysis.digest.verdict
        == "Final outputs were not compared: they follow from NaN or Inf that was put on an integer grid."
    )
    if dynamic:
        return
    study = etviz.study(tmp_path, [(bad,), (x.where(bad.isfinite(), math.inf),), (x,)])  # a grid saturates Inf
    assert study.inputs["matches"].tolist() == [pd.NA, True, True]
    assert "can't be judged" in str(study.inputs.loc[0, "reason"])
    assert "2 of 2; 1 can't be judged" in study.summary()


def test_a_model_that_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(EtvizError, match=r"^The model could not be exported: ") as found:
        etviz.debug(DependsOnData(), (torch.ones(3),), workdir=tmp_path)
    assert found.value.__cause__ is not None
    assert str(found.value.__cause__).strip()[:40] in str(found.value)
    assert not list(tmp_path.iterdir())


class TakesNumbers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(int(x.max().item())):
            x = x + 1
        return x


class Writes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with Path(os.devnull).open("w") as file:
            file.write("x")
        return x * 2


class Foreign(nn.Module):
    """Operators of a library of its own: one that torch knows nothing of, one that the runtime has no kernel for."""

    library = torch.library.Library("etviz_tests", "DEF")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        if not hasattr(torch.ops.etviz_tests, name):
            self.library.define(f"{name}(Tensor x) -> Tensor")
            self.library.impl(name, torch.cos, "CPU")
            if name == "known":
                torch.library.register_fake(f"etviz_tests::{name}", torch.empty_like, lib=self.library)

    def forward(self, x: Tensor) -> Tensor:
        if self.name == "known":
            return torch.ops.etviz_tests.known(x)
        return torch.ops.etviz_tests.unknown(x)


@pytest.mark.parametrize(
    ("model", "strict", "code", "advice"),
    [
        (DependsOnData(), True, "return x + 1 if x.sum() > 0 else x - 1", "torch.cond("),
        (DependsOnData(), False, "return x + 1 if x.sum() > 0 else x - 1", "torch.cond("),
        (TakesNumbers(), True, "for _ in range(int(x.max().item())):", "(.item(), int(), a loop over it)"),
        (Writes(), True, 'with Path(os.devnull).open("w") as file:', "give strict=False"),
        (Foreign("unknown"), True, "torch.ops.etviz_tests.unknown(x)", 'register_fake("etviz_tests::unknown")'),
        (Foreign("known"), True, "torch.ops.etviz_tests.known(x), which calls etviz_tests.known", "register one"),
        (NoKernel(), True, "return torch.linalg.svd(x)[1], which calls aten._linalg_svd", "with other operators"),
    ],
)
def test_what_stands_in_the_way_is_told_in_a_few_lines(
    model: nn.Module, strict: bool, code: str, advice: str, tmp_path: Path
) -> None:
    with pytest.raises(LoweringError) as found:
        etviz.debug(model, (torch.ones(3, 3),), strict=strict, workdir=tmp_path)
    said = str(found.value)
    lines = said.splitlines()
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 360
    (where,) = (line for line in lines if line.startswith("  Where: "))
    source, first = inspect.getsourcelines(type(model))
    number = first + next(at for at, line in enumerate(source) if code.split(", which")[0] in line)
    assert where.startswith(f"  Where: test_debug.py:{number}: ")
    assert code in where
    (what,) = (line for line in lines if line.startswith("  What to do: "))
    assert advice in what
    whole = str(found.value.__cause__)
    assert ("The whole message is the error's __cause__." in said) == (len(whole) > len(lines[0]) + 20)
    assert whole.splitlines()[0].split(" (unhinted")[0] in lines[0]


class ComplexNumbers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.complex64)[:2] * 2).real


def test_what_upstream_announces_in_its_first_line_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(LoweringError, match=r"mismatched dtypes:\nOperator: .*torch\.complex64"):
        etviz.debug(ComplexNumbers(), (torch.ones(3, 3),), workdir=tmp_path)


def test_a_model_that_cannot_be_lowered(tmp_path: Path) -> None:
    with pytest.raises(EtvizError, match=r"^The model could not be (lowered|emitted|exported): "):
        etviz.debug(NoKernel(), (torch.randn(3, 3),), workdir=tmp_path)


def test_a_quantizer_that_fails(tmp_path: Path) -> None:
    with pytest.raises(EtvizError, match=r"^The model could not be quantized: "):
        etviz.debug(Nothing(), (torch.ones(3),), quantizer="int8", workdir=tmp_path)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (
            (torch.ones(4),),
            r"can't take item 1, \(float32 \[4\]\); it was exported for \(float32 \[3\]\) \(Guard failed",
        ),
        ((torch.ones(3), 2), r"can't take item 1, \(float32 \[3\], int\); it was exported for \(float32 \[3\]\)"),
        (torch.ones(3), r"tuples of the model's arguments, item 1 is a Tensor; write \(x,\)"),
    ],
)
def test_calibration_inputs_that_do_not_fit(item: Any, words: str, tmp_path: Path) -> None:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    calibration = [(torch.ones(3),), item]
    with pytest.raises(UsageError, match=words):
        etviz.debug(
            Nothing(), (torch.ones(3),), quantizer=XNNPACKQuantizer(), calibration=calibration, workdir=tmp_path
        )


class Shifted(torch.nn.Module):
    """Upstream's quantizer makes 1 a float tensor, and the index with it."""

    def __init__(self, one: int | torch.Tensor) -> None:
        super().__init__()
        self.table, self.last = torch.nn.Embedding(8, 4), torch.nn.Linear(4, 4)
        self.one = one

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.last(self.table(ids + self.one))


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_quantizer_that_breaks_an_index(is_dynamic: bool, tmp_path: Path) -> None:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_dynamic=is_dynamic))
    ids = torch.tensor([[1, 2, 3]])
    with pytest.raises(EtvizError) as found:
        etviz.debug(Shifted(1), (ids,), quantizer=quantizer, workdir=tmp_path)
    said, *lines = str(found.value).splitlines()
    assert said.startswith("The model takes item 0 of the calibration, but fails as the quantizer has prepared it: ")
    assert "Its cause" not in said
    assert "self.last(self.table(ids + self.one)), which calls embedding.default" in lines[0]
    assert "tensor of integers (register_buffer)" in lines[1]
    program = etviz.debug(Shifted(torch.ones(1, dtype=torch.int64)), (ids,), quantizer=quantizer, workdir=tmp_path)
    assert program.first_divergence is None


def test_options_reach_the_run(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="timeout="):
        etviz.debug(Nothing(), (torch.ones(3),), timeout=1e-6, workdir=tmp_path)


def test_a_reference_that_is_no_model() -> None:
    with pytest.raises(UsageError, match=r"reference must be an nn\.Module or an ExportedProgram, found dict"):
        etviz.debug(torch.nn.Identity(), (torch.ones(1),), reference={})  # type: ignore[arg-type]


class OnlyNaN(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x - 2).softmax(-1)


class OneNaN(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(-x.abs())


@pytest.mark.parametrize("partitioner", [[], "xnnpack"])
def test_a_weight_that_holds_nan_is_carried(partitioner: Any) -> None:
    """No operator made it: neither the one that turns the weight, nor the delegate that reads it."""
    linear = torch.nn.Linear(8, 8)
    model = torch.nn.Sequential(linear, torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()
    with torch.no_grad():
        linear.weight[2, 3] = torch.nan
    found = etviz.debug(model, (torch.randn(2, 8),), partitioner or None)
    assert set(found.gaps["non_finite"]) - {""} == {"carried"}
    assert "created" not in found.summary()


def test_outputs_without_a_finite_element_are_not_called_good(tmp_path: Path) -> None:
    """They are alike in the reference and the runtime, but nobody wants them."""
    found = etviz.debug(OnlyNaN(), (torch.tensor([[1.0, 3.0, 4.0]]),), partitioner=[], workdir=tmp_path)
    assert found.analysis.digest.level == "warn"
    assert found.analysis.digest.verdict == "The final output matches the reference, but no element is finite in both."
    assert found.gaps["non_finite"].tolist()[-2:] == ["created", "carried"]
    whole = etviz.debug(OneNaN(), (torch.ones(3),), "xnnpack", workdir=tmp_path / "whole")
    finding = whole.analysis.finder.finding()
    assert finding is not None
    assert finding.text == "No value that was compared has an element that is finite on both sides."
