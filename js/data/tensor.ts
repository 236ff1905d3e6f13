// What the kernel says about the tensor of a row: the questions, and their answers decoded.
import type { Question } from "../kernel/answers";
import { decodeFloats, decodeInts, decodeNumber } from "../kernel/codec";
import type {
  Fingerprint,
  MapOf,
  Nonfinite,
  Sides,
  Statistic,
  Values,
  WireChannels,
  WireErrorMap,
  WireNumber,
  WireQuantization,
  WireScatter,
  WireTensor,
  WorstElement,
} from "../kernel/contract";
import type { Answer } from "../kernel/source";

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

/** Histograms, statistics, worst elements, and what the error looks like. */
export interface TensorFacts {
  row: number;
  elements: number;
  referenceMissing: string | null;
  edges: Float64Array;
  reference: Float64Array | null;
  runtime: Float64Array;
  /** What the run is called: beside other programs, as its program. */
  label: string;
  /** Counts of the same operator's values in the programs beside; so many are beyond the bins. */
  beside: { label: string; counts: Float64Array; beyond: number }[];
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

/** Where the error is; a single cell or strip for a tensor with less than two axes. */
export interface ErrorMap extends Omit<WireErrorMap, "values" | "kinds" | "low" | "high"> {
  row: number;
  values: Float64Array;
  /** What is not finite in each cell: 0 nothing, 1 Inf, 2 −Inf, 3 NaN; null if all is finite. */
  kinds: Int32Array | null;
  low: number;
  high: number;
}

/** Counts of the pairs of reference (x) and runtime (y). */
export interface Scatter {
  row: number;
  xEdges: Float64Array;
  yEdges: Float64Array;
  counts: Float64Array;
  elements: number;
}

/** The error by index along one axis. */
export interface Channels {
  row: number;
  axis: number;
  size: number;
  rmse: Float64Array;
  maxAbs: Float64Array;
  share: Float64Array;
}

/** Which slice of the tensor; null leaves the choice to the kernel. */
export interface MapChoice {
  of: MapOf;
  axes: readonly number[] | null;
  index: readonly number[] | null;
}

export const FIRST_MAP: MapChoice = { of: "error", axes: null, index: null };

/** The slice at an index along one axis, over the two last others; all of a vector. */
export function sliceAt(shape: readonly number[], axis: number, at: number): Pick<MapChoice, "axes" | "index"> {
  const others = shape.map((_, other) => other).filter((other) => other !== axis);
  return {
    axes: others.length < 2 ? null : others.slice(-2),
    index: shape.map((_, other) => (other === axis ? at : 0)),
  };
}

const BINS = 64;
const MAP_SIZE = 256;

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

function decodeSides({ reference, runtime }: Sides<WireNumber>): Sides<number | null> {
  return { reference: decodeNumber(reference), runtime: decodeNumber(runtime) };
}

function decodeTensor({ result: wire, buffers }: Answer<WireTensor>): TensorFacts {
  const optional = (values: Values | null): Float64Array | null =>
    values ? decodeFloats(values, buffers) : null;
  return {
    row: wire.row,
    elements: wire.elements,
    referenceMissing: wire.reference_missing,
    edges: decodeFloats(wire.edges, buffers),
    reference: optional(wire.reference),
    runtime: decodeFloats(wire.runtime, buffers),
    label: wire.label ?? "runtime",
    beside: (wire.beside ?? []).map(({ label, runtime, beyond }) => ({ label, counts: decodeFloats(runtime, buffers), beyond })),
    errorEdges: optional(wire.error_edges),
    error: optional(wire.error),
    nonfinite: wire.nonfinite,
    statistics: wire.statistics.map((one) => ({
      name: one.name,
      ...decodeSides(one),
      error: decodeNumber(one.error),
    })),
    worst: wire.worst?.map((one) => ({ index: one.index, ...decodeSides(one) })) ?? null,
    shape: wire.shape ?? null,
    fingerprints: wire.fingerprints ?? [],
    quantization: wire.quantization ? decodeQuantization(wire.quantization, buffers) : null,
  };
}

export function tensorQuestion(row: number): Question<TensorFacts> {
  return {
    method: "tensor",
    params: { row, bins: BINS },
    decode: (answer) => decodeTensor(answer as Answer<WireTensor>),
  };
}

export function mapQuestion(row: number, { of, axes, index }: MapChoice, size = MAP_SIZE): Question<ErrorMap> {
  return {
    method: "error_map",
    params: { row, of, axes, index, size },
    decode({ result, buffers }) {
      const wire = result as WireErrorMap;
      return {
        ...wire,
        row,
        values: decodeFloats(wire.values, buffers),
        kinds: wire.kinds ? decodeInts(wire.kinds, buffers) : null,
        low: decodeNumber(wire.low) ?? NaN,
        high: decodeNumber(wire.high) ?? NaN,
      };
    },
  };
}

export function scatterQuestion(row: number): Question<Scatter> {
  return {
    method: "scatter",
    params: { row, bins: BINS },
    decode({ result, buffers }) {
      const wire = result as WireScatter;
      return {
        row,
        xEdges: decodeFloats(wire.x_edges, buffers),
        yEdges: decodeFloats(wire.y_edges, buffers),
        counts: decodeFloats(wire.counts, buffers),
        elements: wire.elements,
      };
    },
  };
}

export function channelsQuestion(row: number, axis: number): Question<Channels> {
  return {
    method: "channels",
    params: { row, axis },
    decode({ result, buffers }) {
      const wire = result as WireChannels;
      return {
        row,
        axis: wire.axis,
        size: wire.size,
        rmse: decodeFloats(wire.rmse, buffers),
        maxAbs: decodeFloats(wire.max_abs, buffers),
        share: decodeFloats(wire.share, buffers),
      };
    },
  };
}

/** The slice that a fingerprint's evidence names (etviz/tensors/fingerprints.py); null if it names none. */
export function placeNamed(evidence: string): { axis: number; index: number } | null {
  const [, index, axis] = /^Index (\d+) of axis (\d+)/.exec(evidence) ?? [];
  return axis === undefined ? null : { axis: Number(axis), index: Number(index) };
}

/** The axis that is looked at first: channels of an image, features of a sequence. */
export function channelAxis(shape: readonly number[]): number {
  return shape.length >= 4 ? 1 : Math.max(0, shape.length - 1);
}

/** The shape in a text such as "[1, 197, 768]"; null if it is none. */
export function parseShape(text: string | null): number[] | null {
  const numbers = text?.match(/\d+/g)?.map(Number);
  return numbers && text?.trim().startsWith("[") ? numbers : text?.trim() === "[]" ? [] : null;
}

/** A flag for each cell of a map whose value lies in a span; of an error, its size does. The upper end belongs to it. */
export function cellsWithin({ values }: Pick<ErrorMap, "values">, low: number, high: number, sizes: boolean): Uint8Array {
  const spansZero = low < 0 && high > 0;
  const ends = sizes ? [spansZero ? 0 : Math.min(Math.abs(low), Math.abs(high)), Math.max(Math.abs(low), Math.abs(high))] : [low, high];
  const flags = new Uint8Array(values.length);
  // Maps come in single precision: the ends of a span do not.
  const [from, to] = [Math.min(ends[0], Math.fround(ends[0])), Math.max(ends[1], Math.fround(ends[1]))];
  for (let k = 0; k < values.length; k++) flags[k] = values[k] >= from && values[k] <= to ? 1 : 0;
  return flags;
}

/** The cell of an element; null if it is not in the slice. */
export function cellOf(map: ErrorMap, index: readonly number[]): { down: number; across: number } | null {
  const { shape, axes, block } = map;
  const inSlice = shape.every((size, axis) => index[axis] < size && (axes.includes(axis) || index[axis] === map.index[axis]));
  if (index.length !== shape.length || !inSlice) return null;
  const at = axes.map((axis, side) => Math.floor(index[axis] / (block[axes.length > 1 ? side : block.length - 1] || 1)));
  return axes.length > 1 ? { down: at[0], across: at[1] } : { down: 0, across: at[0] ?? 0 };
}

/** The elements behind one cell of a map, as an index such as "[0, 3, 12–15, 8]". */
export function cellIndex(map: ErrorMap, down: number, across: number): string {
  const cells = map.axes.length > 1 ? [down, across] : [across];
  const parts = map.index.map((at, axis) => {
    const side = map.axes.indexOf(axis);
    if (side < 0) return String(at);
    const block = map.block[map.axes.length > 1 ? side : map.block.length - 1] ?? 1;
    const first = cells[side] * block;
    const last = Math.min(map.shape[axis], first + block) - 1;
    return last > first ? `${first}–${last}` : String(first);
  });
  return `[${parts.join(", ")}]`;
}
