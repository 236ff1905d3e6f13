// Geometry of charts over bins (of a histogram, or channels): scales, ticks, outlines. No DOM.
import { bisectRight } from "d3-array";
import { format } from "d3-format";
import { type ScaleLinear, scaleLinear, scaleLog } from "d3-scale";
import type { Channels } from "../data/tensor";
import type { ChannelMetric } from "../state/view";

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
  bins: number;
  x: (value: number) => number;
  y: (value: number) => number;
  /** Where a bin begins, which is where the one before it ends. */
  edge: (bin: number) => number;
  /** The bin at a position; -1 for none. */
  binAt: (x: number) => number;
  xTicks: Tick[];
  yTicks: Tick[];
}

const countFormat = format("~s");
/** Counts of one sit above the base line of a log scale, empty bins on it. */
const LOG_BASE = 0.5;

/** Ticks as short numbers; tiny or huge ranges get exponents. */
function shortTicks(scale: ScaleLinear<number, number>, wanted: number): Tick[] {
  const size = Math.max(...scale.domain().map(Math.abs));
  const write = size >= 1e-2 && size < 1e5 ? scale.tickFormat(wanted) : format("~e");
  return scale.ticks(wanted).map((value) => ({
    at: scale(value),
    text: value === 0 ? "0" : write(value).replace("−", "-"),
  }));
}

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

/** The bin that holds `value`; -1 outside of the edges. */
export function binOf(edges: ArrayLike<number>, value: number): number {
  const bins = edges.length - 1;
  if (bins < 1 || value < edges[0] || value > edges[bins]) return -1;
  return bisectRight(edges, value, 1, bins) - 1;
}

/** Scales of counts up to `most` between edges. */
export function histogramScales(edges: ArrayLike<number>, most: number, log: boolean, frame: Frame): Scales {
  const across = scaleLinear(domainOf(edges), [frame.left, frame.width - frame.right]);
  const down: [number, number] = [frame.height - frame.bottom, frame.top];
  const linear = scaleLinear([0, Math.max(1, most)], down);
  const logarithmic = scaleLog([LOG_BASE, Math.max(1, most)], down).clamp(true);
  const y = (count: number): number => (log ? logarithmic(Math.max(LOG_BASE, count)) : linear(count));
  return {
    bins: edges.length - 1,
    x: (value) => across(value),
    y,
    edge: (bin) => across(edges[bin]),
    binAt: (x) => binOf(edges, across.invert(x)),
    xTicks: shortTicks(across, Math.max(3, Math.floor((frame.width - frame.left) / 80))),
    yTicks: countTicks(most, log).map((at) => ({ at: y(at), text: countFormat(at) })),
  };
}

/** Outline of the counts as an SVG path along the tops of the bins; `closed` adds the base line. */
export function outline(counts: ArrayLike<number>, scales: Scales, closed: boolean): string {
  const base = scales.y(0).toFixed(1);
  const edge = (bin: number): string => scales.edge(bin).toFixed(1);
  let path = `M${edge(0)},${base}`;
  for (let bin = 0; bin < counts.length; bin++) {
    path += `V${scales.y(counts[bin]).toFixed(1)}H${edge(bin + 1)}`;
  }
  return `${path}V${base}${closed ? "Z" : ""}`;
}

export function largest(counts: readonly ArrayLike<number>[]): number {
  let most = 0;
  for (const series of counts) {
    for (let bin = 0; bin < series.length; bin++) most = Math.max(most, series[bin]);
  }
  return most;
}

/** The channel with the largest value; -1 if all are 0 or unknown. */
export function worstChannel(values: Float64Array): number {
  let worst = -1;
  for (let k = 0; k < values.length; k++) {
    if (values[k] > (worst < 0 ? 0 : values[worst])) worst = k;
  }
  return worst;
}

function finiteMost(values: Float64Array): number {
  return values.reduce((most, value) => (Number.isFinite(value) && value > most ? value : most), 0);
}

/** Scales of a metric of the channels, each a bin. */
export function channelScales(facts: Channels, metric: ChannelMetric, frame: Frame): Scales {
  const across = scaleLinear([0, Math.max(1, facts.size)], [frame.left, frame.width - frame.right]);
  const most = finiteMost(facts[metric]) || 1;
  const down = scaleLinear([0, most], [frame.height - frame.bottom, frame.top]).clamp(true);
  const last = facts.size - 1;
  return {
    bins: facts.size,
    x: (channel) => across(channel),
    y: (value) => down(Number.isNaN(value) ? 0 : value),
    edge: (channel) => across(channel),
    binAt: (x) => Math.min(last, Math.max(0, Math.floor(across.invert(x)))),
    xTicks: across
      .ticks(Math.max(2, Math.floor(frame.width / 80)))
      .filter((at) => Number.isInteger(at) && at <= last)
      .map((at) => ({ at: across(at + 0.5), text: String(at) })),
    yTicks:
      metric === "share"
        ? down.ticks(3).map((share) => ({ at: down(share), text: `${Math.round(1000 * share) / 10} %` }))
        : shortTicks(down, 3),
  };
}

/** The bars as one path, with a gap between them where there is room for one. */
export function barPath(values: Float64Array, scales: Scales): string {
  const base = scales.y(0).toFixed(1);
  const step = scales.edge(1) - scales.edge(0);
  const gap = step > 4 ? 1 : 0;
  let path = "";
  for (let k = 0; k < values.length; k++) {
    if (!(values[k] > 0)) continue;
    const left = scales.edge(k).toFixed(1);
    const right = (scales.edge(k + 1) - gap).toFixed(1);
    path += `M${left},${base}V${scales.y(values[k]).toFixed(1)}H${right}V${base}Z`;
  }
  return path;
}
