// A decoded column of the gap table, and the few questions that all views ask of it.
import type { ColumnInfo } from "../kernel/contract";

export interface NumberColumn extends ColumnInfo {
  kind: "number";
  values: Float64Array;
  /** From which value each row deserves a look (first), and from which it is a fault; NaN where neither is known. */
  limits: readonly [Float64Array, Float64Array] | null;
}

export interface TextColumn extends ColumnInfo {
  kind: "text";
  codes: Int32Array;
  dictionary: string[];
}

export type Column = NumberColumn | TextColumn;

/** The statuses of a row that is worst under every metric. */
export const MISMATCHES = ["non-finite mismatch", "shape or dtype mismatch"];

/** The share of a row's error that the row introduced itself: the strong part of its bar. */
export const INTRODUCED_PART = "introduced_part";

/** True for numbers that say how far runtime and reference are apart. */
export function isMetric(column: Column | undefined): column is NumberColumn {
  return (
    column?.kind === "number" &&
    column.name !== INTRODUCED_PART &&
    (column.group === "metric" || column.group === "introduced")
  );
}

/** True for numbers of which the values of parts make that of the whole. */
export function addsUp(column: NumberColumn): boolean {
  return column.name === "attribution" || column.group === "latency";
}

/** True for what is known of the same operator in another program, and for how much worse it is there. */
export function isBeside({ group }: Column): boolean {
  return group === "beside" || group === "ratio";
}

/** True for numbers that bars can stand for. */
export function hasGauge(column: Column | undefined): column is NumberColumn {
  if (column?.kind !== "number") return false;
  const quantization = column.group === "quantization" && column.better !== null;
  return quantization || isBeside(column) || addsUp(column) || isMetric(column);
}

/** True for a column that says something of any row. */
export function hasValues(column: Column | undefined): column is Column {
  if (column?.kind === "number") return column.values.some((value) => !Number.isNaN(value));
  return column !== undefined;
}

/** Sort direction that puts the worst rows first. */
export function worstFirst(column: Column): boolean {
  return column.kind === "number" && column.better !== "high";
}

/** The column with the introduced part of a metric. */
export function introducedName(name: string): string {
  return `introduced_${name}`;
}

/** Text of a cell in a text column; null where there is none. */
export function textAt(column: Column | undefined, row: number): string | null {
  if (column?.kind !== "text") return null;
  const code = column.codes[row];
  return code === undefined || code < 0 ? null : (column.dictionary[code] ?? null);
}

/** Number of a cell in a number column; NaN where it is not known. */
export function numberAt(column: Column | undefined, row: number): number {
  return column?.kind === "number" ? (column.values[row] ?? NaN) : NaN;
}

/** A flag for each row whose NaN, Inf, shape or dtype is not the reference's: worst under every metric. */
export function mismatchRows(status: Column | undefined, rows: number): Uint8Array {
  const flags = new Uint8Array(rows);
  if (status?.kind !== "text") return flags;
  const wrong = status.dictionary.map((name) => MISMATCHES.includes(name));
  for (let row = 0; row < rows; row++) if (wrong[status.codes[row]]) flags[row] = 1;
  return flags;
}

/** The largest size of a finite number in a column. */
export const largestOf = onceAColumn(({ values }) => {
  let largest = 0;
  for (const value of values) if (Number.isFinite(value) && Math.abs(value) > largest) largest = Math.abs(value);
  return largest;
});

/** The value of `compute` for a column, computed when first asked for. */
export function onceAColumn<T>(compute: (column: NumberColumn) => T): (column: NumberColumn) => T {
  const known = new WeakMap<NumberColumn, T>();
  return (column) => {
    let value = known.get(column);
    if (value === undefined) known.set(column, (value = compute(column)));
    return value;
  };
}
