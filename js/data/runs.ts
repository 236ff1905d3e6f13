// Executions of the program. Each has the same rows: of what is the same value in all of them, the worst is shown, unless
// the search box says which runs it wants.
import { type Column, numberAt } from "./columns";
import { type Term, columnsOf, withTerms } from "./query";

export interface Runs {
  /** Their numbers, ascending. */
  numbers: readonly number[];
  /** For each row a number that it shares with the rows of the same value in other runs. */
  values: Int32Array;
}

const COLUMN = "run";
/** What tells the values of one run apart. */
const NAMING = ["instruction", "output", "kind", "op", "shape"];

/** Null for a program that ran once. */
export function runsOf(rows: number, column: (name: string) => Column | undefined): Runs | null {
  const blocks = column(COLUMN);
  if (blocks?.kind !== "number") return null;
  const numbers = [...new Set(blocks.values)].filter((run) => !Number.isNaN(run)).sort((a, b) => a - b);
  if (numbers.length < 2) return null;
  const naming = NAMING.map(column);
  const codeOf = (one: Column | undefined, row: number): number => (one?.kind === "text" ? one.codes[row] : numberAt(one, row));
  const known = new Map<string, number>();
  const values = new Int32Array(rows);
  for (let row = 0; row < rows; row++) {
    const name = naming.map((one) => codeOf(one, row)).join(" ");
    const value = known.get(name) ?? known.size;
    known.set(name, value);
    values[row] = value;
  }
  return { numbers, values };
}

/** Of each value keep the worst of the rows that are kept; the first among equals. */
export function keepWorst(keep: Uint8Array, { values }: Runs, badness: Int32Array | null): void {
  const worst = new Map<number, number>();
  for (let row = 0; row < keep.length; row++) {
    if (!keep[row]) continue;
    const held = worst.get(values[row]);
    if (held === undefined) worst.set(values[row], row);
    else if ((badness?.[row] ?? -1) > (badness?.[held] ?? -1)) {
      keep[held] = 0;
      worst.set(values[row], row);
    } else keep[row] = 0;
  }
}

function isRun({ field }: Term): boolean {
  return columnsOf(field, (name) => (name === COLUMN ? ({} as Column) : undefined)).length > 0;
}

/** True if terms say which runs are wanted. */
export function saysRun(terms: readonly Term[]): boolean {
  return terms.some(isRun);
}

/** The terms that say which runs are wanted, as a text; "" for the worst of all. */
export function runTerms(terms: readonly Term[]): string {
  return terms
    .filter(isRun)
    .map(({ text }) => text)
    .join(" ");
}

/** Every run, none folded. */
export const EVERY_RUN = "run:..";

/** A text whose runs are replaced by others. */
export function withRun(text: string, run: string): string {
  return withTerms(text, ["run", COLUMN], run);
}
