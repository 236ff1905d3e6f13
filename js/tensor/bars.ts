// Geometry of a histogram: scales, the outline of the counts, ticks. No DOM.
import { format } from "d3-format";
import { scaleLinear, scaleLog } from "d3-scale";

export interface Frame {
  width: number;
  height: number;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export interface Tick {
  at: number;
  text: string;
}

export interface Scales {
  x: (value: number) => number;
  y: (count: number) => number;
  value: (x: number) => number;
  xTicks: Tick[];
  yTicks: Tick[];
}

const countFormat = format("~s");
/** Counts of one sit above the base line of a log scale, empty bins on it. */
const LOG_BASE = 0.5;

function countTicks(most: number, log: boolean): number[] {
  if (!log) {
    return scaleLinear([0, most], [0, 1]).ticks(3).filter(Number.isInteger);
  }
  const powers: number[] = [];
  const step = most > 1e4 ? 2 : 1;
  for (let power = 0; 10 ** power <= most; power += step) powers.push(10 ** power);
  return powers;
}

/** The finite range of the edges, never empty. */
export function domainOf(edges: ArrayLike<number>): [number, number] {
  const low = edges[0];
  const high = edges[edges.length - 1];
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  if (high > low) return [low, high];
  const room = Math.abs(low) * 1e-3 || 1;
  return [low - room, low + room];
}

/** Ticks as short numbers; tiny or huge ranges get exponents. */
function valueTicks(domain: [number, number], wanted: number): { at: number; text: string }[] {
  const scale = scaleLinear(domain, [0, 1]);
  const size = Math.max(Math.abs(domain[0]), Math.abs(domain[1]));
  const plain = size >= 1e-2 && size < 1e5;
  const write = plain ? scale.tickFormat(wanted) : format("~e");
  return scale.ticks(wanted).map((at) => ({ at, text: at === 0 ? "0" : write(at).replace("−", "-") }));
}

export function scalesOf(edges: ArrayLike<number>, most: number, log: boolean, frame: Frame): Scales {
  const domain = domainOf(edges);
  const across = scaleLinear(domain, [frame.left, frame.width - frame.right]);
  const down: [number, number] = [frame.height - frame.bottom, frame.top];
  const linear = scaleLinear([0, Math.max(1, most)], down);
  const logarithmic = scaleLog([LOG_BASE, Math.max(1, most)], down).clamp(true);
  const y = (count: number): number => (log ? logarithmic(Math.max(LOG_BASE, count)) : linear(count));
  const wanted = Math.max(3, Math.floor((frame.width - frame.left) / 80));
  return {
    x: (value) => across(value),
    y,
    value: (x) => across.invert(x),
    xTicks: valueTicks(domain, wanted).map(({ at, text }) => ({ at: across(at), text })),
    yTicks: countTicks(most, log).map((at) => ({ at: y(at), text: countFormat(at) })),
  };
}

/** Outline of the counts as an SVG path along the tops of the bins; `closed` adds the base line. */
export function outline(
  edges: ArrayLike<number>,
  counts: ArrayLike<number>,
  scales: Scales,
  closed: boolean,
): string {
  const base = scales.y(0).toFixed(1);
  const at = (k: number): string => scales.x(edges[k]).toFixed(1);
  let path = `M${at(0)},${base}`;
  for (let bin = 0; bin < counts.length; bin++) {
    path += `V${scales.y(counts[bin]).toFixed(1)}H${at(bin + 1)}`;
  }
  return `${path}V${base}${closed ? "Z" : ""}`;
}

/** The bin that holds `value`; -1 outside of the edges. */
export function binAt(edges: ArrayLike<number>, value: number): number {
  const bins = edges.length - 1;
  if (bins < 1 || value < edges[0] || value > edges[bins]) return -1;
  let low = 0;
  let high = bins - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value < edges[middle + 1]) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function largest(counts: readonly (ArrayLike<number> | null)[]): number {
  let most = 0;
  for (const series of counts) {
    if (series) for (let bin = 0; bin < series.length; bin++) most = Math.max(most, series[bin]);
  }
  return most;
}
