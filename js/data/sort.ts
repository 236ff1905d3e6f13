// Order of the table rows. Every column is turned once into dense integer ranks; a sort then counts them, which is
// stable for any number of keys and takes time in proportion to the rows.
import { type Column, isMetric } from "./columns";

export interface SortKey {
  column: string;
  descending: boolean;
}

/** Ascending dense ranks of a column; -1 where the value is not known. */
export interface Ranks {
  rank: Int32Array;
  count: number;
}

/** The place of a number in the first `count` of ascending ones; a third of the time of a search with a comparison. */
function placeOf(value: number, ascending: Float64Array, count: number): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (ascending[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function numberRanks(values: Float64Array, rows: number): Ranks {
  // Sorting numbers without a comparison of ours is several times faster; NaNs come last.
  const distinct = values.slice(0, rows).sort();
  let count = 0;
  for (const value of distinct) {
    if (!Number.isNaN(value) && (count === 0 || value !== distinct[count - 1])) distinct[count++] = value;
  }
  const rank = new Int32Array(rows).fill(-1);
  for (let row = 0; row < rows; row++) if (!Number.isNaN(values[row])) rank[row] = placeOf(values[row], distinct, count);
  return { rank, count };
}

/** Non-finite mismatches rank beyond every number, on the bad side. */
function withMismatches(ranks: Ranks, mismatch: Uint8Array, highIsBetter: boolean): Ranks {
  const { rank, count } = ranks;
  for (let row = 0; row < rank.length; row++) {
    if (mismatch[row]) rank[row] = highIsBetter ? 0 : count;
    else if (highIsBetter && rank[row] >= 0) rank[row]++;
  }
  return { rank, count: count + 1 };
}

/** Ranks of one column; `mismatch` flags the rows that are worst under every metric. */
export function rankColumn(column: Column, mismatch: Uint8Array): Ranks {
  const rows = mismatch.length;
  if (column.kind === "text") {
    return { rank: column.codes.slice(0, rows), count: column.dictionary.length };
  }
  const ranks = numberRanks(column.values, rows);
  return isMetric(column) ? withMismatches(ranks, mismatch, column.better === "high") : ranks;
}

function sortBy(rows: Uint32Array, { rank, count }: Ranks, descending: boolean): Uint32Array {
  const keys = rows.map((row) => (rank[row] < 0 ? count : descending ? count - 1 - rank[row] : rank[row]));
  const next = new Uint32Array(count + 2);
  for (const key of keys) next[key + 1]++;
  for (let key = 0; key < count; key++) next[key + 1] += next[key];
  const sorted = new Uint32Array(rows.length);
  for (let position = 0; position < rows.length; position++) sorted[next[keys[position]]++] = rows[position];
  return sorted;
}

/** `rows` in the order of the keys; unknown values come last in both directions, ties keep their order. */
export function sortRows(
  rows: Uint32Array,
  keys: readonly SortKey[],
  ranksOf: (column: string) => Ranks | null,
): Uint32Array {
  let order = rows;
  for (const key of [...keys].reverse()) {
    const ranks = ranksOf(key.column);
    if (ranks) order = sortBy(order, ranks, key.descending);
  }
  return order;
}

/** The keys after a click on a header; `add` (shift) appends, or flips, a second key. */
export function nextKeys(
  keys: readonly SortKey[],
  column: string,
  descendingFirst: boolean,
  add: boolean,
): SortKey[] {
  const at = keys.findIndex((key) => key.column === column);
  const flipped = (key: SortKey): SortKey => ({ ...key, descending: !key.descending });
  const fresh = { column, descending: descendingFirst };
  if (!add || keys.length === 0) {
    return at === 0 ? [flipped(keys[0])] : [fresh];
  }
  if (at >= 0) return keys.map((key, k) => (k === at ? flipped(key) : key));
  return [keys[0], fresh];
}
