// How the values lie in the quantization range: scale, steps of error against ideal rounding, and how
// many values are beyond the range.
import type { JSX } from "preact";
import { formatMetric, formatNumber } from "../state/format";
import type { Quantization } from "../state/tensor";
import { type FactLine, Facts } from "./Facts";

/** RMSE of rounding to the nearest step, in steps: 1/√12. */
const IDEAL_STEPS = 1 / Math.sqrt(12);

function metric(value: number | null): string {
  return value === null || Number.isNaN(value) ? "not known" : formatMetric(value);
}

export function quantizationLines(found: Quantization): FactLine[] {
  const { scale, zeroPoint, qmin, qmax, low, high, errorSteps, saturated } = found;
  const range = `[${metric(low)}, ${metric(high)}]`;
  const integers = qmin === null || qmax === null ? "" : ` for ${qmin} to ${qmax}`;
  return [
    { name: "range", value: low === null ? null : range + integers },
    {
      name: "scale",
      value: scale === null ? null : `${metric(scale)}, zero point ${zeroPoint ?? "not known"}`,
    },
    {
      name: "error",
      value:
        errorSteps === null
          ? null
          : `${metric(errorSteps)} steps RMSE (ideal rounding: ${formatMetric(IDEAL_STEPS)})`,
    },
    { name: "saturated", value: saturated === null ? null : formatNumber(saturated, "percent") },
  ];
}

export function QuantizationNote({ found }: { found: Quantization }): JSX.Element {
  return <Facts lines={quantizationLines(found)} />;
}
