// A made-up answer about one row, in the form of the contract.
import type { Fingerprint, Values, WireTensor } from "../state/contract";
import { Pool } from "./pool";
import type { Answer } from "./sample";
import { SHAPE } from "./sampleMaps";

const FINGERPRINTS: Fingerprint[] = [
  {
    name: "single bad channel",
    score: 0.83,
    evidence: "Channel 500 of axis 2 has 83 % of the squared error; the others are at 4.0e-4 RMSE.",
  },
  { name: "constant offset", score: 0.21, evidence: "Subtracting 1.1e-4 leaves 79 % of the error." },
];

function counts(bins: number, total: number, shape: (share: number) => number): number[] {
  const weights = Array.from({ length: bins }, (_, bin) => shape((bin + 0.5) / bins));
  const sum = weights.reduce((all, one) => all + one, 0);
  return weights.map((weight) => Math.round((total * weight) / sum));
}

function edges(pool: Pool, low: number, high: number, bins: number): Values {
  return pool.floats(Array.from({ length: bins + 1 }, (_, k) => low + ((high - low) * k) / bins));
}

function bell(center: number, width: number): (share: number) => number {
  return (share) => Math.exp(-(((share - center) / width) ** 2));
}

export function sampleTensor(row: number, bins = 64): Answer<WireTensor> {
  const pool = new Pool();
  const elements = 151296;
  const shift = row % 31 === 17 ? 0.03 : 0.002;
  const nonfinite = row === 60;
  const culprit = row === 41;
  const result: WireTensor = {
    row,
    elements,
    reference_missing: null,
    edges: edges(pool, -3.2, 4.1, bins),
    reference: pool.floats(counts(bins, elements, bell(0.45, 0.12))),
    runtime: pool.floats(counts(bins, elements, bell(0.45 + shift, 0.12 + shift))),
    error_edges: edges(pool, -4e-6, 4e-6, bins),
    error: pool.floats(counts(bins, elements, (share) => Math.exp(-Math.abs(share - 0.5) * 22))),
    nonfinite: nonfinite
      ? {
          classes: ["finite", "+inf", "-inf", "nan"],
          counts: [
            [151280, 0, 0, 12],
            [0, 4, 0, 0],
            [0, 0, 0, 0],
            [0, 0, 0, 0],
          ],
        }
      : null,
    statistics: [
      { name: "min", reference: -3.1842, runtime: -3.18421, error: -3.9e-6 },
      { name: "max", reference: 4.0719, runtime: 4.07188, error: 4.1e-6 },
      { name: "mean", reference: 0.01423, runtime: 0.014231, error: 1.2e-8 },
      { name: "std", reference: 0.8412, runtime: 0.84121, error: 3.3e-7 },
      { name: "rms", reference: 0.84132, runtime: 0.84133, error: 3.3e-7 },
      { name: "zeros", reference: 0, runtime: nonfinite ? "nan" : 0, error: null },
    ],
    worst: [0, 1, 2, 3].map((k) => ({
      index: [0, 3 + 7 * k, 511 - 41 * k],
      reference: 1.23456 + k,
      runtime: 1.23457 + k * 1.000001,
    })),
    shape: SHAPE,
    fingerprints: culprit ? FINGERPRINTS : [],
    quantization: culprit
      ? {
          scale: 0.0214,
          zero_point: -3,
          qmin: -128,
          qmax: 127,
          low: -2.675,
          high: 2.782,
          float: pool.floats(counts(bins, elements, bell(0.445, 0.14))),
          error_steps: 0.412,
          saturated: 0.0123,
        }
      : null,
  };
  return { result, buffers: pool.buffers };
}
