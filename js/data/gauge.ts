// How bad a number is, as a bar: a length from 0 to 1 and one of five colour steps.
// With thresholds the scale is absolute (a third at "look", two thirds at "fault"), so that a harmless program looks
// harmless; where a row has limits of its own (its precision's, or its measured noise's), these are the thresholds.
// Without any the scale spans the column.
import { type NumberColumn, addsUp, onceAColumn } from "./columns";

export interface Gauge {
  length: number;
  /** How bad; or a part of a whole, or what is taken away from it. */
  step: 0 | 1 | 2 | 3 | 4 | "part" | "less";
}

/** `row` tells whose limits hold, where these differ from row to row. */
export type GaugeOf = (value: number, mismatch: boolean, row?: number) => Gauge | null;

const WORST: Gauge = { length: 1, step: 4 };
const NONE: Gauge = { length: 0, step: 0 };

function clamp(share: number): number {
  return Math.min(1, Math.max(0, share));
}

function stepOf(position: number): Exclude<Gauge["step"], string> {
  if (position < 0) return 0;
  if (position < 0.5) return 1;
  if (position < 1) return 2;
  return position < 2 ? 3 : 4;
}

/** Decibels and shares are read linearly, everything else by its order of magnitude. */
function readsLinearly(column: NumberColumn): boolean {
  return column.format === "db" || column.format === "percent" || column.better === "high";
}

/** Where a value is between the two thresholds: 0 at "look", 1 at "fault". */
function positionOf(value: number, warn: number, bad: number, linear: boolean): number {
  return linear ? (value - warn) / (bad - warn) : Math.log(value / warn) / Math.log(bad / warn);
}

function byThresholds(warn: number, bad: number, linear: boolean): GaugeOf {
  return (value) => {
    const position = positionOf(value, warn, bad, linear);
    return { length: clamp((position + 1) / 3), step: stepOf(position) };
  };
}

/** The limits of each row's own precision; a row without any looks harmless, whatever its size. */
function byRow([look, fault]: readonly [Float64Array, Float64Array], usual: GaugeOf, linear: boolean): GaugeOf {
  return (value, mismatch, row = -1) => {
    if (!(look[row] < fault[row])) {
      const gauge = usual(value, mismatch);
      return gauge && row >= 0 ? { ...gauge, step: 0 } : gauge;
    }
    return byThresholds(look[row], fault[row], linear)(value, mismatch);
  };
}

function byRange(column: NumberColumn, linear: boolean): GaugeOf {
  let low = Infinity;
  let high = -Infinity;
  for (const value of column.values) {
    if (!Number.isFinite(value) || (!linear && value <= 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const read = linear ? (value: number) => value : Math.log;
  const span = read(high) - read(low);
  return (value) => {
    const share = clamp((read(value) - read(low)) / span);
    const length = span > 0 ? (column.better === "high" ? 1 - share : share) : 0;
    return { length, step: Math.min(3, Math.floor(length * 4)) as Gauge["step"] };
  };
}

/** Parts of a whole: the longest bar is the largest of `values`. */
export function gaugeOfParts(values: Float64Array): GaugeOf {
  const most = values.reduce((all, value) => (Math.abs(value) > all ? Math.abs(value) : all), 0) || 1;
  return (value) =>
    Number.isNaN(value) ? null : { length: clamp(Math.abs(value) / most), step: value < 0 ? "less" : "part" };
}

/** The gauge of one column; null where the value is not known. */
export const gaugeOf = onceAColumn((column): GaugeOf => {
  if (addsUp(column)) return gaugeOfParts(column.values);
  const linear = readsLinearly(column);
  const usual = column.thresholds
    ? byThresholds(column.thresholds[0], column.thresholds[1], linear)
    : byRange(column, linear);
  const inner = column.limits ? byRow(column.limits, usual, linear) : usual;
  return (value, mismatch, row) => {
    if (mismatch) return WORST;
    if (Number.isNaN(value)) return null;
    if (!Number.isFinite(value)) {
      const bad = value > 0 === (column.better !== "high");
      return bad ? WORST : NONE;
    }
    return !linear && value <= 0 ? NONE : inner(value, false, row);
  };
});
