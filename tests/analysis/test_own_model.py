"""A model of the user's as the reference: faults of the exported program itself, which its own reference has too."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn
from torch.nn import functional
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_
from torchao.utils import unwrap_tensor_subclass

import etviz
from etviz.errors import EtvizError, UsageError

INPUTS = (torch.tensor([[1, 5, 7, 2]]),)


class Attention(nn.Module):
    """A small decoder block with one of several faults."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fault, self.embedding, self.norm = fault, nn.Embedding(32, 16), nn.LayerNorm(16)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.up, self.down, self.out = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 32)
        if fault == "columns":
            self.down.weight = nn.Parameter(self.down.weight.detach().roll(8, 1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        h = self.norm(x)
        query = self.query(h) * 1.1 if self.fault == "one more" else self.query(h)
        scores = query @ self.key(h).transpose(-1, -2) * (0.3 if self.fault == "scale" else 0.25)
        x = x + torch.softmax(scores, -2 if self.fault == "axis" else -1) @ self.value(h)
        h = torch.relu(self.up(x)) if self.fault == "activation" else functional.gelu(self.up(x))
        h = h if self.fault == "one fewer" else h * 0.5
        logits = self.out(x + self.down(h))
        return logits if self.fault == "no cap" else torch.tanh(logits / 0.5) * 0.5


FAULTS = {
    "": ("", ()),
    "scale": ("mul", ()),
    "axis": ("softmax", ()),
    "activation": ("relu", ()),
    "columns": ("linear_4", ()),
    "one more": ("mul", ("Without a partner in the reference: mul",)),
    "one fewer": ("gelu", ("Without a partner in the program: aten.mul.Tensor behind gelu",)),
    "no cap": ("linear_5", ("Without a partner in the program: aten.div.Tensor, aten.tanh.default, aten.mul.Tensor",)),
}


@pytest.fixture(scope="module")
def right() -> nn.Module:
    return Attention().eval()


@pytest.fixture(scope="module")
def run() -> Callable[..., etviz.Inspection]:
    """The run of a fault, shared by the tests, which ask for another reference and change nothing."""
    return functools.cache(lambda fault, recipe: etviz.debug(Attention(fault).eval(), INPUTS, recipe))


@pytest.mark.parametrize("recipe", ["portable", "xnnpack"])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_of_the_exported_program_is_found(
    right: nn.Module, run: Callable[..., etviz.Inspection], fault: str, recipe: str
) -> None:
    alone = run(fault, recipe)
    assert alone.first_divergence is None, "its own reference has the fault too"
    found = alone.against(right)
    name, notes = FAULTS[fault]
    first = found.first_divergence
    if not fault:
        assert first is None
        assert found.outputs["matches"].all()
        assert not (found.ladder()["status"] == "differs").any()
        return
    assert not found.outputs["matches"].any()
    assert first is not None
    assert name in str(first["reference_ops"]).split(", ")
    assert found.worst(1).index[0] in found.gaps.index[found.gaps["instruction"] == first["instruction"]]
    assert all(note in found.summary() for note in notes)
    ladder = found.ladder()
    differs = ladder[ladder["status"] == "differs"].iloc[0]
    assert (differs["operator"], differs["stage"], differs["against"]) == (name, "exported", "reference")
    proof = found.what_if(first)
    with torch.no_grad():
        assert float((proof.outputs[0] - right(*INPUTS)).abs().max()) < 1e-5
    assert proof.after["matches"].all()
    shares = found.attribution()
    assert shares.attrs["sum"] == pytest.approx(1, abs=0.05)
    assert shares.loc[shares.index == first.name, "share"].sum() == pytest.approx(1, abs=0.05)
    said = found.diagnosis()
    assert said["culprit"]["inside"] is None
    assert [step["text"] for step in said["next"]][-1].startswith("The program itself differs from the model")


class Router(nn.Module):
    """Of two results of one operator the first is overwritten, and the second is read after that."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.factor, self.gate, self.experts = factor, nn.Linear(8, 8), nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        share, expert = torch.topk(torch.softmax(self.gate(x), -1), 3)
        share /= share.sum(-1, keepdim=True)
        return share * self.factor * self.experts[expert]


def test_one_of_several_results_is_overwritten() -> None:
    inputs = (torch.randn(5, 8, generator=torch.Generator().manual_seed(0)),)
    run = etviz.debug(Router(1.0), inputs)
    assert run.against(Router(1.0)).outputs["matches"].all()
    first = run.against(Router(1.1)).first_divergence
    assert first is not None
    assert first["reference_ops"] == "mul"


class Best(nn.Module):
    """Reads both results of an operator, the first of them with a factor or without one."""

    def __init__(self, factor: float = 0.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        best, at = torch.topk(x, 3)
        return torch.exp(best * self.factor if self.factor else best) + at


def test_an_operator_between_one_of_several_results_and_its_reader_is_named() -> None:
    run = etviz.debug(Best(1.1), (torch.randn(5, 8, generator=torch.Generator().manual_seed(0)),))
    first = run.against(Best()).first_divergence
    assert first is not None
    assert first["reference_ops"] == "mul"


class Slots(nn.Module):
    """Reads two rows of a table at one position, or the second one at a wrong position."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fault, self.table = fault, nn.Parameter(torch.randn(8, 4))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        at = other = position[:1]
        if self.fault == "late":
            other = (position + 1)[:1]
        elif self.fault == "early":
            other = (position - 1).clamp(min=0)[:1]
        x = x * 0.5 if self.fault == "scale" else x.transpose(0, 1).transpose(0, 1)
        return x * self.table[at] * self.table[other].sum()


@pytest.mark.parametrize(("fault", "name"), [("late", "add"), ("early", "sub"), ("scale", "mul")])
def test_what_only_the_program_has_is_proved_through_readers_that_both_have(fault: str, name: str) -> None:
    """The reference reads what it is compared with by one operator, the program by two, or without a transpose."""
    found = etviz.debug(Slots(fault), (torch.randn(4, 4), torch.tensor([3, 5]))).against(Slots())
    first = found.first_divergence
    assert first is not None
    assert first["reference_ops"] == name
    assert found.what_if(first).after["matches"].all()
    shares = found.attribution()
    assert shares.loc[shares.index == first.name, "share"].sum() == pytest.approx(1, abs=0.05)


class Rounded(nn.Module):
    """Rounds each row onto a grid that it chooses at run time, as a quantized cache does."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        ops = torch.ops.quantized_decomposed
        scale, zero = ops.choose_qparams_per_token_asymmetric.default(x, torch.int8)
        rounded = scale * self.factor if self.factor != 1 else scale
        values = ops.quantize_per_token.default(x, rounded, zero, -128, 127, torch.int8)
        return ops.dequantize_per_token.default(values, scale, zero, -128, 127, torch.int8, torch.float32)


def test_the_scale_of_a_grid_that_is_chosen_at_run_time() -> None:
    inputs = (torch.randn(5, 8, generator=torch.Generator().manual_seed(0)),)
    right = etviz.debug(Rounded(), inputs).against(Rounded())
    assert right.first_divergence is None
    assert not right.gaps["introduced_rmse"][:-1].isna().any()
    found = etviz.debug(Rounded(1.1), inputs).against(Rounded())
    first = found.first_divergence
    assert first is not None
    assert first["reference_ops"] == "mul"
    assert found.what_if(first).after["matches"].all()


class Scaled(nn.Module):
    """Keeps scales that begin with ones, which the runtime begins with zeros: upstream leaves them out."""

    scales: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scales", torch.ones(4))
        self.register_buffer("values", torch.zeros(4))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        self.scales[at] = x.abs()
        self.values[at] = x.sign()
        return (self.scales + 0.0) * self.values


def test_a_torchao_model_need_not_be_unwrapped() -> None:
    """Its outputs are judged on the grids of the model, whose noise was measured."""
    torch.manual_seed(0)
    kept = nn.Sequential(nn.Linear(64, 64, bias=False), nn.LayerNorm(64), nn.Linear(64, 64, bias=False)).eval()
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=vars(torch)["int4"], weight_granularity=PerGroup(32))
    quantize_(kept.requires_grad_(False), config)
    weights = [type(parameter) for parameter in kept.parameters()]
    model, inputs = unwrap_tensor_subclass(copy.deepcopy(kept)), [(torch.randn(1, 64),) for _ in range(6)]
    run = etviz.debug(model, inputs, partitioner=[XnnpackPartitioner()])
    found = run.against(kept)
    assert weights == [type(parameter) for parameter in kept.parameters()]
    assert found.first_divergence is None
    assert found.outputs["matches"].all()
    with pytest.raises(UsageError, match="IntxUnpackedToInt8Tensor: give the model itself"):
        run.against(torch.export.export(kept, inputs[0]))


def test_a_state_begins_as_the_runtime_begins_it() -> None:
    calls = [(torch.tensor([0.5 + at]), torch.tensor([at])) for at in range(2)]
    found = etviz.debug(Scaled(), calls).against(Scaled())
    assert found.outputs["matches"].all()
    assert found.first_divergence is None


class Attending(nn.Module):
    """Attention in one operator or in several, with or without a rotation of the queries' halves."""

    def __init__(self, *, fused: bool = False, rotates: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fused, self.rotates = fused, rotates
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        if self.rotates:
            query = query + torch.cat((-query[..., 4:], query[..., :4]), -1)
        if self.fused:
            return self.out(functional.scaled_dot_product_attention(query, key, value))
        return self.out(torch.softmax(query @ key.transpose(-1, -2) * 8**-0.5, -1) @ value)


def test_other_operators_for_the_same_are_no_fault() -> None:
    inputs = (torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(0)),)
    found = etviz.debug(Attending(), inputs).against(Attending(fused=True))
    assert found.outputs["matches"].all()
    assert found.first_divergence is None
    turned = etviz.debug(Attending(rotates=True), inputs).against(Attending())
    assert "Without a partner in the reference:" in turned.summary()
    assert turned.first_divergence is not None
    assert turned.first_divergence["reference_ops"] == "add"


@pytest.mark.parametrize("isolation", ["never", "always"])
def test_from_files_and_by_one_argument(
    right: nn.Module, isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = etviz.debug(Attention("scale").eval(), INPUTS, workdir=tmp_path, reference=right)
    assert found.first_divergence is not None
    monkeypatch.setattr(etviz.options, "isolation", isolation)
    for reference in (right, torch.export.export(right, INPUTS)):
        loaded = etviz.load(tmp_path, inputs=INPUTS, reference=reference)
        assert loaded.first_divergence is not None
        assert loaded.first_divergence["reference_ops"] == "mul"
        assert loaded.first_divergence["instruction"] == found.first_divergence["instruction"]
        pair = loaded.tensors(loaded.first_divergence.name)
        assert not torch.equal(*pair)


class Cache:
    """The state of a decoder in a Python object, as transformers' StaticCache keeps it."""

    def __init__(self) -> None:
        self.length, self.keys = torch.tensor(0), torch.zeros(8, 16)

    def update(self, key: Tensor) -> tuple[Tensor, Tensor]:
        length = self.length.to(key.device)  # the tensor itself, for nothing changes
        at = torch.arange(key.shape[0]) + length
        length.add_(key.shape[0])
        self.keys.index_copy_(0, at, key)
        return self.keys, at


class Decoder(nn.Module):
    length: Tensor
    keys: Tensor

    def __init__(self, fault: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cache, self.fault, self.key, self.query = Cache(), fault, nn.Linear(16, 16), nn.Linear(16, 16)
        self.register_buffer("length", self.cache.length, persistent=False)
        self.register_buffer("keys", self.cache.keys, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        double = x.to(torch.float64)  # a copy, for the type changes
        double[:, 0].add_(1)
        keys, at = self.cache.update(self.key(x))
        scores = self.query(x) * self.fault @ keys.T
        return scores + at.unsqueeze(1) + self.length + double.to(torch.float32).sum()


@pytest.mark.parametrize("recipe", ["portable", "xnnpack"])
def test_what_a_call_overwrites_in_a_python_object_is_state(recipe: str) -> None:
    calls = [(row.unsqueeze(0),) for row in torch.randn(8, 16, generator=torch.Generator().manual_seed(1))]
    right, eager = Decoder(), Decoder()
    found = etviz.debug(Decoder(), calls, recipe, reference=right)
    assert int(right.length) == 0, "the reference is not changed"
    assert not right.keys.any()
    assert found.first_divergence is None
    assert found.outputs["matches"].all()
    runs = found.analysis.tables.compared.runs
    with torch.no_grad():
        for call, run in zip(calls, runs, strict=True):
            expected = run.comparison.reference_outputs[0]
            torch.testing.assert_close(expected, eager(*call), rtol=1e-4, atol=1e-4)
    broken = etviz.debug(Decoder(1.1), calls, recipe, reference=right).first_divergence
    assert broken is not None
    assert "mul" in str(broken["reference_ops"]).split(", ")


class Packed(nn.Module):
    """Finds where sequences begin, as transformers does for a batch that packs several."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        begins = torch.diff(position, prepend=position[:, :1] - 1, dim=-1) != 1
        return x * self.scale + begins.cumsum(-1).unsqueeze(-1)


def test_packed_sequences() -> None:
    inputs = (torch.randn(1, 6, 4), torch.tensor([[0, 1, 2, 0, 1, 2]]))
    assert etviz.debug(Packed(), inputs, reference=Packed()).first_divergence is None
    broken = etviz.debug(Packed(2.1), inputs, reference=Packed()).first_divergence
    assert broken is not None
    assert broken["reference_ops"] == "mul"


class WritesThrough(nn.Module):
    """An operator that overwrites what a permuted view shows, which etviz does not evaluate."""

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__()
        self.plain = plain

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        if self.plain:
            return y + 1
        y.t().add_(1)
        return y * 1


def test_an_operator_that_is_not_evaluated_is_named_with_where_it_comes_from(tmp_path: Path) -> None:
    inputs = (torch.randn(2, 3),)
    run = etviz.debug(WritesThrough(), inputs, workdir=tmp_path)
    plain = etviz.debug(WritesThrough(plain=True), inputs)
    says = r"The reference uses aten\.add_\.Tensor, which etviz does not evaluate"
    with pytest.raises(UsageError, match=f"^reference: {says}"):
        plain.against(WritesThrough())
    for reference in (WritesThrough(plain=True), "exported"):
        with pytest.raises(EtvizError, match=rf"^{tmp_path / 'model.etviz'}: .*{says}"):
            run.against(reference)


def test_logits_alone_give_a_verdict(right: nn.Module, run: Callable[..., etviz.Inspection]) -> None:
    alone = run("scale", "portable")
    with torch.no_grad():
        expected = right(*INPUTS)
    found = alone.against([expected])
    assert not found.outputs["matches"].any()
    logits = next(iter(alone.analysis.tables.compared.runs)).comparison.runtime_outputs[0]
    assert found.outputs["max_abs"][0] == pytest.approx(float((logits - expected).abs().max()))
    assert found.first_divergence is None
    assert found.gaps["rmse"].isna().all()
    with torch.no_grad():
        same = run("", "portable").against([right(*INPUTS)])
    assert same.outputs["matches"].all()


def test_what_can_not_be_compared_is_refused(run: Callable[..., etviz.Inspection]) -> None:
    found = run("", "portable")
    for reference, text in (
        (nn.Bilinear(3, 3, 3), "could not be exported"),
        ([torch.zeros(3)], "shape"),
        ([torch.zeros(1, 4, 32)] * 2, "outputs of 2 executions, the run has 1"),
        (3, "no execution 3; there are 1, .* the name of a stage, a model, its outputs"),
    ):
        with pytest.raises(UsageError, match=text):
            found.against(reference)


class Folded(nn.Module):
    """Scales rows, whose number is an input's size."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x.reshape(x.shape[0] * 2, 2) * self.factor)


def test_no_error_is_looked_for_in_a_size_or_a_view() -> None:
    inputs = (torch.randn(3, 4),)
    shapes = ({0: torch.export.Dim("rows", min=2, max=8)},)
    wrong, right = (torch.export.export(Folded(f), inputs, dynamic_shapes=shapes) for f in (1.1, 1.0))
    found = etviz.debug(wrong, inputs).against(right)
    assert "executorch_prim::mul.Scalar" in set(found.coverage["op"][found.coverage["status"] == "not compared"])
    finding = found.analysis.finder.finding()
    assert finding is not None
    assert "was not compared" not in finding.text
    assert "mul" in finding.text
