// Which rows pass the filters, and how the filter text is read.
import { expect, test } from "vitest";
import { samplePayload } from "../dev/samplePayload";
import { DEFAULT_STATUSES, type RowFilter, filterRows, parseFilter } from "./filter";
import { decodePayload } from "./payload";

const table = decodePayload(samplePayload({ layers: 10, uncompared: 3 }));
const everything: RowFilter = {
  text: "",
  backend: null,
  kind: null,
  statuses: DEFAULT_STATUSES,
  threshold: null,
};
const rows = (filter: Partial<RowFilter>): number[] => [...filterRows(table, { ...everything, ...filter })];

test("words are split at spaces, quotes keep them, a minus excludes", () => {
  expect(parseFilter('Conv "Layer Norm" -add -"bmm out"')).toEqual([
    { text: "conv", exclude: false },
    { text: "layer norm", exclude: false },
    { text: "add", exclude: true },
    { text: "bmm out", exclude: true },
  ]);
  expect(parseFilter('  "half open')).toEqual([{ text: "half open", exclude: false }]);
  expect(parseFilter(' - "" ')).toEqual([{ text: "-", exclude: false }]);
});

test("what was not compared is hidden at first", () => {
  expect(rows({})).toHaveLength(table.compared);
  expect(rows({ statuses: new Set(["not compared"]) })).toEqual([80, 81, 82]);
});

test("all words must match, in any of the text columns", () => {
  const found = rows({ text: "layer_norm encoder_layer_3" });
  expect(found.length).toBeGreaterThan(0);
  for (const row of found) {
    expect(table.text("op", row)).toContain("layer_norm");
    expect(table.text("module", row)).toContain("encoder_layer_3");
  }
  expect(rows({ text: "softmax" }).every((row) => table.text("kind", row) === "delegate")).toBe(true);
  expect(rows({ text: "no such operator" })).toEqual([]);
});

test("an excluded word removes the rows that have it, also those without that column", () => {
  const without = rows({ text: "-xnnpack" });
  expect(without.length).toBeGreaterThan(0);
  expect(without.every((row) => table.text("backend", row) === null)).toBe(true);
  expect(without.length + rows({ text: "xnnpack" }).length).toBe(table.compared);
});

test("a threshold keeps what is at least as bad; mismatches always are", () => {
  const found = rows({ threshold: { column: "severity", value: 10, below: false } });
  const mismatched = found.filter((row) => table.mismatch[row]);
  expect(mismatched).toEqual([60]);
  for (const row of found) {
    if (!table.mismatch[row]) expect(table.number("severity", row)).toBeGreaterThanOrEqual(10);
  }
  const good = rows({ threshold: { column: "severity", value: 10, below: true } });
  expect(good).not.toContain(60);
  expect(found.length + good.length).toBe(table.compared);
});
