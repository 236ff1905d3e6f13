// Geometry of the bars by channel: scales, ticks, and one outline for all bars. No DOM.
import { format } from "d3-format";
import { scaleLinear } from "d3-scale";
import { formatMetric, formatNumber } from "../state/format";
import type { Channels } from "../state/maps";
import type { ChannelMetric } from "../state/view";
import type { Frame, Tick } from "./bars";

export interface ChannelScales {
  x: (channel: number) => number;
  y: (value: number) => number;
  channel: (x: number) => number;
  xTicks: Tick[];
  yTicks: Tick[];
}

export function channelText(value: number, metric: ChannelMetric): string {
  if (Number.isNaN(value)) return "not known";
  return metric === "share" ? formatNumber(value, "percent") : formatMetric(value);
}

/** The channel with the largest value; -1 if all are 0 or unknown. */
export function worstChannel(values: Float64Array): number {
  let worst = -1;
  for (let k = 0; k < values.length; k++) {
    if (values[k] > (worst < 0 ? 0 : values[worst])) worst = k;
  }
  return worst;
}

/** Ticks as short numbers; tiny or huge ranges get exponents. */
function tickText(
  most: number,
  metric: ChannelMetric,
  plain: (value: number) => string,
): (value: number) => string {
  if (metric === "share") return (value) => `${Math.round(1000 * value) / 10} %`;
  const write = most >= 1e-2 && most < 1e5 ? plain : format("~e");
  return (value) => (value === 0 ? "0" : write(value).replace("−", "-"));
}

function finiteMost(values: Float64Array): number {
  return values.reduce((most, value) => (Number.isFinite(value) && value > most ? value : most), 0);
}

export function channelScales(facts: Channels, metric: ChannelMetric, frame: Frame): ChannelScales {
  const across = scaleLinear([0, Math.max(1, facts.size)], [frame.left, frame.width - frame.right]);
  const most = finiteMost(facts[metric]) || 1;
  const down = scaleLinear([0, most], [frame.height - frame.bottom, frame.top]).clamp(true);
  const ticks = down.ticks(3);
  const text = tickText(most, metric, down.tickFormat(3));
  const half = 0.5;
  return {
    x: (channel) => across(channel),
    y: (value) => down(Number.isNaN(value) ? 0 : value),
    channel: (x) => Math.floor(across.invert(x)),
    xTicks: across
      .ticks(Math.max(2, Math.floor(frame.width / 80)))
      .filter((at) => Number.isInteger(at) && at < facts.size)
      .map((at) => ({ at: across(at + half), text: String(at) })),
    yTicks: ticks.map((at) => ({ at: down(at), text: text(at) })),
  };
}

/** The bars as one path, with a gap between them where there is room for one. */
export function barPath(values: Float64Array, scales: ChannelScales): string {
  const base = scales.y(0).toFixed(1);
  const step = scales.x(1) - scales.x(0);
  const gap = step > 4 ? 1 : 0;
  let path = "";
  for (let k = 0; k < values.length; k++) {
    if (!(values[k] > 0)) continue;
    const left = scales.x(k).toFixed(1);
    const right = (scales.x(k + 1) - gap).toFixed(1);
    path += `M${left},${base}V${scales.y(values[k]).toFixed(1)}H${right}V${base}Z`;
  }
  return path;
}
