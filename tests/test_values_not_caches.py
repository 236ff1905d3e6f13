"""What a member returns belongs to the caller: changing it changes no other answer, and no order of asking matters."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot

import etviz
from etviz.inspection import Inspection, Row
from tests.programs import Executed

Ask = Callable[[Inspection], Any]
ROW = 1
MEMBERS: dict[str, Ask] = {
    "methods": lambda item: item.methods,
    "gaps": lambda item: item.gaps,
    "coverage": lambda item: item.coverage,
    "outputs": lambda item: item.outputs,
    "run_outputs": lambda item: item.run_outputs,
    "delegation": lambda item: item.delegation,
    "format_delegated_graph": lambda item: item.format_delegated_graph(),
    "tree": lambda item: repr(item.tree),
    "time": lambda item: [item.time.latency, item.time.events, item.time.ledger()],
    "events": lambda item: item.events,
    "introduced": lambda item: item.introduced,
    "first_divergence": lambda item: item.first_divergence,
    "summary": lambda item: item.summary(),
    "diagnosis": lambda item: item.diagnosis(look_inside=False),
    "worst": lambda item: item.worst(),
    "tensors": lambda item: item.tensors(ROW),
    "attribution": lambda item: item.attribution(),
    "what_if": lambda item: item.what_if(ROW).outputs,
    "module_total": lambda item: item.module_total(next(name for name in item.gaps["module"] if name)),
    "against": lambda item: of_another(item.against("edge")),
    "ladder": lambda item: item.ladder(),
    "repro": lambda item: written(lambda folder: item.repro(ROW, folder / "repro")),
    "plot": lambda item: drawn(item),
    "export": lambda item: written(lambda folder: exported(item, folder)),
    "to_html": lambda item: report(item),
}
INSIDE: dict[str, Ask] = {
    "zoom": lambda item: of_another(item.zoom(delegate_of(item))),
    "look_inside": lambda item: [of_another(inner) for inner in item.look_inside()],
}
"""They change the object: the rows inside a delegate are known from then on."""
OF_A_ROW: dict[str, Callable[[Row], Any]] = {
    "reference": lambda row: row.reference,
    "runtime": lambda row: row.runtime,
    "inputs": lambda row: row.inputs,
    "stack": lambda row: row.stack,
    "constants": lambda row: row.constants,
    "note": lambda row: row.note,
    "histogram": lambda row: row.histogram(),
    "error_map": lambda row: row.error_map(),
    "channels": lambda row: row.channels(),
    "scatter": lambda row: row.scatter(),
    "fingerprints": lambda row: row.fingerprints(force=True),
}
MEMBERS |= {f"row.{name}": lambda item, ask=ask: ask(item.row(ROW)) for name, ask in OF_A_ROW.items()}
QUANTIZED: dict[str, Ask] = {"quantization": lambda item: item.quantization(), "ladder": MEMBERS["ladder"]}
ASKED_ELSEWHERE = {"method", "row", "compute_introduced"}
"""Members that give another object, or change the object on purpose."""
OF_A_ROW_ELSEWHERE = {"name", "zoom", "what_if", "repro"}
"""They call the Inspection's."""


def of_another(item: Inspection) -> list[Any]:
    """What another object says."""
    return [item.gaps, item.coverage, item.outputs, item.summary()]


def delegate_of(item: Inspection) -> int:
    return int(item.gaps.index[item.gaps["kind"] == "delegate"][0])


def written(write: Callable[[Path], object]) -> dict[str, bytes]:
    """The files that a member writes, by name."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder)
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def exported(item: Inspection, folder: Path) -> None:
    item.export.chrome_trace(folder / "trace.json")
    item.export.model_explorer(folder / "model.json")
    item.export.tensors(folder / "tensors")
    item.export.svg(folder / "graph.svg")
    item.export.figures(folder / "figures", n=1)


def report(item: Inspection) -> bytes:
    """Without its date. It shows the shares that were asked for last."""
    item.attribution()
    (page,) = written(lambda folder: item.to_html(folder / "report.html")).values()
    return re.sub(rb"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", b"", page)


def drawn(item: Inspection) -> list[Any]:
    """The pixels of each figure; what a caller draws over it is the caller's."""
    axes = [item.plot.gaps(), item.plot.steps()]
    axes += [draw(ROW) for draw in (item.plot.histogram, item.plot.error_map, item.plot.channels, item.plot.scatter)]
    found = []
    for each in axes:
        figure: Any = each.get_figure()
        figure.canvas.draw()
        found.append(np.asarray(figure.canvas.buffer_rgba()).copy())
        pyplot.close(figure)
    return found


def kept(value: Any) -> Any:
    """A value that does not share memory with what was given, and can be compared."""
    match value:
        case torch.Tensor():
            return "tensor", tuple(value.shape), value.detach().clone().reshape(-1).view(torch.uint8).numpy().tobytes()
        case np.ndarray():
            return "array", value.shape, value.tobytes()
        case pd.DataFrame():
            columns = {str(name): kept(value[name]) for name in value}
            return "frame", kept(list(value.index)), columns, str(value.dtypes.to_dict())
        case pd.Series():
            return "series", kept(list(value.index)), [kept(item) for item in value]
        case Mapping():
            return {str(key): kept(item) for key, item in value.items()}
        case list() | tuple():
            return [kept(item) for item in value]
        case float():
            return float(value).hex()
        case _ if dataclasses.is_dataclass(value):
            return {field.name: kept(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return repr(value)


def parts(value: Any) -> list[Any]:
    """What a value holds."""
    if isinstance(value, pd.DataFrame):
        return [item for name in value for item in value[name]]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, pd.Series)):
        return list(value)
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return []


def spoil(value: Any) -> None:
    """Change a value, and what it holds, wherever it can be changed."""
    for item in parts(value):
        spoil(item)
    if isinstance(value, torch.Tensor):
        value.detach().zero_()
    elif isinstance(value, np.ndarray) and value.flags.writeable and value.dtype.kind in "fiub":
        value[...] = 0
    elif isinstance(value, (pd.DataFrame, pd.Series)):
        value.iloc[:] = value.iloc[::-1].to_numpy()
        value.index = [f"spoiled {at}" for at in range(len(value))]
        for name in list(value)[1:] if isinstance(value, pd.DataFrame) else []:
            del value[name]
    elif isinstance(value, (dict, list)):
        value.clear()
    elif dataclasses.is_dataclass(value):
        with contextlib.suppress(dataclasses.FrozenInstanceError):
            for field in dataclasses.fields(value):
                setattr(value, field.name, None)


def test_every_member_is_asked() -> None:
    public = {name for name in vars(Inspection) if not name.startswith("_")}
    asked = MEMBERS | INSIDE | QUANTIZED
    assert public == {name for name in asked if "." not in name} | ASKED_ELSEWHERE
    assert {name for name in vars(Row) if not name.startswith("_")} == set(OF_A_ROW) | OF_A_ROW_ELSEWHERE


@pytest.fixture(scope="module")
def encoder(executed: Callable[[str], Executed]) -> Executed:
    return executed("many_outputs")


@pytest.fixture(scope="module")
def fresh(encoder: Executed) -> dict[str, Any]:
    """The answers of objects that were asked nothing else."""
    return {name: kept(ask(encoder.load())) for name, ask in MEMBERS.items()}


@pytest.mark.parametrize("order", [1, -1])
def test_answers_do_not_depend_on_what_was_asked_or_changed_before(
    encoder: Executed, fresh: dict[str, Any], order: int
) -> None:
    assert differences(encoder.load(), MEMBERS, fresh, order) == []
    assert etviz.metrics


@pytest.mark.parametrize(("program", "members"), [("encoder", MEMBERS | INSIDE), ("digits_int8", QUANTIZED)])
def test_answers_after_a_zoom_do_not_depend_on_order(
    program: str, members: dict[str, Ask], executed: Callable[[str], Executed]
) -> None:
    first, other = (executed(program).load() for _ in range(2))
    for item in (first, other):
        item.look_inside()
        item.zoom(delegate_of(item))
    answers = {name: kept(ask(first)) for name, ask in members.items()}
    assert differences(other, members, answers, -1) == []


def differences(item: Inspection, members: dict[str, Ask], answers: dict[str, Any], order: int) -> list[str]:
    """The members of an object that give other answers, in an order, and again after each answer was changed."""
    names, wrong = list(members)[::order], []
    for name in names:
        answer = members[name](item)
        if kept(answer) != answers[name]:
            wrong.append(f"{name} depends on what was asked before")
        spoil(answer)
    return wrong + [f"{name} was changed by a caller" for name in names if kept(members[name](item)) != answers[name]]


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2),
        np.ones(2),
        pd.DataFrame({"a": [1, 2], "b": [[1], [2]]}),
        pd.Series([1, 1]),
        {"a": {"b": 1}},
        [[1], [2]],
    ],
)
def test_a_shared_value_is_noticed(value: Any) -> None:
    before = kept(value)
    assert kept(value) == before
    spoil(value)
    assert kept(value) != before
