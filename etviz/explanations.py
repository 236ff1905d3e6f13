"""The part of an Inspection that says why numbers are off: each method hands over to a module of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from etviz.locating import Locating

if TYPE_CHECKING:
    import pandas as pd

    from etviz.numerics.attribution import Loss, Progress
    from etviz.numerics.quantization import Split
    from etviz.numerics.quantization_passes import RowSplit


class Explanations(Locating):
    """A part of `Inspection`."""

    @cached_property
    def _attributions(self) -> dict[tuple[int, int], pd.DataFrame]:
        """What was attributed, by ``(output, run)``; the last one is the one that views show."""
        return {}

    def attribution(self, output: int | None = None, loss: Loss | None = None, run: int = 0) -> pd.DataFrame:
        """Which share of a final output's error each instruction caused.

        An instruction's share is the part of the error that would be gone, to first order, if it had computed exactly
        what its inputs give. Shares may be negative where errors cancel. The reference is evaluated in float64.

        Parameters
        ----------
        output
            Index of the final output, by default the one with the largest severity.
        loss
            A function of the list of final outputs that gives a scalar tensor; then its difference between runtime
            and reference is attributed, instead of an output's.
        run
            Number of the execution.

        Returns
        -------
        DataFrame
            By index of the gap row, largest share first: ``instruction, output, op, reference_ops, module, share,
            method, reason``. The method is ``gradient``; ``straight-through`` where the gradient passes a rounding;
            ``patch`` where the difference was put into the reference, which ran again; ``unknown`` (share NaN, see
            `reason`). ``attrs`` holds ``sum``, the check: about 1; ``output``, ``outputs``, ``run``, ``error`` (norm of
            the output's error, or the loss's difference), ``methods`` and ``note``.

        Raises
        ------
        UsageError
            If the artifacts do not tell enough, or an argument makes no sense.
        PairingError
            If the reference can't be evaluated.
        """
        from etviz.attributed import attribution_frame, choose

        if loss is None:
            return self.attribute(output, run)
        output, run = choose(self._findings, self.outputs, output, run)
        return attribution_frame(self._findings, self._table, self.outputs, output=output, run=run, loss=loss)

    def attribute(self, output: int | None = None, run: int = 0, progress: Progress | None = None) -> pd.DataFrame:
        """As `attribution`, with a function that is told the steps done and their number, and may raise to stop."""
        from etviz.attributed import attribution_frame, choose

        key = choose(self._findings, self.outputs, output, run)
        known = self._attributions
        frame = known.pop(key, None)
        if frame is None:
            frame = attribution_frame(
                self._findings, self._table, self.outputs, output=key[0], run=key[1], progress=progress
            )
        known[key] = frame
        return frame.copy()

    @property
    def attributed(self) -> pd.DataFrame | None:
        """What `attribution` gave last for an output, None if it was not asked for; views show it."""
        known = list(self._attributions.values())
        return known[-1].copy() if known else None

    @cached_property
    def first_divergence(self) -> pd.Series | None:
        """The gap row of the first instruction whose introduced error is more than its precision explains.

        That is the first one, in program order, with an introduced severity beyond the threshold of its dtype, or with
        NaN or Inf of its own making. None if there is none, as far as introduced gaps are known.
        """
        from etviz.summary import first_divergence

        found = first_divergence(self._table[0], self._on_grid)
        return None if found is None else found.drop("stack")

    @cached_property
    def _on_grid(self) -> frozenset[int]:
        """Gap rows whose values lie on a quantization grid."""
        rows = enumerate(self._table[1])
        metas = ((row, gap.node.outputs[gap.output : gap.output + 1]) for row, gap in rows)
        return frozenset(row for row, meta in metas if meta and meta[0] is not None and meta[0].scale is not None)

    @property
    def has_float_model(self) -> bool:
        """True if the float model that was quantized is known, so that `quantization` has something to compare."""
        replay = self._findings.replay
        return replay is not None and replay.fresh_float is not None

    @cached_property
    def _splits(self) -> dict[tuple[tuple[int, int], ...], Split]:
        """The quantization split by the zooms that it knows; only the last is kept."""
        return {}

    @property
    def _split(self) -> Split:
        from etviz.errors import UsageError
        from etviz.numerics.quantization import split

        if self._findings.zoom is not None:
            raise UsageError(
                "this is the inside of a delegate, and the float model is that of the whole program: call "
                "quantization() of the Inspection that was zoomed, which has the rows inside of its delegates too"
            )
        if self._findings.replay is None:
            raise UsageError("no value of the runtime was compared, so there is nothing to split; see summary()")
        zooms = self.zoomed_calls()
        key = tuple((item.run, item.instruction) for item in zooms)
        found = self._splits.get(key)
        if found is None:
            found = split(self._findings.replay, self._table[1], zooms)
            self._splits.clear()
            self._splits[key] = found
        return found

    @property
    def quantized_rows(self) -> Mapping[int, RowSplit]:
        """By row: its quantization split, its grid, and the float model's values; raises as `quantization`.

        Rows of zoomed delegates count on after those of `gaps`.
        """
        return self._split.rows

    def quantization(self) -> pd.DataFrame:
        """The error of quantization and the error of the backend, for each operator of a quantized model.

        Float eager, quantized eager and runtime are three values of one operator. They are taken where the next
        operators read them: on the quantization grid where the operator's output is put on one. Operators inside of a
        delegate have a runtime value once it was zoomed into, if that zoom is faithful.

        Returns
        -------
        DataFrame
            A row for each operator of the float model, in program order, and execution: ``row`` and ``instruction``
            (-1 where no value of the runtime is known; rows of zoomed delegates count on after those of `gaps`, as in
            the widget and for `tensors`), ``op`` (its name in the exported float model), ``module``;
            ``quantization_*`` (float against quantized eager), ``backend_*`` (quantized eager against runtime),
            ``total_*`` (float against runtime), each as ``rmse`` and ``sqnr_db``; ``scale, zero_point, qmin, qmax`` of
            its grid; ``error_steps`` (quantization RMSE / scale; ideal rounding alone gives 1/√12 = 0.289);
            ``saturated``, the share of values at qmin or qmax whose float value lies beyond by more than half a step;
            ``weight`` (how its weight is quantized), ``weight_rmse``, ``weight_sqnr_db``; ``status``, ``reason``.

        Raises
        ------
        UsageError
            If the float model is not known, or nothing was compared.
        PairingError
            If one of the two models can't be evaluated.
        """
        from etviz.numerics.quantization import split_frame

        return split_frame(self._split, self._findings.runs)
