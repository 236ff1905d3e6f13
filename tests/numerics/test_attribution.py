"""Shares of the final error: their sum, an independent computation, and where there is no gradient."""

from __future__ import annotations

import copy
import json
import math
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import etviz
from etviz.errors import UsageError
from etviz.evaluation.limits import Limits
from etviz.explain.attribution import linearize, shares
from etviz.explain.attribution.affine_end import affine_end
from etviz.explain.attribution.differences import dot, largest_of, narrowed
from etviz.explain.attribution.float64 import Float64, functions
from etviz.explain.attribution.linearize import Linearizer
from etviz.graph.ir import Graph, Input, Meta, Node, Ref
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from etviz.view.payload.program_payload import build_payload
from etviz.view.widget.jobs import Jobs
from etviz.view.widget.state import ViewState
from tests.programs import Executed

FLOAT = ("encoder", "plain_cnn", "residual_cnn", "counter", "branches", "channels_last")


@pytest.mark.parametrize("name", FLOAT)
def test_shares_add_up_to_the_whole_error(name: str, executed: Callable[[str], Executed]) -> None:
    inspection = executed(name).load()
    found = inspection.attribution()
    assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-3)
    assert found["share"].sum() == pytest.approx(found.attrs["sum"])
    assert sorted(found.index) == list(inspection.gaps.index)
    assert found["share"].abs().is_monotonic_decreasing
    assert set(found["method"]) == {"gradient"}
    same = inspection.gaps.loc[found.index]
    for column in ("instruction", "output", "op", "module"):
        assert (found[column] == same[column]).all()


def test_shares_are_what_each_operator_causes(executed: Callable[[str], Executed]) -> None:
    """Against the program written down in plain torch: what an operator added is put in there, in float64."""
    program = executed("plain_cnn")
    inspection = program.load()
    gaps = inspection.gaps
    runtime = {int(gaps["instruction"][i]): inspection.tensors(i)[1].double() for i in gaps.index[gaps["output"] == 0]}
    steps = _steps(program.model)
    exact = program.inputs[0].double()

    def final(instruction: int = -1) -> Tensor:
        x = before = exact
        for number, step in steps.items():
            added = runtime[number] - step(before) if number == instruction else 0.0
            x, before = step(x) + added, runtime[number]
        return x

    reference = final()
    error = runtime[8] - reference
    found = inspection.attribution(0)
    assert found.attrs["error"] == pytest.approx(float(error.norm()), rel=1e-6)
    for number in steps:
        effect = float(((final(number) - reference) * error).sum() / (error * error).sum())
        share = found.loc[(found["instruction"] == number) & (found["output"] == 0), "share"].item()
        assert share == pytest.approx(effect, abs=1e-4), number


def _steps(model: nn.Module) -> dict[int, Callable[[Tensor], Tensor]]:
    model = copy.deepcopy(model).double().eval().requires_grad_(False)
    features, head = model.get_submodule("features"), model.get_submodule("head")
    assert isinstance(features, nn.Sequential)
    steps: dict[int, Callable[[Tensor], Tensor]] = {number: features[number] for number in range(6)}
    return steps | {7: lambda x: head(x.flatten(1)), 8: lambda x: torch.log_softmax(x, -1)}


def test_attribution_of_a_loss(executed: Callable[[str], Executed]) -> None:
    inspection = executed("plain_cnn").load()
    target = torch.tensor([1, 3])
    found = inspection.attribution(loss=lambda outputs: nn.functional.nll_loss(outputs[0], target))
    assert found.attrs["output"] is None
    assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-3)
    assert inspection.analysis.attributions.last is None
    of_output = inspection.attribution()
    assert not np.allclose(found["share"].sort_index(), of_output["share"].sort_index())


def test_arguments_that_make_no_sense(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").load()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"output": 1}, "output must be from 0 to 0, found 1"),
        ({"output": True}, "found True"),
        ({"run": 1}, "run must be from 0 to 0, found 1"),
        ({"loss": lambda outputs: outputs[0]}, r"scalar tensor, found a tensor of shape \(1, 3\)"),
        ({"loss": lambda outputs: 1.0}, "found float"),
        ({"loss": lambda outputs: outputs[0].argmax().double()}, "differentiable"),
    ]
    for arguments, message in cases:
        with pytest.raises(UsageError, match=message):
            inspection.attribution(**arguments)


def test_outputs_are_selectable(executed: Callable[[str], Executed]) -> None:
    inspection = executed("many_outputs").load()
    for output, row in inspection.outputs.iterrows():
        found = inspection.attribution(int(str(output)))
        assert found.attrs["outputs"][int(str(output))].endswith(row["dtype"])
        if row["dtype"] == "float32":
            assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-3)
        else:
            assert found.attrs["error"] == 0.0
            assert "no error to attribute" in found.attrs["note"]
            assert (found["share"] == 0).all()


def test_nonfinite_elements_are_left_out_and_it_is_said(executed: Callable[[str], Executed]) -> None:
    found = executed("poisoned").load().attribution(0)
    assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-3)
    assert "NaN or Inf" in found.attrs["note"]
    assert found["reason"].str.contains("non-finite elements left out").any()


def test_where_rounding_hides_the_gradient(executed: Callable[[str], Executed]) -> None:
    """A quantized program is no linear one: differences are put in one by one where derivatives explain too little."""
    found = executed("digits_int8").load().attribution()
    assert found.attrs["sum"] == pytest.approx(1.0, abs=0.05)
    assert set(found["method"]) <= {"gradient", "straight-through", "patch"}
    if "patch" in set(found["method"]):
        assert "one after the other" in found.attrs["note"]


class Deep(nn.Module):
    """Two instructions a round."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.rounds):
            x = torch.sin(x) + x
        return x


@pytest.mark.parametrize("rounds", [5, shares.PASSES])
def test_differences_put_in_one_after_the_other_add_up(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program that is linear within its error they give what derivatives give, whatever is put in together."""
    model, inputs = Deep(rounds), (torch.rand(1, 64),)
    expected = etviz.debug(model, inputs).attribution()
    assert set(expected["method"]) == {"gradient"}
    collect = vars(shares)["_collect"]

    def bad_estimates(result: shares.Attribution, *rest: Any) -> None:
        collect(result, *rest)
        result.shares = {key: replace(share, value=0.9 * share.value) for key, share in result.shares.items()}

    monkeypatch.setattr(shares, "_collect", bad_estimates)
    found = etviz.debug(model, inputs).attribution()
    assert "patch" in set(found["method"])
    assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-6)
    together = found["reason"].str.contains("others at a time")
    assert together.any() == (rounds > 5)
    alone = found.index[~together]
    assert len(alone) > 1
    assert found["share"][alone].to_numpy() == pytest.approx(expected["share"][alone].to_numpy(), abs=0.01)


class Guarded(nn.Module):
    """Nine values are only compared, and the comparisons come out the same whatever their errors are."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cos(x)
        for shift in range(9):
            y = torch.where(torch.sin(x + shift) > -5.0, y, 0.0)
        return y


def test_errors_that_end_at_a_comparison(tmp_path: Path) -> None:
    found = etviz.debug(Guarded().eval(), (torch.linspace(-2, 2, 64)[None],), workdir=tmp_path).attribution()
    assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-3)
    assert set(found["method"]) == {"gradient"}
    compared = found[found["op"].str.contains("sin")]
    assert len(compared) == 9
    assert (compared["share"] == 0.0).all()
    assert compared["reason"].str.contains("does not reach the output").any()


def test_executions_follow_one_another(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """What an earlier execution left in a buffer is no fault of the instruction that reads it."""
    program = executed("counter")
    inputs = [[torch.randn(3, 4)] for _ in range(3)]
    execute(program.path("pte"), inputs, workdir=tmp_path)
    inspection = etviz.load(
        tmp_path / "etdump.etdp",
        debug_buffer=tmp_path / "debug_buffer.bin",
        inputs=[tuple(item) for item in inputs],
        etrecord=program.path("etrecord"),
        pte=program.path("pte"),
    )
    notes = []
    for run in range(3):
        found = inspection.attribution(run=run)
        assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-3)
        blocks = inspection.gaps["event_block"].unique()
        assert set(inspection.gaps.loc[found.index, "event_block"]) == set(blocks[: run + 1])
        assert found["share"].sum() == pytest.approx(1.0, abs=1e-3)
        notes.append(found.attrs["note"])
    assert ["carried over from earlier calls" in note for note in notes] == [False, True, True]


class Saturating(nn.Module):
    """What earlier calls left is right up to rounding; the weight is not."""

    seen: Tensor
    weight: Tensor

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.register_buffer("weight", torch.full((6,), weight))
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(torch.sigmoid(x))
        return torch.tanh(self.seen) * self.weight


def test_a_share_at_the_level_of_rounding_is_none(tmp_path: Path) -> None:
    for name, weight in (("right", 1.0), ("wrong", 2.0)):
        (tmp_path / name).mkdir()
        lower(Saturating(weight), (torch.ones(6),), tmp_path / name)
    inputs = [(torch.randn(6, generator=torch.Generator().manual_seed(seed)),) for seed in range(3)]
    ran = execute(tmp_path / "wrong" / "model.pte", [list(item) for item in inputs], workdir=tmp_path)
    names = {"pte": "model.pte", "record": "model.etviz", "etrecord": "etrecord.bin"}
    files: dict[str, Any] = {name: tmp_path / "right" / file for name, file in names.items()}
    found = etviz.load(ran.etdump, debug_buffer=ran.debug_buffer, inputs=inputs, **files).attribution(run=2)
    earlier = found[found["run"] < 2]
    assert 0 < earlier["share"].abs().sum() < 1e-5
    assert "carried over" not in found.attrs["note"]


def jobs_of(inspection: etviz.Inspection, send: Callable[[dict[str, Any]], None]) -> Jobs:
    """The jobs of a view, which sends its messages to `send`."""
    state = ViewState(inspection.analysis)

    def attribute(params: dict[str, Any], progress: Callable[[int, int], None], _: threading.Event) -> dict[str, Any]:
        state.attribute(params, progress)
        return {}

    return Jobs(lambda: inspection.analysis, send, {"attribution": attribute})


def test_views_get_the_shares(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").load()
    assert build_payload(inspection.analysis)[0]["attribution"] is None
    messages: list[dict[str, Any]] = []
    jobs = jobs_of(inspection, messages.append)
    jobs.start("7", "attribution", {"output": 0})
    assert jobs.wait(120)
    assert {"id": "7", "result": {"ok": True}} in messages
    steps = [message for message in messages if message.get("event") == "progress"]
    assert steps[-1]["done"] == steps[-1]["total"]
    payload, buffers = build_payload(inspection.analysis)
    column = next(item for item in payload["columns"] if item["name"] == "attribution")
    values = np.frombuffer(buffers[column["values"]["buffer"]])
    assert payload["attribution"]["sum"] == pytest.approx(1.0, abs=1e-3)
    np.testing.assert_array_equal(values, inspection.attribution(0)["share"].sort_index())


def test_views_are_told_what_would_become_of_the_outputs(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").load()
    messages: list[dict[str, Any]] = []
    jobs = jobs_of(inspection, messages.append)
    worst = int(inspection.worst(1).index[0])
    jobs.start("9", "what_if", {"rows": [worst]})
    assert jobs.wait(120)
    told = next(message for message in messages if message.get("id") == "9")["result"]
    assert json.loads(json.dumps(told, allow_nan=False))["rows"] == [worst]
    found = inspection.what_if(worst)
    for at, output in enumerate(told["outputs"]):
        assert output["before"] == found.before["rmse"].iloc[at]
        assert output["after"] == found.after["rmse"].iloc[at]
        if output["top1"] is not None:
            assert output["top1"][2] == int(found.outputs[at].argmax())
    jobs.start("10", "what_if", {"rows": "all"})
    assert jobs.wait(60)
    assert messages[-1]["error"]["type"] == "UsageError"


def test_a_view_can_cancel(executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").load()
    messages: list[dict[str, Any]] = []
    started = threading.Event()

    def send(message: dict[str, Any]) -> None:
        messages.append(message)
        if message.get("event") == "progress":
            started.set()
            jobs.cancel()

    jobs = jobs_of(inspection, send)
    jobs.start("8", "attribution", {"output": 0})
    assert started.wait(60)
    assert jobs.wait(60)
    assert messages[-1]["error"]["type"] == "CancelledError"
    assert inspection.analysis.attributions.last is None


class EnoughError(Exception):
    """What a progress function raises."""


@pytest.mark.parametrize("part", [0.1, 0.9])
def test_it_can_be_stopped_on_the_way_forward_and_back(part: float, executed: Callable[[str], Executed]) -> None:
    inspection = executed("encoder").load()
    seen: list[tuple[int, int]] = []
    inspection.analysis.attribution(0, 0, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
    last = int(part * len(seen))
    inspection, told = executed("encoder").load(), 0

    def stop(done: int, total: int) -> None:
        nonlocal told
        told += 1
        if told == last:
            raise EnoughError

    with pytest.raises(EnoughError):
        inspection.analysis.attribution(0, 0, progress=stop)
    assert told == last
    assert inspection.analysis.attributions.last is None


def test_first_divergence(executed: Callable[[str], Executed]) -> None:
    """Rounding is no divergence; a NaN that the runtime alone makes is one."""
    assert executed("encoder").inspection.first_divergence is None
    assert "First divergence: none" in executed("encoder").inspection.summary()
    poisoned = executed("poisoned").inspection
    found = poisoned.first_divergence
    assert found is not None
    assert found["status"] == "non-finite mismatch"
    fact = next(fact for fact in poisoned.analysis.digest.facts if fact.label == "First divergence")
    assert fact.row == found.name
    assert fact.level == "bad"


class Assigning(nn.Module):
    """Writes into a slice, which is exported as `aten.copy`: torch has no derivative of that."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(x)
        y[:, 1:3] = torch.exp(x[:, :2])
        return torch.cumsum(y * 3, -1)


def test_slice_assignment_has_shares(tmp_path: Path) -> None:
    inspection = etviz.debug(Assigning(), (torch.randn(4, 5),), workdir=tmp_path)
    assert any("copy.out" in op for op in inspection.gaps["op"])
    found = inspection.attribution()
    assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-2)
    # An ETRecord's graph names the arguments that an emitted one gives by position.
    files: dict[str, Any] = {"etrecord": tmp_path / "etrecord.bin", "debug_buffer": tmp_path / "debug_buffer.bin"}
    with pytest.raises(UsageError, match="needs the operators of each instruction"):
        etviz.load(tmp_path / "etdump.etdp", **files).attribution()


@pytest.mark.parametrize("name", ["digits_int8", "branches", "counter"])
def test_differences_that_follow_one_another_as_if_each_run_began_anew(
    name: str, executed: Callable[[str], Executed]
) -> None:
    """Several go on side by side where weights are dequantized; the outputs are the same to the bit."""
    replay = executed(name).load().analysis.tables.compared.replay
    assert replay is not None
    evaluator, execution = replay.fresh(), replay.executions[0]
    float64 = Float64(evaluator.constants, evaluator.limits)
    found = Linearizer(evaluator.graph, float64).run(execution.inputs, execution.logged)
    items = [item for item in found.contributions if item.size]
    assert len(items) > 1
    odd = replace(items[-1], difference=torch.zeros(1, 2, 3, 4, 5), replacement=None)
    patches = shares.Patches(float64, evaluator.graph, execution.inputs, {})
    given = [*([item] for item in items[:-1]), [odd], [items[-1]]]
    *before, refused, last = patches.add(given)
    assert refused is None
    for at, outputs in enumerate([*before, last]):
        anew = shares.patched(float64, evaluator.graph, execution.inputs, {}, items[: at + 1])
        assert outputs is not None
        assert all(torch.equal(a, b) for a, b in zip(outputs, anew, strict=True))


def test_several_are_evaluated_side_by_side_where_that_saves_dequantizing(executed: Callable[[str], Executed]) -> None:
    """One call of `finish` for all of them, a call for each elsewhere."""
    for name, side_by_side in (("digits_int8", True), ("counter", False)):
        replay = executed(name).load().analysis.tables.compared.replay
        assert replay is not None
        assert (shares._together(replay.fresh().graph) > 1) is side_by_side  # pyright: ignore[reportPrivateUsage]


class Products(TorchDispatchMode):
    """Counts the products with weights by precision."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[torch.dtype] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("addmm", "mm", "convolution", "convolution_backward"):
            self.counts[args[0].dtype] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["encoder", "residual_cnn"])
def test_each_product_is_computed_once_in_float64(name: str, executed: Callable[[str], Executed]) -> None:
    """The runtime's lane and the derivative take one product in float32 at most."""
    inspection = executed(name).load()
    replay = inspection.analysis.tables.compared.replay
    assert replay is not None
    graphs = [inspection.analysis.graph, *inspection.analysis.graph.subgraphs.values()]
    targets = [node.target.split(".")[1] for graph in graphs for node in graph.nodes if "." in node.target]
    number = sum(target in ("addmm", "linear", "convolution", "mm") for target in targets)
    assert number > 3
    with Products() as products:
        found = shares.attribute(replay, 0)
    assert found.sum == pytest.approx(1.0, abs=1e-4)
    assert products.counts[torch.float64] == number
    assert 0 < products.counts[torch.float32] <= 2 * number


@pytest.mark.parametrize("name", ["encoder", "plain_cnn"])
def test_what_arrives_at_an_affine_end_need_not_be_evaluated(
    name: str, executed: Callable[[str], Executed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against each difference by itself."""
    replay = executed(name).load().analysis.tables.compared.replay
    assert replay is not None
    whole: list[int] = []
    run = Linearizer.run

    def counted(self: Linearizer, *args: Any, **kwargs: Any) -> Any:
        whole.append(len((found := run(self, *args, **kwargs)).whole))
        return found

    monkeypatch.setattr(Linearizer, "run", counted)
    found = shares.attribute(replay, 0)
    assert len(whole) == 1
    assert whole[0] > 0
    monkeypatch.setattr(linearize, "affine_end", lambda *_: None)
    other = shares.attribute(replay, 0)
    assert whole[1:] == [0]
    assert found.shares.keys() == other.shares.keys()
    for key, share in other.shares.items():
        assert found.shares[key].value == pytest.approx(share.value, abs=1e-6)
        assert found.shares[key].method == share.method


def test_where_derivatives_do_not_explain_the_error_each_difference_is_evaluated(
    executed: Callable[[str], Executed], monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = executed("encoder").load().analysis.tables.compared.replay
    assert replay is not None
    expected = shares.attribute(replay, 0)
    leave = linearize.Contribution.leave
    monkeypatch.setattr(linearize.Contribution, "leave", lambda self, other, g: leave(self, other, g * math.nan))
    found = shares.attribute(replay, 0)
    for key, share in expected.shares.items():
        assert found.shares[key].value == pytest.approx(share.value, abs=1e-6)


def test_affine_ends() -> None:
    def end(*nodes: Node, results: tuple[str, ...] = ("last",)) -> tuple[set[str], set[str], set[str]] | None:
        inputs = [Input("x", "user", ""), Input("y", "user", ""), Input("w", "constant", "w")]
        inner = Graph("inner", inputs=inputs, nodes=list(nodes), outputs=[*map(Ref, results)])
        call = Node("call", "delegate", (Ref("a"), Ref("b")), subgraphs=("inner",))
        found = affine_end(Graph("outer", nodes=[call], subgraphs={"inner": inner}), call, frozenset("ab"))
        return None if found is None else ({*found.nodes}, {*found.values}, {*found.given})

    def linear(name: str, of: str, weight: str = "w") -> Node:
        return Node(name, "aten.linear.default", (Ref(of), Ref(weight), None))

    gelu = Node("gelu", "aten.gelu.default", (Ref("first"),))
    total = Node("last", "aten.add.Tensor", (Ref("second"), Ref("y")))
    assert end(linear("first", "x"), gelu, linear("second", "gelu"), total) == (
        {"second", "last"},
        {"gelu"},
        {"b"},
    )
    assert end(linear("last", "x")) == ({"last"}, set(), {"a"})
    assert end(linear("last", "x", "y")) is None, "both factors differ"
    assert end(linear("first", "x"), Node("last", "aten.gelu.default", (Ref("first"),))) is None, (
        "no product at the end"
    )
    other = Node("last", "aten.mul.Tensor", (Ref("first"), Ref("x")))
    assert end(linear("first", "x"), other) is None
    both = Node("last", "aten.add.Tensor", (Ref("first"), Ref("gelu")))
    assert end(linear("first", "x"), Node("gelu", "aten.gelu.default", (Ref("x"),)), both) is None, (
        "x is read elsewhere"
    )
    assert end(linear("first", "x"), linear("last", "y"), results=("first", "last")) is None, "two outputs"


def test_affine_ends_of_random_delegates_are_affine() -> None:
    """The output follows from what enters, and moves twice as far if that does."""
    torch.manual_seed(0)
    weight, found = torch.randn(4, 4, dtype=torch.float64), 0
    rules: dict[str, Callable[..., Tensor]] = {
        "aten.linear.default": lambda x: x @ weight.T,
        "aten.gelu.default": nn.functional.gelu,
        "aten.permute_copy.default": lambda x: x.T,
        "aten.add.Tensor": torch.add,
        "aten.sub.Tensor": torch.sub,
        "aten.mul.Tensor": torch.mul,
    }
    random, inputs = np.random.default_rng(0), [Input(name, "user", "") for name in "xy"]
    for _ in range(1200):
        names, nodes = ["x", "y"], list[Node]()
        for at in range(random.integers(1, 8)):
            target = str(random.choice([*rules]))
            read = [Ref(str(random.choice(names[-4:]))) for _ in range(1 + target.endswith("Tensor"))]
            extra: tuple[Any, ...] = (Ref("w"), None) if target == "aten.linear.default" else ()
            nodes.append(Node(f"n{at}", target, (*read, *extra), outputs=(Meta("float32", (4, 4)),)))
            names.append(f"n{at}")
        inner = Graph("inner", [*inputs, Input("w", "constant", "w")], nodes, [Ref(names[-1])])
        call = Node("call", "delegate", (Ref("a"), Ref("b")), subgraphs=("inner",))
        end = affine_end(Graph("outer", nodes=[call], subgraphs={"inner": inner}), call, frozenset("ab"))
        if end is None:
            continue
        found += 1
        entering = end.values | {{"a": "x", "b": "y"}[name] for name in end.given}
        values = {name: torch.randn(4, 4, dtype=torch.float64) for name in entering}
        moves = {name: torch.randn(4, 4, dtype=torch.float64) for name in entering}

        outputs: list[Tensor] = []
        for far in (0.0, 1.0, 2.0):
            env = {name: value + far * moves[name] for name, value in values.items()}
            for node in nodes:
                if node.name in end.nodes:
                    given = [env[leaf.name] for leaf in node.args if leaf is not None and leaf.name != "w"]
                    env[node.name] = rules[node.target](*given)
            outputs.append(env[nodes[-1].name])
        torch.testing.assert_close(outputs[2] - outputs[0], 2 * (outputs[1] - outputs[0]))
    assert found > 50


@pytest.mark.parametrize("values", [[], [-3.0, 2.0], [1.0, -math.inf], [math.nan, 1.0], [-math.inf, math.nan]])
def test_the_largest_magnitude_is_that_of_the_norm(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float64)
    expected = float(torch.linalg.vector_norm(tensor, math.inf)) if values else 0.0
    assert largest_of(tensor) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("special", [1.0, math.nan, math.inf, 1e200])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_differences_are_torchs(
    dtype: torch.dtype, turned: bool, special: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = torch.randn(3, 40, 1500, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    base, x, gradient = drawn.mT if turned else drawn
    x = base + 1e-6 * x
    x[7, 9] = special

    def both() -> list[float]:
        found, alone = narrowed(x.to(dtype), base), narrowed(x.to(dtype).double())
        assert found.value is not None
        sums = [dot(gradient, found.value), found.norm, found.of_base, found.largest, alone.norm, alone.largest]
        return [*sums, *found.value.flatten().tolist()]

    compiled, _ = both(), monkeypatch.setattr("etviz.native._library", lambda: None)
    assert compiled == pytest.approx(both(), rel=1e-10, nan_ok=True)


@pytest.mark.parametrize("factor", [1.0, 1e-30, 1e60])
@pytest.mark.parametrize("function", ["gelu", "exp", "tanh", "reciprocal"])
def test_derivatives_in_float32_are_those_in_float64(function: str, factor: float) -> None:
    x = torch.linspace(-90.0, 95.0, 300, dtype=torch.float64).requires_grad_()
    gradient = factor * torch.randn(300, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    forward = getattr(torch.ops.aten, function).default
    expected = torch.autograd.grad(forward(x), x, gradient)[0]
    found = torch.autograd.grad(functions()[2].apply(x, forward), x, gradient)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7 * factor)


@pytest.mark.parametrize("images", [1, 2])
def test_the_gradient_through_a_batch_norm_whose_result_is_permuted(images: int) -> None:
    """torch reads a permuted gradient of one image as if it was contiguous."""
    torch.manual_seed(0)
    variance, weight = torch.rand(16) + 0.2, torch.rand(16) + 0.5
    statistics = {"weight": weight, "bias": torch.randn(16), "mean": torch.randn(16), "variance": variance}
    norm = "aten._native_batch_norm_legit_no_training.default"
    nodes = [
        Node("norm", norm, (Ref("x"), *map(Ref, statistics), 0.1, 1e-5)),
        Node("first", "getitem", (Ref("norm"), 0)),
        Node("flat", "aten.view_copy.default", (Ref("first"), [images, 16, 25])),
        Node("turned", "aten.permute_copy.default", (Ref("flat"), [0, 2, 1])),
    ]
    constants = [Input(name, "constant", name) for name in statistics]
    graph = Graph("forward", [Input("x", "user", ""), *constants], nodes, [Ref("turned")])
    x = torch.randn(images, 16, 5, 5, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        (turned,) = Float64(statistics, Limits()).call(graph, [x])
    gradient = torch.randn(images, 25, 16, dtype=torch.float64)
    found = torch.autograd.grad(turned, x, gradient)[0]
    expected = gradient * weight.double() / (variance.double() + 1e-5).sqrt()
    torch.testing.assert_close(found, expected.mT.reshape(x.shape))


class Summed(nn.Module):
    """Products in three delegates, with sums between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(48, 48, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).cumsum(-1)
        return x


@pytest.mark.parametrize("size", [1e-18, 1.0, 1e18])
def test_shares_of_small_and_large_values_add_up(size: float) -> None:
    torch.manual_seed(0)
    inspection = etviz.debug(Summed(), (size * torch.randn(4, 48),), partitioner=[XnnpackPartitioner()])
    assert (inspection.gaps["kind"] == "delegate").sum() == 3
    assert inspection.attribution().attrs["sum"] == pytest.approx(1.0, abs=1e-3)
