// One execution on a time axis: events by start, each on a level; what is inside of a call stands below it.
import { bisector } from "d3-array";
import { decodeFloats, decodeInts } from "../kernel/codec";
import type { Question } from "../kernel/answers";
import type { Values, WireTimeline } from "../kernel/contract";
import { groupBy } from "./groups";

/** What an event is. */
export const FRAMEWORK = 0;
export const CALL = 1;
export const OPERATOR = 2;

export interface Timeline {
  run: number;
  count: number;
  start: Float64Array;
  /** Where an event ends; where it starts if its duration is not known. */
  end: Float64Array;
  /** NaN: not known. */
  length: Float64Array;
  level: Int32Array;
  levels: number;
  kind: Int32Array;
  row: Int32Array;
  /** The end of the last event. */
  total: number;
  name(event: number): string;
  /** The operator that an event inside of a delegate is of; "" if that is not known. */
  operator(event: number): string;
  /** "certain", "likely", or "" where there is no operator. */
  confidence(event: number): string;
  /** The events of a level, by start. */
  onLevel(level: number): ArrayLike<number>;
  notes: readonly string[];
}

export function timelineQuestion(run: number): Question<Timeline> {
  return {
    method: "timeline",
    params: { run },
    decode({ result, buffers }) {
      const wire = result as WireTimeline;
      const start = decodeFloats(wire.start, buffers);
      const length = decodeFloats(wire.length, buffers);
      const level = decodeInts(wire.level, buffers);
      const end = start.map((from, event) => from + (length[event] || 0));
      const levels = 1 + level.reduce((most, one) => Math.max(most, one), 0);
      const texts = (codes: Values, words: readonly string[]): ((event: number) => string) => {
        const held = decodeInts(codes, buffers);
        return (event) => words[held[event]] ?? "";
      };
      return {
        run: wire.run,
        count: wire.count,
        start,
        end,
        length,
        level,
        levels,
        kind: decodeInts(wire.kind, buffers),
        row: decodeInts(wire.row, buffers),
        total: end.reduce((last, one) => Math.max(last, one), 0),
        name: texts(wire.name, wire.names),
        operator: texts(wire.operator, wire.operators),
        confidence: texts(wire.confidence, wire.confidences),
        onLevel: groupBy(levels, level, (event) => event),
        notes: wire.notes,
      };
    },
  };
}

/** The event of a level at a time, or the nearest one within `slack`; -1 for none. */
export function eventAt(timeline: Timeline, level: number, time: number, slack: number): number {
  if (level < 0 || level >= timeline.levels) return -1;
  const events = timeline.onLevel(level);
  const next = bisector((event: number) => timeline.start[event]).right(events, time);
  const [before, behind] = [events[next - 1] ?? -1, events[next] ?? -1];
  const away = (event: number, distance: number): number => (event < 0 ? Infinity : Math.max(0, distance));
  const since = away(before, time - timeline.end[before]);
  const until = away(behind, timeline.start[behind] - time);
  if (Math.min(since, until) > slack) return -1;
  return since <= until ? before : behind;
}

/** From an event to the next one of its level, or to one above or below it; itself where there is none. */
export function moved(timeline: Timeline, event: number, across: number, down: number): number {
  const { end, level, start } = timeline;
  if (across !== 0) {
    const events = timeline.onLevel(level[event]);
    const at = Array.prototype.indexOf.call(events, event) as number;
    return events[Math.min(events.length - 1, Math.max(0, at + across))];
  }
  for (let other = level[event] + down; other >= 0 && other < timeline.levels; other += down) {
    const middle = (start[event] + end[event]) / 2;
    const found = eventAt(timeline, other, down > 0 ? start[event] : middle, end[event] - start[event]);
    if (found >= 0) return found;
  }
  return event;
}

/** Milliseconds as a text, in the unit that fits: "12.5 µs", "3.2 ms", "1.25 s". */
export function formatTime(ms: number): string {
  const [value, unit] = ms < 1e-3 ? [ms * 1e6, "ns"] : ms < 1 ? [ms * 1e3, "µs"] : ms < 1e3 ? [ms, "ms"] : [ms / 1e3, "s"];
  if (ms === 0) return "0";
  return `${Number(value.toPrecision(3)).toLocaleString("en-US")} ${unit}`;
}
