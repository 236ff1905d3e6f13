// Which rows the table shows: free text, backend, kind, status and a threshold on a metric.
// Text is matched once per dictionary entry, not once per row.
import { type Column, type NumberColumn, isMetric } from "./columns";

export interface Word {
  text: string;
  exclude: boolean;
}

export type StatusChoice = "compared" | "grouped" | "not compared";

export interface Threshold {
  column: string;
  value: number;
  below: boolean;
}

export interface RowFilter {
  text: string;
  backend: string | null;
  kind: string | null;
  statuses: ReadonlySet<StatusChoice>;
  threshold: Threshold | null;
}

export interface FilterTable {
  rows: number;
  compared: number;
  mismatch: Uint8Array;
  status: Uint8Array;
  column(name: string): Column | undefined;
}

const TEXT_COLUMNS = ["op", "module", "source", "reference_ops", "backend"];
export const STATUSES: readonly StatusChoice[] = ["compared", "grouped", "not compared"];
/** What is shown at first. */
export const DEFAULT_STATUSES: ReadonlySet<StatusChoice> = new Set(["compared", "grouped"]);

/** Words of a filter text: spaces separate, quotes keep spaces, a leading minus excludes. */
export function parseFilter(text: string): Word[] {
  const words: Word[] = [];
  for (const match of text.matchAll(/(-?)(?:"([^"]*)"?|(\S+))/g)) {
    const word = (match[2] ?? match[3] ?? "").toLowerCase();
    if (word !== "") words.push({ text: word, exclude: match[1] === "-" });
  }
  return words;
}

/** For each row the index in STATUSES: anything that is neither grouped nor uncompared was compared. */
export function statusOf(status: Column | undefined, rows: number, compared: number): Uint8Array {
  const result = new Uint8Array(rows);
  for (let row = compared; row < rows; row++) result[row] = 2;
  if (status?.kind !== "text") return result;
  const codes = status.dictionary.map((name) => Math.max(0, STATUSES.indexOf(name as StatusChoice)));
  for (let row = 0; row < rows; row++) {
    const code = status.codes[row];
    if (code >= 0) result[row] = codes[code];
  }
  return result;
}

/** How many rows have each status. */
export function statusCounts(table: FilterTable): Record<StatusChoice, number> {
  const counts = { compared: 0, grouped: 0, "not compared": 0 };
  for (const code of table.status) counts[STATUSES[code]]++;
  return counts;
}

/** Distinct texts of a column with the number of rows of each. */
export function textCounts(column: Column | undefined): { text: string; count: number }[] {
  if (column?.kind !== "text") return [];
  const counts = new Int32Array(column.dictionary.length);
  for (const code of column.codes) if (code >= 0) counts[code]++;
  return column.dictionary
    .map((text, code) => ({ text, count: counts[code] }))
    .filter(({ count }) => count > 0);
}

function clearUnmatchedWord(keep: Uint8Array, word: Word, columns: readonly Column[]): void {
  const hit = new Uint8Array(keep.length);
  for (const column of columns) {
    if (column.kind !== "text") continue;
    const matches = column.dictionary.map((entry) => entry.toLowerCase().includes(word.text));
    for (let row = 0; row < keep.length; row++) {
      const code = column.codes[row];
      if (code >= 0 && matches[code]) hit[row] = 1;
    }
  }
  for (let row = 0; row < keep.length; row++) {
    if ((hit[row] === 1) === word.exclude) keep[row] = 0;
  }
}

function clearOtherText(keep: Uint8Array, column: Column | undefined, wanted: string): void {
  if (column?.kind !== "text") return;
  const code = column.dictionary.indexOf(wanted);
  for (let row = 0; row < keep.length; row++) if (column.codes[row] !== code) keep[row] = 0;
}

function clearBeyond(
  keep: Uint8Array,
  column: NumberColumn,
  threshold: Threshold,
  mismatch: Uint8Array,
): void {
  const metric = isMetric(column);
  const badSide = threshold.below === (column.better === "high");
  for (let row = 0; row < keep.length; row++) {
    const value = column.values[row];
    const within = threshold.below ? value <= threshold.value : value >= threshold.value;
    const passes = metric && mismatch[row] ? badSide : within;
    if (!passes) keep[row] = 0;
  }
}

/** Ids of the rows that pass, ascending. */
export function filterRows(table: FilterTable, filter: RowFilter): Uint32Array {
  const keep = new Uint8Array(table.rows);
  for (let row = 0; row < table.rows; row++) {
    keep[row] = filter.statuses.has(STATUSES[table.status[row]]) ? 1 : 0;
  }
  const columns = TEXT_COLUMNS.map(table.column).filter((column) => column !== undefined);
  for (const word of parseFilter(filter.text)) clearUnmatchedWord(keep, word, columns);
  if (filter.backend !== null) clearOtherText(keep, table.column("backend"), filter.backend);
  if (filter.kind !== null) clearOtherText(keep, table.column("kind"), filter.kind);
  const limited = filter.threshold ? table.column(filter.threshold.column) : undefined;
  if (filter.threshold && limited?.kind === "number") {
    clearBeyond(keep, limited, filter.threshold, table.mismatch);
  }
  const rows = new Uint32Array(table.rows);
  let count = 0;
  for (let row = 0; row < table.rows; row++) if (keep[row]) rows[count++] = row;
  return rows.slice(0, count);
}
