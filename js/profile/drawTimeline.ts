// The picture of one execution: bars on levels, in the colour of their row's error, over an axis of time.
import { scaleLinear } from "d3-scale";
import type { NumberColumn } from "../data/columns";
import { gaugeOf } from "../data/gauge";
import type { Payload } from "../data/payload";
import { CALL, type Timeline, formatTime } from "../data/timeline";
import { type Paint, fontOf } from "../ui/picture";

export interface TimeFrame {
  width: number;
  height: number;
  left: number;
  right: number;
  /** The milliseconds at both ends. */
  from: number;
  to: number;
}

export interface TimeScene {
  payload: Payload;
  timeline: Timeline;
  /** Whose values colour the bars; null for none. */
  column: NumberColumn | null;
  /** A flag for each row that passes the filter. */
  passes: Uint8Array;
}

const TOP = 4;
const LEVEL = 18;
const BAR = 16;
const AXIS = 18;
/** From this width on, a bar has its name in it. */
const NAMED = 26;
const TICKS = 110;
const STRIPE = 3;

export function timeFrame(width: number, timeline: Timeline, span: readonly [number, number] | null): TimeFrame {
  const [from, to] = span ?? [0, timeline.total || 1];
  return { width, height: TOP + timeline.levels * LEVEL + AXIS, left: 10, right: 10, from, to };
}

function plotWidth({ width, left, right }: TimeFrame): number {
  return Math.max(1, width - left - right);
}

export function xOfTime(frame: TimeFrame, time: number): number {
  return frame.left + ((time - frame.from) / (frame.to - frame.from)) * plotWidth(frame);
}

export function timeAt(frame: TimeFrame, x: number): number {
  return frame.from + ((x - frame.left) / plotWidth(frame)) * (frame.to - frame.from);
}

export function levelAt(y: number): number {
  return Math.floor((y - TOP) / LEVEL);
}

/** Where an event is drawn; null if that is beyond the ends. */
export function barOf(frame: TimeFrame, { end, level, start }: Timeline, event: number): { x: number; y: number; width: number; height: number } | null {
  if (end[event] < frame.from || start[event] > frame.to) return null;
  const left = Math.max(frame.left - 2, xOfTime(frame, start[event]));
  const right = Math.min(frame.left + plotWidth(frame) + 2, xOfTime(frame, end[event]));
  return { x: left, y: TOP + level[event] * LEVEL, width: Math.max(1, right - left), height: BAR };
}

/** The beginning of a text that is not wider than some px, with an ellipsis where it is cut; "" if that says nothing. */
function fitting(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  // The first digits of a number would be another's.
  const number = /^#\d+/.exec(text)?.[0] ?? "";
  if (low < number.length || low < 2) return number && context.measureText(number).width <= width ? number : "";
  return `${text.slice(0, low).trimEnd()}…`;
}

/** What is written into a bar. */
export function nameOf(payload: Payload, timeline: Timeline, event: number): string {
  const row = timeline.row[event];
  return timeline.kind[event] === CALL && row >= 0 ? payload.nameOf(row) : timeline.name(event);
}

function drawAxis(context: CanvasRenderingContext2D, frame: TimeFrame, paint: Paint): void {
  const base = frame.height - AXIS + 2;
  const ticks = scaleLinear().domain([frame.from, frame.to]).ticks(Math.max(2, Math.floor(plotWidth(frame) / TICKS)));
  context.font = fontOf(10);
  for (const tick of ticks) {
    const x = Math.round(xOfTime(frame, tick)) + 0.5;
    context.fillStyle = paint("--etv-line");
    context.fillRect(x - 0.5, TOP, 1, base - TOP + 3);
    const text = formatTime(tick);
    const half = context.measureText(text).width / 2;
    context.fillStyle = paint("--etv-text-soft");
    context.fillText(text, Math.min(frame.width - 2 - 2 * half, Math.max(2, x - half)), base + 13);
  }
}

export function drawTimeline(context: CanvasRenderingContext2D, frame: TimeFrame, scene: TimeScene, paint: Paint): void {
  const { column, passes, payload, timeline } = scene;
  const gauge = column && gaugeOf(column);
  context.clearRect(0, 0, frame.width, frame.height);
  drawAxis(context, frame, paint);
  context.font = fontOf(11);
  // Many short events in one place are drawn once.
  const reached = new Float64Array(timeline.levels).fill(-Infinity);
  for (let event = 0; event < timeline.count; event++) {
    const bar = barOf(frame, timeline, event);
    if (!bar) continue;
    const level = timeline.level[event];
    const right = bar.x + bar.width;
    const row = timeline.row[event];
    const value = row >= 0 && column ? column.values[row] : NaN;
    const step = (row >= 0 && gauge?.(value, payload.mismatch[row] === 1, row)?.step) || 0;
    if (step === 0 && bar.width <= 1 && right <= reached[level] + 0.5) continue;
    reached[level] = Math.max(reached[level], right);
    const color = paint(step === "part" || step === "less" ? "--etv-part" : row < 0 ? "--etv-control" : `--etv-step-${step}`);
    const likely = timeline.confidence(event) === "likely";
    const shown = row < 0 || passes[row] ? 1 : 0.25;
    // A hair of the page between neighbours tells them apart.
    const wide = bar.width > 3 ? bar.width - 0.75 : bar.width;
    context.fillStyle = color;
    context.globalAlpha = shown * (row < 0 ? 0.16 : 0.3);
    context.fillRect(bar.x, bar.y, wide, bar.height);
    context.globalAlpha = shown * (row < 0 ? 0.6 : 1);
    if (likely && wide > 6) {
      for (let x = bar.x; x < bar.x + wide; x += 6) {
        context.fillRect(x, bar.y + bar.height - STRIPE, Math.min(4, bar.x + wide - x), STRIPE);
      }
    } else context.fillRect(bar.x, bar.y + bar.height - STRIPE, wide, STRIPE);
    context.globalAlpha = shown;
    if (bar.width < NAMED) continue;
    const text = fitting(context, nameOf(payload, timeline, event), bar.width - 8);
    context.fillStyle = paint("--etv-text");
    context.fillText(text, bar.x + 4, bar.y + 10);
  }
  context.globalAlpha = 1;
}
