"""What a member returns belongs to the caller: changing it changes no other answer, and no order of asking matters."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

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
    "module_total": lambda item: item.module_total("blocks.0"),
}
OF_A_ROW: dict[str, Callable[[Row], Any]] = {
    "reference": lambda row: row.reference,
    "runtime": lambda row: row.runtime,
    "inputs": lambda row: row.inputs,
    "stack": lambda row: row.stack,
    "histogram": lambda row: row.histogram(),
    "error_map": lambda row: row.error_map(),
    "channels": lambda row: row.channels(),
    "scatter": lambda row: row.scatter(),
    "fingerprints": lambda row: row.fingerprints(force=True),
}
MEMBERS |= {f"row.{name}": lambda item, ask=ask: ask(item.row(ROW)) for name, ask in OF_A_ROW.items()}
ASKED_ELSEWHERE = {
    *("method", "row", "compute_introduced", "against", "ladder", "quantization", "zoom", "look_inside", "repro"),
    *("plot", "export", "to_html"),
}
"""Members that give another object, change the object on purpose, or write files."""


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
    assert public == {name for name in MEMBERS if "." not in name} | ASKED_ELSEWHERE
    assert {name for name in vars(Row) if not name.startswith("_")} <= set(OF_A_ROW) | {"name"} | ASKED_ELSEWHERE | {
        "what_if"
    }


@pytest.fixture(scope="module")
def encoder(executed: Callable[[str], Executed]) -> Executed:
    return executed("encoder")


@pytest.fixture(scope="module")
def fresh(encoder: Executed) -> dict[str, Any]:
    """The answers of objects that were asked nothing else."""
    return {name: kept(ask(encoder.load())) for name, ask in MEMBERS.items()}


@pytest.mark.parametrize("order", [1, -1])
def test_answers_do_not_depend_on_what_was_asked_or_changed_before(
    encoder: Executed, fresh: dict[str, Any], order: int
) -> None:
    inspection = encoder.load()
    names = list(MEMBERS)[::order]
    wrong = []
    for name in names:
        answer = MEMBERS[name](inspection)
        if kept(answer) != fresh[name]:
            wrong.append(f"{name} depends on what was asked before")
        spoil(answer)
    wrong += [f"{name} was changed by a caller" for name in names if kept(MEMBERS[name](inspection)) != fresh[name]]
    assert wrong == []
    assert etviz.metrics


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
