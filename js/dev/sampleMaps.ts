// Made-up answers about where in the tensor the error is, in the form of the contract.
import type { MapOf, WireChannels, WireErrorMap, WireScatter } from "../state/contract";
import { Pool } from "./pool";
import type { Answer } from "./sample";

export const SHAPE = [1, 197, 768];
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
