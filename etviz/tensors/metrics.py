"""The metrics and their computation from the sums of one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from etviz.errors import UsageError

NAN: Final = math.nan
FALSE_ALARMS: Final = 1e-5
"""Probability that a correct value is named."""
THRESHOLD: Final = 3.0
"""Severity threshold beyond which arithmetic does not explain a difference, for every value and dtype.

The error of three or more independent elements exceeds 3 times its noise with a probability below `FALSE_ALARMS` (χ²
distribution); for fewer elements the noise is wider.
"""
SEVERE: Final = 10.0
"""Severity that rounding never reaches, even if the law underestimates it threefold; tables show it in red."""
BY_LAW, MEASURED, AT_LEAST = "law", "measured", "at least"
"""Sources of a noise: by law for one operator, from perturbed evaluations, or as a lower bound.

The bound suffices if the severity is below the threshold.
"""


class Noise(float):
    """The error that a correct implementation may have: an RMS in the value's units, with its source `how`.

    `how` is empty if the noise is unknown (NaN).
    """

    __slots__ = ("how",)
    how: str

    def __new__(cls, value: float = NAN, how: str = "") -> Noise:
        noise = super().__new__(cls, value)
        noise.how = how
        return noise


UNKNOWN: Final = Noise()
NO_NOISE: Final = Noise(0.0, BY_LAW)


@dataclass(frozen=True, slots=True)
class Metric:
    """One measure of the distance of a runtime tensor from its reference.

    Attributes
    ----------
    formula
        With ``r`` the reference, ``q`` the runtime value, ``d = q − r``, over the finite pairs.
    unit
        ``""``, ``"dB"``, ``"ulp"`` or ``"share"``.
    thresholds
        By dtype: the values from which a gap deserves attention, and from which it is most likely a fault.
    function, preprocessing, reduce
        Of a registered metric, as `Metrics.register` takes them; None for built-in ones.
    """

    name: str
    formula: str
    description: str
    higher_is_better: bool = False
    unit: str = ""
    thresholds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    function: Callable[[Any, Any], Any] | None = None
    preprocessing: Callable[[Any], Any] | None = None
    reduce: str | None = None


REDUCTIONS: Final = ("mean", "sum", "max")


class Metrics(dict[str, Metric]):
    """All metrics by name, in column order of `Inspection.gaps`: built-in ones, then registered ones."""

    def __init__(self, built_in: Iterable[Metric]) -> None:
        super().__init__((metric.name, metric) for metric in built_in)
        self._elsewhere: set[str] = set()

    def register(
        self,
        name: str,
        function: Callable[[Any, Any], Any],
        *,
        higher_is_better: bool,
        unit: str = "",
        preprocessing: Callable[[Any], Any] | None = None,
        reduce: str | None = None,
        description: str = "",
    ) -> Metric:
        """Add a metric: one more column in every Inspection made from now on.

        If it raises, or returns anything but a real number, its cell is NaN and the row's `reason` says why. After a
        minute of work for one Inspection the remaining cells stay NaN. Other columns are unaffected.

        Parameters
        ----------
        name
            Of the column, a Python identifier. A registered metric of this name is replaced.
        function
            Takes the reference and the runtime value, two float64 torch tensors of one shape, and returns a number.
            With `reduce` it is elementwise and called on blocks: two 1-D float64 NumPy arrays of the elements that are
            finite in both; it returns an array of that size.
        higher_is_better
            Polarity: which end of the column is worst.
        unit
            ``"dB"``, ``"share"`` (shown in percent), ``"ulp"`` or any other text.
        preprocessing
            Applied to each of the two tensors, in their dtype, before `function`.
        reduce
            ``"mean"``, ``"sum"`` or ``"max"`` of an elementwise `function`; blocks bound the memory.
        description
            One sentence for people.

        Raises
        ------
        UsageError
            If the name is built in or no identifier, or an argument is invalid.

        Examples
        --------
        >>> import etviz
        >>> flips = etviz.metrics.register("flips", lambda r, q: ((r > 0) != (q > 0)).sum(), higher_is_better=False)
        >>> etviz.metrics["flips"].higher_is_better
        False
        >>> etviz.metrics.unregister("flips")
        """
        metric = custom_metric(name, function, higher_is_better, unit, preprocessing, reduce, description)
        self[name] = metric
        self._elsewhere.discard(name)
        return metric

    def introduce(self, metric: Metric) -> None:
        if metric.name not in self:
            self._elsewhere.add(metric.name)
        self[metric.name] = metric

    def unregister(self, name: str) -> None:
        """Remove a registered metric; existing Inspections keep its column.

        Raises `UsageError` if no metric of this name was registered.
        """
        if name not in self or name in BUILT_IN:
            known = ", ".join(self.registered) or "none"
            raise UsageError(f"no metric {name!r} was registered; registered are {known}")
        del self[name]

    @property
    def registered(self) -> dict[str, Metric]:
        """The metrics that were added in this session."""
        return {name: metric for name, metric in self.items() if name not in {*BUILT_IN, *self._elsewhere}}


def custom_metric(
    name: str,
    function: Callable[[Any, Any], Any],
    higher_is_better: bool,
    unit: str = "",
    preprocessing: Callable[[Any], Any] | None = None,
    reduce: str | None = None,
    description: str = "",
) -> Metric:
    if not isinstance(name, str) or not name.isidentifier():
        raise UsageError(f"the name of a metric must be a Python identifier, found {name!r}")
    if name in BUILT_IN or name.startswith("introduced_"):
        raise UsageError(f"{name!r} is a column already; choose another name")
    if name in TAKEN:
        raise UsageError(f"{name!r} is a column of gaps that is no metric; choose another name")
    for argument, given in (("function", function), ("preprocessing", preprocessing)):
        if not callable(given) and not (argument == "preprocessing" and given is None):
            raise UsageError(f"{argument} must be callable, found {type(given).__name__}")
    if not isinstance(higher_is_better, bool):
        raise UsageError(f"higher_is_better must be True or False, found {higher_is_better!r}")
    if reduce is not None and reduce not in REDUCTIONS:
        raise UsageError(f"reduce must be one of {', '.join(REDUCTIONS)} or None, found {reduce!r}")
    about = description or f"Registered: {getattr(function, '__name__', type(function).__name__)}."
    return Metric(name, "", about, higher_is_better, str(unit), {}, function, preprocessing, reduce)


def _by_dtype(
    f32: tuple[float, float], f16: tuple[float, float], bf16: tuple[float, float]
) -> dict[str, tuple[float, float]]:
    return {"float64": f32, "float32": f32, "float16": f16, "bfloat16": bf16}


METRICS: Final = Metrics(
    (
        Metric("mse", "Σd² / n", "Mean squared error.", False, "", _by_dtype((1e-6, 1e-4), (1e-4, 1e-2), (1e-3, 1e-1))),
        Metric("rmse", "√(Σd² / n)", "Root of the mean squared error, in the tensor's own units."),
        Metric("mean_abs", "Σ|d| / n", "Mean absolute error."),
        Metric("max_abs", "max |d|", "Largest absolute error."),
        Metric("l1", "Σ|d|", "Sum of absolute errors; grows with the number of elements."),
        Metric(
            "rel_l2",
            "‖d‖ / ‖r‖",
            "Error relative to the size of the reference (relative Frobenius norm).",
            False,
            "",
            _by_dtype((1e-4, 1e-2), (1e-2, 5e-2), (3e-2, 1e-1)),
        ),
        Metric(
            "sqnr_db",
            "10·log10(Σr² / Σd²)",
            "Signal-to-quantization-noise ratio; upstream calls it SNR. Identical tensors give inf.",
            True,
            "dB",
            _by_dtype((80.0, 40.0), (40.0, 26.0), (30.0, 20.0)),
        ),
        Metric(
            "psnr_db", "20·log10(max|r| / rmse)", "Peak signal-to-noise ratio. Identical tensors give inf.", True, "dB"
        ),
        Metric(
            "cosine",
            "Σr·q / (‖r‖·‖q‖)",
            "Cosine similarity: 1 for the same direction, blind to a scale factor.",
            True,
            "",
            _by_dtype((0.99999, 0.99), (0.999, 0.99), (0.99, 0.95)),
        ),
        Metric(
            "allclose",
            "share of |d| ≤ atol + rtol·|r|",
            "Share of elements within tolerance; elements that are non-finite in the same way count as close.",
            True,
            "share",
        ),
        Metric(
            "max_ulp",
            "max |ordinal(q) − ordinal(r)|",
            "Largest distance in units in the last place of the value's dtype; floating point only.",
            False,
            "ulp",
        ),
        Metric(
            "severity",
            "rmse / noise",
            "RMSE over the noise: the error that a correct implementation of the same precision may make. Below 3 "
            "arithmetic explains it. Comparable across operators of any scale, hence the default ranking.",
            False,
            "",
            _by_dtype(*[(THRESHOLD, SEVERE)] * 3) | {"quantized": (THRESHOLD, SEVERE)},
        ),
    )
)
metrics: Final = METRICS
BUILT_IN: Final = tuple(METRICS)
TAKEN: Final = frozenset(
    (
        *("event_block", "input_index", "instruction", "kind", "op", "backend", "output", "shape", "dtype"),
        *("reference_ops", "module", "source", "pairing", "noise", "reference_nan", "reference_inf", "runtime_nan"),
        *("runtime_inf", "non_finite", "latency_ms", "status", "reason", "stack", "close", "matches", "amplification"),
    )
)

EPS: Final = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Distance from 1 to the next larger number of each floating dtype (IEEE 754)."""

TOLERANCES: Final = {
    "float64": (1e-3, 1e-5),
    "float32": (1e-3, 1e-5),
    "float16": (1e-2, 1e-3),
    "bfloat16": (3e-2, 1e-2),
}
"""``(rtol, atol)`` of `allclose` by dtype; as in ExecuTorch's output verification for float32."""


@dataclass(slots=True)
class Sums:
    """Sums over the finite pairs of two tensors.

    `dd` = Σd², `ad` = Σ|d|, `max_d` = max|d|, `rr` = Σr², `qq` = Σq², `rq` = Σr·q, `max_r` = max|r|, `close` elements
    within tolerance, `max_ulp` (NaN for integers). `classes` counts elements by (reference, runtime) class: finite,
    +inf, −inf, NaN. `dd` is in units of `d_unit`², `rr`, `qq` and `rq` in units of `r_unit`²: 1 unless squares leave
    float64's range.
    """

    elements: int = 0
    count: int = 0
    dd: float = 0.0
    ad: float = 0.0
    max_d: float = 0.0
    rr: float = 0.0
    qq: float = 0.0
    rq: float = 0.0
    max_r: float = 0.0
    close: int = 0
    max_ulp: float = NAN
    d_unit: float = 1.0
    r_unit: float = 1.0
    classes: tuple[tuple[int, ...], ...] = ((0,) * 4,) * 4

    @property
    def mismatched(self) -> int:
        """Elements that are non-finite in only one of the two, or differently."""
        if self.count == self.elements:
            return 0
        return sum(n for i, row in enumerate(self.classes) for j, n in enumerate(row) if i != j)

    @property
    def runtime_is_nonfinite(self) -> bool:
        if self.count == self.elements:
            return False
        return any(any(row[1:]) for row in self.classes)

    def nonfinite(self) -> dict[str, int]:
        if self.count == self.elements:
            return dict.fromkeys(("reference_nan", "reference_inf", "runtime_nan", "runtime_inf"), 0)
        c = self.classes
        return {
            "reference_nan": sum(c[3]),
            "reference_inf": sum(c[1]) + sum(c[2]),
            "runtime_nan": sum(row[3] for row in c),
            "runtime_inf": sum(row[1] + row[2] for row in c),
        }


def evaluate(sums: Sums, dtype: str, scale: float | None = None) -> dict[str, float]:
    """Every metric from the sums of one pair; NaN without a finite pair, and for `max_ulp` of integers."""
    n = sums.count
    share = sums.close / sums.elements if sums.elements else 1.0
    if n == 0:
        empty = sums.elements == 0
        values = dict.fromkeys(BUILT_IN, 0.0 if empty else NAN)
        if empty:
            values |= {"sqnr_db": math.inf, "psnr_db": math.inf, "cosine": 1.0}
        return values | {"allclose": share, "max_ulp": sums.max_ulp if empty else NAN}
    rmse = math.sqrt(sums.dd / n) * sums.d_unit
    units = sums.d_unit / sums.r_unit if sums.d_unit != sums.r_unit else 1.0
    error, size = math.sqrt(sums.dd), math.sqrt(sums.rr)
    return {
        "mse": sums.dd / n * sums.d_unit * sums.d_unit,
        "rmse": rmse,
        "mean_abs": sums.ad / n,
        "max_abs": sums.max_d,
        "l1": sums.ad,
        "rel_l2": _ratio(error * units, size),
        "sqnr_db": _decibel(size, error, units),
        "psnr_db": _decibel(sums.max_r, rmse),
        "cosine": _cosine(sums),
        "allclose": share,
        "max_ulp": sums.max_ulp,
        "severity": severity(rmse, math.sqrt(sums.rr / n) * sums.r_unit, dtype, scale),
    }


def severity(rmse: float, rms: float, dtype: str, scale: float | None = None, noise: float = NAN) -> float:
    """RMSE over the noise; over its lower bound `unavoidable` if the noise is unknown."""
    return _ratio(rmse, unavoidable(dtype, rms, scale) if math.isnan(noise) else noise)


def severity_of(sums: Sums, dtype: str, scale: float | None = None, noise: float = NAN) -> float:
    if sums.count == 0:
        return 0.0 if sums.elements == 0 else NAN
    rmse = math.sqrt(sums.dd / sums.count) * sums.d_unit
    return severity(rmse, math.sqrt(sums.rr / sums.count) * sums.r_unit, dtype, scale, noise)


def floor(sums: Sums, dtype: str, scale: float | None = None) -> float:
    """`unavoidable` of a pair, NaN without a finite one."""
    if sums.count == 0:
        return NAN
    return unavoidable(dtype, math.sqrt(sums.rr / sums.count) * sums.r_unit, scale)


def level(metric: str, value: float, dtype: str, *, on_grid: bool = False) -> str:
    """Classify an error: ``ok``, ``warn`` or ``bad``; ``ok`` for NaN.

    Examples
    --------
    >>> level("severity", 2.9, "float32"), level("severity", 3.0, "float16"), level("severity", 50.0, "int8")
    ('ok', 'warn', 'bad')
    """
    least, most = limits(metric, dtype, on_grid=on_grid)
    sign = -1.0 if METRICS[metric].higher_is_better else 1.0
    if sign * value >= sign * most:
        return "bad"
    return "warn" if sign * value >= sign * least else "ok"


def figure(value: float, digits: int = 3, limit: float = THRESHOLD) -> str:
    """A number in so many significant digits, and in as many more as tell on which side of the limit it is.

    Examples
    --------
    >>> figure(2.345), figure(2.998), figure(3.00004), figure(3.0), figure(99.96, limit=100)
    ('2.35', '2.998', '3.00004', '3', '99.96')
    """
    text = f"{value:.{digits}g}"
    if math.isfinite(value) and ((float(text) < limit) != (value < limit) or (float(text) > limit) != (value > limit)):
        return figure(value, digits + 1, limit)
    return text


def limits(metric: str, dtype: str, *, on_grid: bool = False) -> tuple[float, float]:
    """Limits of ``warn`` and ``bad``; NaN if there are none."""
    precision = dtype if dtype in EPS and not on_grid else "quantized"
    return METRICS[metric].thresholds.get(precision, (NAN, NAN))


def unavoidable(dtype: str, rms: float, scale: float | None = None) -> float:
    """Lower bound of the noise: the error of rounding the value once, in its units.

    A quantization grid of step `scale` rounds with an RMS error of ``scale/√12`` (uniform rounding noise: B. Widrow,
    "Statistical analysis of amplitude-quantized sampled-data systems", 1961), floating point with ``ε/2·rms``. Integers
    and booleans without a grid never round.
    """
    if scale is not None:
        return abs(scale) / math.sqrt(12.0)
    return EPS[dtype] / 2 * rms if dtype in EPS else 0.0


def _ratio(error: float, unit: float) -> float:
    if error == 0.0:
        return 0.0
    return error / unit if unit > 0.0 else math.inf


def _decibel(signal: float, noise: float, unit: float = 1.0) -> float:
    if noise == 0.0:
        return math.inf
    if signal == 0.0:
        return -math.inf
    if not math.isfinite(signal) or not math.isfinite(noise):
        return NAN if not math.isfinite(noise) else math.inf
    return 20.0 * (math.log10(signal) - math.log10(noise) - math.log10(unit))


def _cosine(sums: Sums) -> float:
    if sums.dd == 0.0:
        return 1.0
    norm = math.sqrt(sums.rr) * math.sqrt(sums.qq)
    if not math.isfinite(norm):
        return NAN
    return max(-1.0, min(1.0, sums.rq / norm)) if norm > 0.0 else 0.0
