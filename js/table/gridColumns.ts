// Order and widths of the table's columns, and which of them are drawn.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Column, addsUp } from "../data/columns";

export const ROW_HEIGHT = 26;
export const HEAD_HEIGHT = 30;
const MIN_WIDTH = 48;
const MAX_WIDTH = 640;
const LEAST_NAME = 104;

const FIRST = ["op", "change", "introduced_severity", "severity", "attribution", "source", "latency_ms"];
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
/** Of a column whose label holds a program's name. */
const WORDY = 136;

/** The op column first (it stays in view), what rows are ranked by beside it, the rest as sent. */
export function tableOrder(columns: readonly Column[]): Column[] {
  const place = (column: Column): number => {
    // What another program has stands beside what the first one has.
    const at = FIRST.indexOf(column.name.replace(/_\d+$/, ""));
    return at < 0 ? FIRST.length : at;
  };
  return [...columns].sort((a, b) => place(a) - place(b));
}

function defaultWidth(column: Column): number {
  if (column.kind === "text") return Math.max(TEXT_WIDTHS[column.name] ?? 96, headWidth(column));
  if (column.name.endsWith("severity") || addsUp(column)) return Math.max(120, headWidth(column));
  return Math.max(80, headWidth(column));
}

function headWidth(column: Column): number {
  if (column.label.includes(": ")) return WORDY;
  return Math.ceil(column.label.length * CHARACTER) + 36;
}

export function clampWidth(width: number): number {
  return Math.round(Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, width)));
}

/** The narrowest in which a column's numbers are whole. */
function leastWidth(column: Column): number {
  if (column.kind === "text") return column.name === "op" ? 180 : 96;
  return Math.max(76, headWidth(column));
}

/** How much of what is left over a column takes: names are longer than anything else. */
function stretch({ kind, name }: Column): number {
  return name === "op" ? 4 : kind === "text" ? 2 : 1;
}

/**
 * Widths that fill the room: as many columns as can stand in it stand in it whole, so that no number is cut at the
 * edge; the others follow, out of sight. What was sized by hand stays as it is.
 */
export function columnWidths(
  columns: readonly Column[],
  chosen: ReadonlyMap<string, number>,
  room: number,
): number[] {
  const usual = columns.map((column) => chosen.get(column.name) ?? defaultWidth(column));
  if (room <= 0) return usual;
  const least = columns.map((column) => chosen.get(column.name) ?? Math.min(leastWidth(column), defaultWidth(column)));
  // Where there is little room, the name gives way to what it is ranked by.
  if (columns.length > 1 && !chosen.has("op") && columns[0].name === "op") {
    least[0] = Math.min(least[0], Math.max(LEAST_NAME, room - least[1]));
  }
  let fit = 0;
  for (let used = 0; fit < columns.length && used + least[fit] <= room; fit++) used += least[fit];
  const inside = columns.slice(0, fit);
  // From the least to the usual, then beyond it.
  const sum = (widths: readonly number[]): number => widths.slice(0, fit).reduce((all, one) => all + one, 0);
  const share = Math.min(1, (room - sum(least)) / Math.max(1, sum(usual) - sum(least)));
  const widths = usual.map((width, k) => (k < fit ? Math.floor(least[k] + share * (width - least[k])) : width));
  const free = room - sum(widths);
  const elastic = inside.map((column) => (chosen.has(column.name) ? 0 : stretch(column)));
  const parts = elastic.reduce((all, one) => all + one, 0);
  if (parts === 0) return widths;
  inside.forEach((_, k) => (widths[k] += Math.floor((free * elastic[k]) / parts)));
  widths[0] += chosen.has(columns[0].name) ? 0 : room - sum(widths);
  return widths;
}

interface ColumnRange {
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

export interface PlacedColumn {
  column: Column;
  index: number;
}

/** The columns in view in `room` pixels, and the sticky first one. */
export function useColumnsInView(
  element: () => HTMLElement | null,
  columns: readonly Column[],
  widths: readonly number[],
  room: number,
): readonly PlacedColumn[] {
  // Where the table is scrolled to comes with its events: asking for it would lay the page out.
  const left = useRef(0);
  const { first, end } = columnsInView(widths, left.current, room);
  const [, setDrawn] = useState("");
  useLayoutEffect(() => {
    const grid = element();
    if (!grid) return;
    const scrolled = (): void => {
      left.current = grid.scrollLeft;
      setDrawn(Object.values(columnsInView(widths, left.current, room)).join());
    };
    grid.addEventListener("scroll", scrolled, { passive: true });
    return () => grid.removeEventListener("scroll", scrolled);
  }, [widths.join(), room]);

  return useMemo(() => {
    const placed = columns.map((column, index) => ({ column, index }));
    return placed.filter(({ index }) => index === 0 || (index >= first && index < end));
  }, [columns, first, end]);
}
