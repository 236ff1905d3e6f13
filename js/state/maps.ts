// Where in the tensor the error is: the questions, and their answers decoded.
import type { Question } from "./answers";
import { decodeFloats, decodeNumber } from "./codec";
import type { MapOf, WireChannels, WireErrorMap, WireScatter } from "./contract";

export interface ErrorMap {
  row: number;
  shape: readonly number[];
  /** The axes that run down and across; fewer for a tensor with less than two. */
  axes: readonly number[];
  index: readonly number[];
  height: number;
  width: number;
  values: Float64Array;
  block: readonly number[];
  low: number;
  high: number;
}

export interface Scatter {
  row: number;
  xEdges: Float64Array;
  yEdges: Float64Array;
  counts: Float64Array;
  elements: number;
}

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

const MAP_SIZE = 256;
const SCATTER_BINS = 64;

export function mapQuestion(row: number, choice: MapChoice): Question<ErrorMap> {
  return {
    method: "error_map",
    params: { row, of: choice.of, axes: choice.axes, index: choice.index, size: MAP_SIZE },
    decode: ({ result, buffers }) => {
      const { shape, axes, index, height, width, values, block, low, high } = result as WireErrorMap;
      return {
        row,
        shape,
        axes,
        index,
        height,
        width,
        block,
        values: decodeFloats(values, buffers),
        low: decodeNumber(low) ?? NaN,
        high: decodeNumber(high) ?? NaN,
      };
    },
  };
}

export function scatterQuestion(row: number): Question<Scatter> {
  return {
    method: "scatter",
    params: { row, bins: SCATTER_BINS },
    decode: ({ result, buffers }) => {
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
    decode: ({ result, buffers }) => {
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

/** The axis that is looked at first: channels of an image, features of a sequence. */
export function channelAxis(shape: readonly number[]): number {
  return shape.length >= 4 ? 1 : Math.max(0, shape.length - 1);
}

/** The shape in a text such as "[1, 197, 768]"; null if it is none. */
export function parseShape(text: string | null): number[] | null {
  const numbers = text?.match(/\d+/g)?.map(Number);
  return numbers && text?.trim().startsWith("[") ? numbers : text?.trim() === "[]" ? [] : null;
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
