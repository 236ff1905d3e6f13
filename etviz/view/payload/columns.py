"""Label, group, format and initial visibility of each column of the gap table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from etviz.tensors.metrics import METRICS, Metric


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    label: str
    format: str
    group: str
    description: str
    better: str | None = None
    thresholds: tuple[float, float] | None = None
    visible: bool = False

    @property
    def kind(self) -> str:
        return "text" if self.format in ("text", "code") else "number"


_FORMATS: Final = {"dB": "db", "share": "percent", "ulp": "int"}
_SHOWN: Final = {"severity", "rmse", "sqnr_db", "max_abs", "introduced_severity"}
_OPERATOR: Final = (
    Column(
        "op",
        "operator",
        "code",
        "operator",
        "The kernel that the runtime executes, or the operators inside a delegate.",
        visible=True,
    ),
    Column("instruction", "#", "int", "operator", "Instruction id, in program order."),
    Column("row", "row", "code", "operator", 'Name of the row, here and in Python: inspection.row("#22").'),
    Column("kind", "kind", "text", "operator", "kernel: portable operator; delegate: a backend's call."),
    Column("backend", "backend", "text", "operator", "The backend that a delegate runs on.", visible=True),
    Column(
        "reference_ops",
        "reference operators",
        "code",
        "operator",
        "The operators of the exported program that this value comes from.",
    ),
    Column("output", "output", "int", "operator", "Which output of the instruction."),
    Column("shape", "shape", "code", "operator", "Shape of the value."),
    Column("dtype", "dtype", "code", "operator", "Element type at runtime."),
    Column("module", "module", "code", "operator", "Path of the nn.Module that called it.", visible=True),
    Column("source", "source", "code", "operator", "File and line in the model's code.", visible=True),
    Column("debug_handles", "debug handles", "code", "operator", "Debug handles of its operators."),
    Column("run", "run", "int", "operator", "Number of the execution, as run= in Python."),
    Column("input_index", "input", "int", "operator", "Which of the inputs was run."),
    Column(
        "pairing",
        "pairing",
        "text",
        "status",
        "exact: the value of the same node; handles: by debug handle, a group of operators.",
    ),
    Column("status", "status", "text", "status", "Whether and how this value was compared."),
    Column("reason", "reason", "text", "status", "Why it was not compared."),
    Column("latency_ms", "latency", "ms", "latency", "Mean time of the instruction.", "low", visible=True),
)
_NONFINITE: Final = (
    Column(
        "non_finite",
        "NaN / Inf",
        "text",
        "non-finite",
        "created: finite runtime inputs, non-finite outputs; carried: both; lost: only the inputs (a hidden NaN).",
    ),
    Column("reference_nan", "reference NaN", "int", "non-finite", "NaN elements in the reference."),
    Column("reference_inf", "reference Inf", "int", "non-finite", "Infinite elements in the reference."),
    Column("runtime_nan", "runtime NaN", "int", "non-finite", "NaN elements at runtime."),
    Column("runtime_inf", "runtime Inf", "int", "non-finite", "Infinite elements at runtime."),
    Column(
        "introduced_non_finite",
        "introduced NaN / Inf",
        "int",
        "non-finite",
        "Elements that the operator itself made, or left, NaN or Inf where its own value is not.",
    ),
)


_NOISE: Final = (
    Column(
        "noise",
        "noise",
        "metric",
        "noise",
        "Measured RMSE that rounding alone makes here; NaN where the floor of the precision explains the error.",
    ),
    Column(
        "introduced_noise", "introduced noise", "metric", "noise", "The same for what this instruction itself added."
    ),
)


def _metric_column(metric: Metric, prefix: str = "") -> Column:
    name = prefix + metric.name
    text = metric.name.replace("_db", "").replace("_", " ")
    label = ("introduced" if text == "severity" else f"introduced {text}") if prefix else text
    about = f"{metric.description} {metric.formula}".strip()
    if prefix:
        about = f"The error that this instruction added, on the runtime's own inputs: {about}"
    return Column(
        name,
        label.replace("sqnr", "SQNR").replace("psnr", "PSNR").replace("ulp", "ULP"),
        _FORMATS.get(metric.unit, "metric"),
        "introduced" if prefix else "metric",
        about,
        "high" if metric.higher_is_better else "low",
        metric.thresholds.get("float32"),
        name in _SHOWN,
    )


def table_columns() -> tuple[Column, ...]:
    metrics = [METRICS["severity"], *(m for m in METRICS.values() if m.name != "severity")]
    introduced = [_metric_column(metric, "introduced_") for metric in metrics]
    total = [_metric_column(metric) for metric in metrics]
    return (*_OPERATOR[:2], *introduced[:1], *total, *_OPERATOR[2:], *introduced[1:], *_NOISE, *_NONFINITE)
