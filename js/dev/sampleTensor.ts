// Made-up answers about the tensor of a row, in the form of the contract.
import type {
  Fingerprint,
  MapOf,
  Values,
  WireChannels,
  WireErrorMap,
  WireScatter,
  WireTensor,
} from "../kernel/contract";
import type { Answer } from "../kernel/source";
import { Pool } from "./pool";

const SHAPE = [1, 197, 768];
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

const SIZE = 256;
const BAD_CHANNEL = 500;

function valueAt(of: MapOf, down: number, across: number, at: number): number {
  const wave = Math.sin(down / 9 + at) * Math.cos(across / 23);
  if (of !== "error") return 2.4 * wave + 0.3;
  if (down === 40 && across === 77) return 3.1e-2;
  const channel = across === Math.floor(BAD_CHANNEL / 3) ? 12 : 1;
  return 1.2e-3 * Math.abs(wave) * channel * (0.3 + ((down * 31 + across * 17) % 11) / 11);
}

export function sampleMap(params: Record<string, unknown>): Answer<WireErrorMap> {
  const pool = new Pool();
  const of = (params.of ?? "error") as MapOf;
  const axes = (params.axes as number[] | null) ?? [1, 2];
  const index = (params.index as number[] | null) ?? [0, 40, 231];
  const [height, width] = axes.map((axis) => Math.min(SIZE, SHAPE[axis]));
  const other = [0, 1, 2].find((axis) => !axes.includes(axis)) ?? 0;
  const values = Float32Array.from({ length: height * width }, (_, k) =>
    valueAt(of, Math.floor(k / width), k % width, index[other]),
  );
  if (params.row === 60) values.fill(NaN, 20 * width + 30, 20 * width + 42);
  const finite = values.filter((value) => Number.isFinite(value));
  const result: WireErrorMap = {
    shape: SHAPE,
    axes,
    index,
    height,
    width,
    values: pool.add(values),
    block: axes.map((axis) => Math.ceil(SHAPE[axis] / SIZE)),
    low: finite.reduce((least, value) => Math.min(least, value), 0),
    high: finite.reduce((most, value) => Math.max(most, value), 0),
  };
  return { result, buffers: pool.buffers };
}

export function sampleScatter(bins = 64): Answer<WireScatter> {
  const pool = new Pool();
  const edges = Array.from({ length: bins + 1 }, (_, k) => -3.2 + (7.3 * k) / bins);
  const counts = Uint32Array.from({ length: bins * bins }, (_, k) => {
    const [y, x] = [Math.floor(k / bins), k % bins];
    const body = 9000 * Math.exp(-(((x - 28) / 9) ** 2)) * Math.exp(-(((x - y) / 0.7) ** 2));
    return Math.round(body) + (y === 55 && x === 8 ? 1 : 0) + (y === x && x % 5 === 0 ? 1 : 0);
  });
  const result: WireScatter = {
    x_edges: pool.floats(edges),
    y_edges: pool.floats(edges),
    counts: pool.add(counts),
    elements: counts.reduce((sum, count) => sum + count, 0),
  };
  return { result, buffers: pool.buffers };
}

export function sampleChannels(axis: number): Answer<WireChannels> {
  const pool = new Pool();
  const size = SHAPE[axis];
  const bad = axis === 2 ? BAD_CHANNEL : 40 % size;
  const rmse = Array.from({ length: size }, (_, k) => (k === bad ? 9e-3 : 4e-4 * (1 + ((k * 7) % 5) / 5)));
  const total = rmse.reduce((sum, value) => sum + value ** 2, 0);
  const result: WireChannels = {
    axis,
    size,
    rmse: pool.floats(rmse),
    max_abs: pool.floats(rmse.map((value) => 3.5 * value)),
    share: pool.floats(rmse.map((value) => value ** 2 / total)),
  };
  return { result, buffers: pool.buffers };
}
