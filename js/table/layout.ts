// Order and widths of the table's columns.
import { type Column, addsUp } from "../state/columns";

export const ROW_HEIGHT = 26;
export const HEAD_HEIGHT = 30;
export const MIN_WIDTH = 48;
const MAX_WIDTH = 640;

const FIRST = ["op", "severity", "introduced_severity", "attribution", "latency_ms"];
const TEXT_WIDTHS: Record<string, number> = {
  op: 210,
  reference_ops: 190,
  module: 210,
  source: 150,
  status: 130,
  reason: 240,
  backend: 130,
  shape: 120,
};
const CHARACTER = 7.2;

/** The op column first (it stays in view), what rows are ranked by beside it, the rest as sent. */
export function tableOrder(columns: readonly Column[]): Column[] {
  const place = (column: Column): number => {
    const at = FIRST.indexOf(column.name);
    return at < 0 ? FIRST.length : at;
  };
  return [...columns].sort((a, b) => place(a) - place(b));
}

export function defaultWidth(column: Column): number {
  if (column.kind === "text") return Math.max(TEXT_WIDTHS[column.name] ?? 96, headWidth(column));
  if (column.name.endsWith("severity") || addsUp(column)) return Math.max(120, headWidth(column));
  return Math.max(80, headWidth(column));
}

function headWidth(column: Column): number {
  return Math.ceil(column.label.length * CHARACTER) + 28;
}

export function clampWidth(width: number): number {
  return Math.round(Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, width)));
}

export function columnWidths(columns: readonly Column[], chosen: ReadonlyMap<string, number>): number[] {
  return columns.map((column) => chosen.get(column.name) ?? defaultWidth(column));
}

export interface ColumnRange {
  first: number;
  end: number;
}

const BESIDE = 160;

/** The columns between `left` and `left + width`, and a little on both sides; all if not measured. */
export function columnsInView(widths: readonly number[], left: number, width: number): ColumnRange {
  if (width === 0) return { first: 0, end: widths.length };
  let first = 0;
  let start = 0;
  while (first < widths.length && start + widths[first] < left - BESIDE) start += widths[first++];
  let end = first;
  while (end < widths.length && start < left + width + BESIDE) start += widths[end++];
  return { first, end };
}
