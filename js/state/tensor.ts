// The answer about one row, decoded: histograms, statistics, non-finite matrix, worst elements,
// quantization, and what the error looks like.
import type { Question } from "./answers";
import { decodeFloats, decodeNumber } from "./codec";
import type { Fingerprint, Nonfinite, Values, WireQuantization, WireTensor } from "./contract";

export interface Statistic {
  name: string;
  reference: number | null;
  runtime: number | null;
  error: number | null;
}

export interface WorstElement {
  index: number[];
  reference: number | null;
  runtime: number | null;
}

export interface Quantization {
  scale: number | null;
  zeroPoint: number | null;
  qmin: number | null;
  qmax: number | null;
  /** What qmin and qmax stand for. */
  low: number | null;
  high: number | null;
  /** Counts of the float model's values over the same bins. */
  float: Float64Array | null;
  /** RMSE in quantization steps. */
  errorSteps: number | null;
  saturated: number | null;
}

export interface TensorFacts {
  row: number;
  elements: number;
  referenceMissing: string | null;
  edges: Float64Array;
  reference: Float64Array | null;
  runtime: Float64Array;
  errorEdges: Float64Array | null;
  error: Float64Array | null;
  nonfinite: Nonfinite | null;
  statistics: Statistic[];
  /** null: not in this report. */
  worst: WorstElement[] | null;
  shape: readonly number[] | null;
  fingerprints: readonly Fingerprint[];
  quantization: Quantization | null;
}

const BINS = 64;

/** The question about one row. */
export function tensorQuestion(row: number): Question<TensorFacts> {
  return {
    method: "tensor",
    params: { row, bins: BINS },
    decode: ({ result, buffers }) => decodeTensor(result as WireTensor, buffers),
  };
}

function decodeQuantization(wire: WireQuantization, buffers: readonly DataView[]): Quantization {
  return {
    scale: decodeNumber(wire.scale),
    zeroPoint: decodeNumber(wire.zero_point),
    qmin: decodeNumber(wire.qmin),
    qmax: decodeNumber(wire.qmax),
    low: decodeNumber(wire.low),
    high: decodeNumber(wire.high),
    float: wire.float ? decodeFloats(wire.float, buffers) : null,
    errorSteps: decodeNumber(wire.error_steps),
    saturated: decodeNumber(wire.saturated),
  };
}

export function decodeTensor(wire: WireTensor, buffers: readonly DataView[]): TensorFacts {
  const optional = (values: Values | null): Float64Array | null =>
    values ? decodeFloats(values, buffers) : null;
  return {
    row: wire.row,
    elements: wire.elements,
    referenceMissing: wire.reference_missing,
    edges: decodeFloats(wire.edges, buffers),
    reference: optional(wire.reference),
    runtime: decodeFloats(wire.runtime, buffers),
    errorEdges: optional(wire.error_edges),
    error: optional(wire.error),
    nonfinite: wire.nonfinite,
    statistics: wire.statistics.map(({ name, reference, runtime, error }) => ({
      name,
      reference: decodeNumber(reference),
      runtime: decodeNumber(runtime),
      error: decodeNumber(error),
    })),
    worst:
      wire.worst?.map(({ index, reference, runtime }) => ({
        index,
        reference: decodeNumber(reference),
        runtime: decodeNumber(runtime),
      })) ?? null,
    shape: wire.shape ?? null,
    fingerprints: wire.fingerprints ?? [],
    quantization: wire.quantization ? decodeQuantization(wire.quantization, buffers) : null,
  };
}
