// The answer about one row, decoded: histograms, statistics, non-finite matrix, worst elements.
import { decodeFloats, decodeNumber } from "./codec";
import type { Nonfinite, Values, WireTensor } from "./contract";

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
  };
}
