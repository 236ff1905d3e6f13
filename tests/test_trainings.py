"""Files of two trainings of one model: calls, names and shapes agree, and yet each mixture is noticed."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch import Tensor, nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerAxis, PerGroup, quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.utils import unwrap_tensor_subclass

import etviz
from etviz.errors import ArtifactError, UsageError
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import Lowered, lower

NAMES = {
    "etdump": "etdump.etdp",
    "debug_buffer": "debug_buffer.bin",
    "pte": "model.pte",
    "record": "model.etviz",
    "etrecord": "etrecord.bin",
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


@pytest.fixture(scope="module", params=["portable", "xnnpack"])
def trainings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of both."""
    found = {}
    for seed, letter in enumerate("AB"):
        torch.manual_seed(seed)
        found[letter] = tmp_path_factory.mktemp(f"{request.param}-{letter}")
        partitioner = [XnnpackPartitioner()] if request.param == "xnnpack" else None
        with torch.random.fork_rng():
            etviz.debug(Net().eval(), (torch.ones(3, 6),), partitioner=partitioner, workdir=found[letter])
    return found


def load(trainings: dict[str, Path], folder: Path, chosen: dict[str, str]) -> etviz.Inspection:
    files: dict[str, Any] = {}
    for kind, letter in chosen.items():
        if letter != "-":
            files[kind] = shutil.copy(trainings[letter] / NAMES[kind], folder / f"{kind}.file")
    return etviz.load(**files, inputs=(torch.ones(3, 6),))


def test_every_mixture_is_refused_or_named(trainings: dict[str, Path], tmp_path: Path) -> None:
    silent = []
    for pte, record, etrecord in itertools.product("-AB", repeat=3):
        chosen = {"etdump": "A", "debug_buffer": "A", "pte": pte, "record": record, "etrecord": etrecord}
        by_handles = pte == record == "-"
        numbers = {pte, etrecord} - {"-"}  # a record refers to the weights in the ETRecord
        if "B" not in numbers or etrecord == "-" or by_handles:
            continue
        try:
            said = load(trainings, tmp_path, chosen).summary()
        except ArtifactError as error:
            said = str(error)
        if not any(text in said for text in ("other weights", "training", "checksums differ")):
            silent.append(chosen)
    assert not silent


def test_files_of_one_training_are_not_doubted(trainings: dict[str, Path], tmp_path: Path) -> None:
    for pte, record in itertools.product("-A", repeat=2):
        found = load(
            trainings,
            tmp_path,
            {"etdump": "A", "debug_buffer": "A", "pte": pte, "record": record, "etrecord": "A"},
        )
        assert "weights" not in found.summary()
        assert not found.gaps.empty


@dataclass(frozen=True)
class Static:
    """A static int8 model, and the ETRecord of the program that was lowered from it."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    etrecord: Path

    def load_with(self, name: str, change: float | Tensor, folder: Path) -> etviz.Inspection:
        """The ETRecord with the run of a program in which the named tensor is multiplied by `change`."""
        tensor = dict([*self.model.named_parameters(), *self.model.named_buffers()])[name]
        right = tensor.detach().clone()
        with torch.no_grad():
            tensor.mul_(change)
            try:
                lowered = lower(self.model, self.inputs, folder, partitioner=[XnnpackPartitioner()])
            finally:
                tensor.copy_(right)
        return self.run(lowered, folder)

    def load_with_grid(
        self, operator: str, place: int, change: float, folder: Path, argument: int = 0
    ) -> tuple[etviz.Inspection, Any]:
        """The run of a program with another scale (`place` 1) or zero point (2) of an operator's argument.

        Returns also what that was.
        """
        program = torch.export.export(self.model, self.inputs)
        reader: Any = next(node for node in program.graph.nodes if node.name == operator)
        dequantize = reader.args[argument]
        right = dequantize.args[place]
        for node in (dequantize, dequantize.args[0]) if dequantize.args[0].op == "call_function" else (dequantize,):
            node.update_arg(place, right * change if place == 1 else right + int(change))
        program.graph_module.recompile()
        lowered = lower(program, self.inputs, folder, partitioner=[XnnpackPartitioner()])
        (folder / "model.etviz").unlink()  # it has the other grid
        return self.run(lowered, folder), right

    def run(self, lowered: Lowered, folder: Path) -> etviz.Inspection:
        run = execute(lowered.pte, [self.inputs], workdir=folder)
        assert run.etdump is not None
        return etviz.load(
            run.etdump,
            debug_buffer=run.debug_buffer,
            pte=folder / "model.pte",
            etrecord=self.etrecord,
            inputs=self.inputs,
        )


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Static:
    torch.manual_seed(0)
    return _quantized(Net(), (torch.randn(5, 6),), tmp_path_factory)


def _quantized(net: nn.Module, inputs: tuple[Tensor, ...], tmp_path_factory: pytest.TempPathFactory) -> Static:
    prepared = prepare_pt2e(
        torch.export.export(net.eval(), inputs).module(),
        XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True)),
    )
    prepared(*inputs)
    model = convert_pt2e(prepared)
    lowered = lower(model, inputs, tmp_path_factory.mktemp("right"), partitioner=[XnnpackPartitioner()])
    assert lowered.etrecord is not None
    return Static(model, inputs, lowered.etrecord)


@pytest.mark.parametrize(("change", "said"), [(0.0, "first.bias is 0 everywhere"), (0.5, "first.bias"), (1.0, "")])
def test_the_integer_bias_of_a_static_layer_is_compared(
    change: float, said: str, static: Static, tmp_path: Path
) -> None:
    """A wrong one may hide below the noise of the layer's grids, and is in both files all the same."""
    found = static.load_with("first.bias", change, tmp_path)
    constants = [str(item) for item in found.analysis.tables.constants]
    assert len(constants) == bool(said)
    assert all(item.startswith(said) for item in constants), constants


def test_other_steps_of_a_weight_are_named_not_the_bias_that_is_counted_in_them(static: Static, tmp_path: Path) -> None:
    found = static.load_with("_scale_0", 1.05, tmp_path)
    (steps,) = found.analysis.tables.constants
    assert str(steps).startswith("_scale_0 is ×1.05, in whose steps first.bias is counted"), "its numbers are right"
    assert steps.rel_l2 == pytest.approx(0.05, rel=1e-4)
    assert "linear (another quantization of its filter)." in found.zoom(0).summary(), "the bias counts in these steps"


def test_a_scale_that_changed_in_the_program_alone_is_named_not_its_bias(static: Static, tmp_path: Path) -> None:
    """The whole numbers of the bias are as before."""
    lowered = lower(static.model, static.inputs, tmp_path, partitioner=[XnnpackPartitioner()])
    scales = dict(static.model.named_buffers())["_scale_0"].numpy()
    data = lowered.pte.read_bytes()
    assert data.count(scales.tobytes()) == 1
    lowered.pte.write_bytes(data.replace(scales.tobytes(), (scales / 4).tobytes()))
    (tmp_path / "model.etviz").unlink()  # it knows the program's checksum
    found = static.run(lowered, tmp_path)
    (steps,) = found.analysis.tables.constants
    assert str(steps).startswith("_scale_0 is ×0.25, in whose steps first.bias is counted")
    finding = found.analysis.finder.finding()
    assert finding is not None
    assert "introduced it" in finding.text, "the operator says more than its grid"
    assert "; in the .pte, _scale_0 is ×0.25, in whose steps first.bias is counted" in finding.text


def test_another_grid_of_an_activation_is_named_not_the_bias_that_is_counted_in_it(
    static: Static, tmp_path: Path
) -> None:
    found, scale = static.load_with_grid("linear_1", 1, 1.3, tmp_path)
    (grid,) = found.analysis.tables.constants
    assert str(grid) == "the scale of relu is ×1.3"
    assert grid.max_abs == pytest.approx(0.3 * scale, rel=1e-5)
    assert "the .pte holds other quantization grids than the reference" in found.summary().lower()
    assert "linear_1 (another quantization of its input1)" in found.zoom(found.worst(1).index[0]).summary()


def test_a_quantized_form_is_given_out_as_a_program_that_computes_the_same(static: Static, tmp_path: Path) -> None:
    found = static.load_with("_scale_0", 1.0, tmp_path)
    program = found.export.exported_program("exported")
    expected = static.model(*static.inputs)
    (given,) = program.module()(*static.inputs)
    torch.testing.assert_close(given, expected, rtol=0, atol=0)


def test_another_zero_point_of_an_activation_is_named(static: Static, tmp_path: Path) -> None:
    found, zero = static.load_with_grid("linear_1", 2, 5, tmp_path)
    told = [str(item) for item in found.analysis.tables.constants]
    assert told == [f"the zero point of relu is {zero + 5} instead of {zero}".replace("-", "−")]


class Apart(nn.Module):
    """Two delegates, and between them an operator that XNNPACK lacks, on the first's two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        return self.second(y if self.inside else torch.sinh(y)) + torch.sinh(y)[:, :4]

    inside = True


@pytest.mark.parametrize("inside", [True, False])
def test_the_grid_of_what_a_delegate_takes_is_named_after_the_operator_that_makes_it(
    inside: bool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    torch.manual_seed(0)
    net = Apart()
    net.inside = inside
    static = _quantized(net, (torch.randn(5, 6),), tmp_path_factory)
    found, _ = static.load_with_grid("linear_1", 1, 1.3, tmp_path)
    maker = "relu" if inside else "sinh"
    assert {str(item) for item in found.analysis.tables.constants} == {f"the scale of {maker} is ×1.3"}
    assert f"Constants: differ from the reference's: the scale of {maker} is ×1.3\n" in found.summary()


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.randn(5, 6))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


def test_another_grid_of_a_constant_is_named(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(0)
    static = _quantized(Shifted(), (torch.randn(5, 6),), tmp_path_factory)
    found, _ = static.load_with_grid("add", 1, 1.3, tmp_path, argument=1)
    assert [str(item) for item in found.analysis.tables.constants] == ["the scale of _frozen_param0 is ×1.3"]


def test_other_steps_of_a_weight_without_a_bias_are_named(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    torch.manual_seed(0)
    static = _quantized(nn.Sequential(nn.Linear(6, 8, bias=False)), (torch.randn(5, 6),), tmp_path_factory)
    (steps,) = static.load_with("_scale_0", 1.05, tmp_path).analysis.tables.constants
    assert steps.change == "_scale_0 is ×1.05, in whose steps 0.weight is counted"
    assert steps.rel_l2 == pytest.approx(0.05, rel=1e-4)


@pytest.mark.parametrize("kind", ["8da4w", "dynamic"])
def test_other_steps_of_a_layer_whose_input_is_quantized_at_run_time(kind: str, tmp_path: Path) -> None:
    """Its whole numbers are the same: the steps of groups, or of channels, tell that a row is another one."""
    width: Any = getattr(torch, "int4" if kind == "8da4w" else "int8")
    granularity = PerGroup(32) if kind == "8da4w" else PerAxis(0)
    how = Int8DynamicActivationIntxWeightConfig(weight_dtype=width, weight_granularity=granularity)
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    for name, factor in (("right", 1.0), ("wrong", 4.0)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 96, bias=False)).requires_grad_(False)
        model.get_parameter("0.weight")[3] *= factor
        quantize_(model, how)
        (tmp_path / name).mkdir()
        etviz.debug(model, (x,), "xnnpack", workdir=tmp_path / name)
    for name, row in (("right", None), ("wrong", 3)):
        files: dict[str, Any] = {kind: tmp_path / name / NAMES[kind] for kind in ("etdump", "debug_buffer", "pte")}
        found = etviz.load(**files, etrecord=tmp_path / "right" / NAMES["etrecord"])
        told = [str(item) for item in found.analysis.tables.constants]
        assert len(told) == (row is not None)
        which = "row 3" if kind == "8da4w" else r"element \(3, 0\)"
        assert all(re.match(rf"{which} of \S+ is ×4, in whose steps", text) for text in told)


@pytest.mark.parametrize("kind", ["8da4w", "dynamic"])
@pytest.mark.parametrize("change", [0.0, 0.5, torch.inf])
def test_a_float_bias_of_a_layer_whose_input_is_quantized_at_run_time(kind: str, change: float, tmp_path: Path) -> None:
    width: Any = getattr(torch, "int4" if kind == "8da4w" else "int8")
    granularity = PerGroup(32) if kind == "8da4w" else PerAxis(0)
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    for name, added in (("right", 0.0), ("wrong", change)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 32)).requires_grad_(False)
        model.get_parameter("2.bias")[7] += added
        quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=width, weight_granularity=granularity))
        (tmp_path / name).mkdir()
        etviz.debug(model, (x,), "xnnpack", workdir=tmp_path / name)
    files: dict[str, Any] = {item: tmp_path / "wrong" / NAMES[item] for item in ("etdump", "debug_buffer", "pte")}
    found = etviz.load(**files, etrecord=tmp_path / "right" / NAMES["etrecord"])
    told = [difference.change for difference in found.analysis.tables.constants]
    assert len(told) == bool(change)
    assert all(text.startswith("element 7 of 2.bias is ") for text in told), told


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_reference_that_torchao_quantized(wrapped: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 32)).requires_grad_(False)
    width: Any = getattr(torch, "int4")  # noqa: B009 - pyright does not know it
    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=width, weight_granularity=PerGroup(32)))
    model, inputs = model if wrapped else unwrap_tensor_subclass(model), (torch.randn(5, 64),)
    lowered = lower(model, inputs, tmp_path, partitioner=[XnnpackPartitioner()])
    assert lowered.etrecord is not None
    run = execute(lowered.pte, [inputs], workdir=tmp_path)
    assert run.etdump is not None
    found = etviz.load(
        run.etdump, debug_buffer=run.debug_buffer, pte=lowered.pte, etrecord=lowered.etrecord, inputs=inputs
    )
    if wrapped:
        with pytest.raises(UsageError, match="unwrap_tensor_subclass"):
            found.against(model)
    else:
        assert found.against(model).outputs["matches"].all()


def test_elements_of_a_bias_that_are_rounded_otherwise_are_no_difference(static: Static, tmp_path: Path) -> None:
    right = static.model.get_parameter("first.bias")
    change = torch.where(torch.arange(right.numel()) == 2, 0.5, 1.0)
    found = static.load_with("first.bias", change, tmp_path)
    (bias,) = found.analysis.tables.constants
    assert (bias.name, bias.differing, bias.elements) == ("first.bias", 1, right.numel())
    assert bias.max_abs == pytest.approx(abs(float(right[2].detach())) / 2, rel=1e-2)


def test_another_bias_of_a_static_layer_is_named_in_the_zoom(static: Static, tmp_path: Path) -> None:
    found = static.load_with("first.bias", 0.5, tmp_path)
    assert "linear (another bias)." in found.zoom(0).summary()


class Chain(nn.Module):
    """A few operators, each a kernel of its own."""

    def __init__(self, length: int, width: int, slope: float = 0.1) -> None:
        super().__init__()
        self.length, self.slope = length, slope
        self.register_buffer("scale", torch.linspace(0.5, 2.0, width).repeat(3, 1))

    def forward(self, x: Tensor) -> Tensor:
        taken = (torch.cumsum(x, 1)[:, :1] * self.get_buffer("scale")).flip(1)
        for _ in range(self.length):
            taken = torch.nn.functional.leaky_relu(taken, self.slope)
        return taken.sum(1)


def _chain(model: nn.Module, folder: Path) -> Path:
    etviz.debug(model.eval(), (torch.randn(3, 6, generator=torch.Generator().manual_seed(0)),), workdir=folder)
    return folder


def _mixed(run: Path, told: Path) -> etviz.Inspection:
    etdump, values = run / NAMES["etdump"], run / NAMES["debug_buffer"]
    return etviz.load(etdump, etrecord=told / NAMES["etrecord"], debug_buffer=values)


def test_an_etrecord_whose_calls_did_not_run_is_refused(tmp_path: Path) -> None:
    run, longer = (_chain(Chain(length, 4), tmp_path / str(length)) for length in (2, 3))
    assert _mixed(run, run).first_divergence is None
    says = (
        r"another program than .*3/etrecord\.bin \(instruction \d+ calls nothing in the one and a kernel in the other"
    )
    with pytest.raises(ArtifactError, match=says):
        _mixed(run, longer)


def test_an_etrecord_whose_outputs_have_other_sizes_is_refused(tmp_path: Path) -> None:
    class Kept(Chain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).unsqueeze(0)

    class Flat(Chain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).unsqueeze(1)

    run, other = (_chain(kind(2, 4), tmp_path / kind.__name__) for kind in (Kept, Flat))
    assert _mixed(run, run).first_divergence is None
    with pytest.raises(ArtifactError, match=r"an output gives sizes \(1, 3\) in the one and \(3, 1\) in the other"):
        _mixed(run, other)


def test_no_operator_is_blamed_where_the_etrecord_has_other_sizes(tmp_path: Path) -> None:
    """The same instructions and sizes of outputs: only a size in between tells, and a pass may have changed that."""
    run, same = (_chain(Chain(2, width), tmp_path / str(width)) for width in (4, 5))
    found = _mixed(run, same)
    assert found.first_divergence is None
    verdict, *facts = found.summary().splitlines()
    assert verdict == "Final outputs were not compared: they most likely have another program's reference."
    said = r"Instruction \d+ \(\w+\) gives the sizes \(3, 4\), its operator \(3, 5\) in .*5/etrecord\.bin: most likely"
    assert re.match(said, facts[-1])
    assert set(found.gaps["reason"]) == {"the ETRecord is most likely that of another program"}


@pytest.mark.parametrize("partitioner", [None, [XnnpackPartitioner()]], ids=["portable", "xnnpack"])
def test_a_pte_tells_other_sizes_inside_delegates_too(tmp_path: Path, partitioner: Any) -> None:
    """Inside a delegate no value is logged, but its payload knows the sizes of its layers."""
    for width in (8, 12):
        torch.manual_seed(width)
        model = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 4)).eval()
        etviz.debug(model, (torch.ones(3, 6),), partitioner=partitioner, workdir=tmp_path / str(width))
        (tmp_path / str(width) / NAMES["record"]).unlink()
    run: dict[str, Any] = {kind: tmp_path / "8" / NAMES[kind] for kind in ("etdump", "debug_buffer", "pte")}
    sound = etviz.load(**run, etrecord=tmp_path / "8" / NAMES["etrecord"])
    assert "matches the reference" in sound.summary()
    found = etviz.load(**run, etrecord=tmp_path / "12" / NAMES["etrecord"])
    assert found.first_divergence is None
    verdict, *facts = found.summary().splitlines()
    assert verdict.startswith("Final outputs were not compared: they most likely have another program's reference")
    wide = r"\((?:3, 8|6, 8)\), its operator .*\((?:3, 12|6, 12)\)"
    said = rf"Instruction 0 (\(\w+\)|has a layer that) gives the sizes {wide}.* in .*12/etrecord\.bin: most likely"
    assert re.match(said, facts[-1]), facts
    assert "pte=" not in facts[-1], "it was given"


def test_other_sizes_with_the_same_results_are_no_reason_to_say_less(tmp_path: Path) -> None:
    """A cache of another size holds the same values; so does a row that is longer by zeros."""

    class Padded(nn.Module):
        def __init__(self, room: int) -> None:
            super().__init__()
            self.room = room

        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.pad(x, (0, self.room)).amax(1)

    run, same = (_chain(Padded(room), tmp_path / str(room)) for room in (2, 4))
    found = _mixed(run, same)
    assert "matches the reference" in found.summary()
    assert "another program" not in found.summary()
