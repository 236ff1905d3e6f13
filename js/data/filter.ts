// Which rows pass a query. Text is matched once per dictionary entry, not once per row.
import { type Column, type NumberColumn, type TextColumn, isMetric } from "./columns";
import { type Runs, keepWorst, saysRun } from "./runs";
import { STATUS_FLAGS, type Span, type Term, addressMatcher, columnsOf, isField, parseQuery, problemOf, spanOf, textMatcher, WORD_COLUMNS } from "./query";

export type StatusChoice = "compared" | "grouped" | "not compared";

export interface FilterTable {
  rows: number;
  compared: number;
  mismatch: Uint8Array;
  status: Uint8Array;
  /** How bad each row's own error is for its precision: 0, 1 (look), 2 (fault). */
  levels: Uint8Array;
  /** A flag for values that nobody reads and that nothing is wrong with. */
  unused: Uint8Array;
  /** The row that is to be looked at first, -1 for none. */
  first: number;
  /** Null for a program that ran once. */
  runs: Runs | null;
  /** Grows with a row's own error; null where that is not known. */
  ownBadness(): Int32Array | null;
  column(name: string): Column | undefined;
}

const STATUSES: readonly StatusChoice[] = ["compared", "grouped", "not compared"];

const EMPTY = "empty";

/** For each row the index in STATUSES: anything that is not grouped, uncompared or empty was compared. */
export function statusOf(status: Column | undefined, rows: number, compared: number): Uint8Array {
  const result = new Uint8Array(rows);
  for (let row = compared; row < rows; row++) result[row] = 2;
  if (status?.kind !== "text") return result;
  const codes = status.dictionary.map((name) => name === EMPTY ? 2 : Math.max(0, STATUSES.indexOf(name as StatusChoice)));
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

function markText(hit: Uint8Array, column: TextColumn, matches: (entry: string) => boolean): void {
  const found = column.dictionary.map(matches);
  for (let row = 0; row < hit.length; row++) {
    const code = column.codes[row];
    if (code >= 0 && found[code]) hit[row] = 1;
  }
}

/** A non-finite mismatch is beyond every number, on the bad side. */
function markSpan(hit: Uint8Array, column: NumberColumn, { low, high, closed }: Span, mismatch: Uint8Array): void {
  const beyond = isMetric(column) && (column.better === "high" ? low : high);
  const passes = beyond === Infinity || beyond === -Infinity;
  for (let row = 0; row < hit.length; row++) {
    if (beyond !== false && mismatch[row]) {
      if (passes) hit[row] = 1;
      continue;
    }
    const value = column.values[row];
    const above = value > low || (value === low && (closed || low === -Infinity));
    const below = value < high || (value === high && (closed || high === Infinity));
    if (above && below) hit[row] = 1;
  }
}

function markPositive(hit: Uint8Array, column: Column | undefined): void {
  if (column?.kind !== "number") return;
  for (let row = 0; row < hit.length; row++) if (column.values[row] > 0) hit[row] = 1;
}

function markFlag(hit: Uint8Array, table: FilterTable, flag: string): void {
  const where = (test: (row: number) => boolean): void => {
    for (let row = 0; row < hit.length; row++) if (test(row)) hit[row] = 1;
  };
  const { status, levels, mismatch, unused, first } = table;
  switch (flag) {
    case "nan":
    case "inf":
      for (const side of ["reference", "runtime"]) markPositive(hit, table.column(`${side}_${flag}`));
      return;
    case "fault":
      return where((row) => levels[row] === 2);
    case "look":
      return where((row) => levels[row] >= 1);
    case "mismatch":
      return where((row) => mismatch[row] === 1);
    case "unused":
      return where((row) => unused[row] === 1);
    case "first":
      return where((row) => row === first);
    case "inside": {
      const kinds = table.column("kind");
      if (kinds?.kind === "text") markText(hit, kinds, (entry) => entry === "inner");
      return;
    }
    case "any":
      return where(() => true);
    default:
      return where((row) => status[row] === ["compared", "grouped", "uncompared"].indexOf(flag));
  }
}

function markTerm(hit: Uint8Array, table: FilterTable, term: Term): void {
  if (term.field === "is") return markFlag(hit, table, term.value);
  const word = term.field === "";
  const address = word && /^#\d/.test(term.value);
  const names = address ? [table.column("row")] : word ? WORD_COLUMNS.map(table.column) : columnsOf(term.field, table.column);
  const matches = address
    ? addressMatcher(term.value)
    : word
      ? (entry: string) => entry.toLowerCase().includes(term.value)
      : textMatcher(term.value);
  const span = spanOf(term);
  for (const column of names) {
    if (column?.kind === "text") markText(hit, column, matches);
    else if (column && span) markSpan(hit, column, span, table.mismatch);
  }
}

/** The terms of a text that can be answered, and what is wrong with the others. */
export function readQuery(table: Pick<FilterTable, "column">, text: string): { terms: Term[]; problems: string[] } {
  const all = parseQuery(text, (name) => isField(name, table.column));
  const problems = all.map((term) => problemOf(term, table.column));
  return {
    terms: all.filter((_, k) => problems[k] === null),
    problems: problems.filter((problem) => problem !== null),
  };
}

/** True for a query that says itself whether rows that were not compared are wanted. */
function saysStatus({ field, value }: Term): boolean {
  return field === "status" || (field === "is" && STATUS_FLAGS.includes(value));
}

/** Ids of the rows that pass, ascending. Rows that were not compared, and values that nobody reads, are left out unless the query speaks of them; of several runs the worst stays. */
export function filterRows(table: FilterTable, text: string): Uint32Array {
  const { terms } = readQuery(table, text);
  const keep = new Uint8Array(table.rows).fill(1);
  if (!terms.some(saysStatus)) for (let row = 0; row < table.rows; row++) keep[row] = table.status[row] === 2 || table.unused[row] ? 0 : 1;
  for (const term of terms) {
    const hit = new Uint8Array(table.rows);
    markTerm(hit, table, term);
    const wanted = term.exclude ? 0 : 1;
    for (let row = 0; row < table.rows; row++) if (hit[row] !== wanted) keep[row] = 0;
  }
  if (table.runs && !saysRun(terms)) keepWorst(keep, table.runs, table.ownBadness());
  const rows = new Uint32Array(table.rows);
  let count = 0;
  for (let row = 0; row < table.rows; row++) if (keep[row]) rows[count++] = row;
  return rows.slice(0, count);
}
