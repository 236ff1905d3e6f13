// The order of the rows: worst first, mismatches worst of all, unknown last, ties stable.
import { expect, test } from "vitest";
import { numberColumn, textColumn } from "../dev/columns";
import { fastest } from "../dev/fastest";
import { type Ranks, nextKeys, rankColumn, sortRows } from "./sort";

function order(columns: Record<string, Ranks>, rows: number, ...keys: [string, boolean][]): number[] {
  const all = Uint32Array.from({ length: rows }, (_, row) => row);
  const wanted = keys.map(([column, descending]) => ({ column, descending }));
  return [...sortRows(all, wanted, (name) => columns[name] ?? null)];
}

const none = new Uint8Array(5);

test("infinities are values, unknown comes last in both directions", () => {
  const ranks = rankColumn(numberColumn([3, NaN, Infinity, -Infinity, 0]), none);
  expect(order({ m: ranks }, 5, ["m", true])).toEqual([2, 0, 4, 3, 1]);
  expect(order({ m: ranks }, 5, ["m", false])).toEqual([3, 4, 0, 2, 1]);
});

test("a non-finite mismatch is worse than every number, whatever its own value is", () => {
  const mismatch = Uint8Array.from([0, 0, 1, 0, 0]);
  const low = rankColumn(numberColumn([3, Infinity, 0, 1, NaN]), mismatch);
  expect(order({ m: low }, 5, ["m", true])).toEqual([2, 1, 0, 3, 4]);
  const high = rankColumn(numberColumn([30, Infinity, NaN, 10, NaN], { better: "high" }), mismatch);
  expect(order({ m: high }, 5, ["m", false])).toEqual([2, 3, 0, 1, 4]);
});

test("ties keep the order of the rows, a second key breaks them", () => {
  const first = rankColumn(numberColumn([1, 1, 2, 1, 2]), none);
  const second = rankColumn(textColumn([2, 0, 1, 1, 0], ["add", "bmm", "conv"]), none);
  expect(order({ m: first }, 5, ["m", true])).toEqual([2, 4, 0, 1, 3]);
  expect(order({ m: first, op: second }, 5, ["m", true], ["op", false])).toEqual([4, 2, 1, 3, 0]);
});

test("text without a value comes last", () => {
  const ranks = rankColumn(textColumn([1, -1, 0, -1, 1], ["a", "b"]), none);
  expect(order({ op: ranks }, 5, ["op", true])).toEqual([0, 4, 2, 1, 3]);
});

test("only the rows that are asked for are sorted", () => {
  const ranks = rankColumn(numberColumn([5, 4, 3, 2, 1]), none);
  const kept = Uint32Array.from([0, 3, 4]);
  expect([...sortRows(kept, [{ column: "m", descending: false }], () => ranks)]).toEqual([4, 3, 0]);
});

test("sorting 50,000 rows is far below a frame", () => {
  const rows = 50_000;
  const values = Array.from({ length: rows }, (_, row) => Math.sin(row * 12.9898) * 43758.5453);
  const ranks = rankColumn(numberColumn(values), new Uint8Array(rows));
  const all = Uint32Array.from({ length: rows }, (_, row) => row);
  const sort = (): Uint32Array => sortRows(all, [{ column: "m", descending: true }], () => ranks);
  expect(sort().every((row, k, sorted) => k === 0 || values[sorted[k - 1]] >= values[row])).toBe(true);
  expect(fastest(sort)).toBeLessThan(50);
});

test("a click sorts worst first, a second click turns it, shift-click adds or turns a second key", () => {
  const severity = { column: "severity", descending: true };
  const op = { column: "op", descending: false };
  expect(nextKeys([severity], "op", false, false)).toEqual([op]);
  expect(nextKeys([op], "op", false, false)).toEqual([{ column: "op", descending: true }]);
  expect(nextKeys([severity], "op", false, true)).toEqual([severity, op]);
  expect(nextKeys([severity, op], "op", false, true)).toEqual([severity, { column: "op", descending: true }]);
  expect(nextKeys([severity, op], "kind", false, true)).toEqual([
    severity,
    { column: "kind", descending: false },
  ]);
  expect(nextKeys([severity, op], "severity", true, false)).toEqual([
    { column: "severity", descending: false },
  ]);
});
