// Which rows pass a query, and how its text is read.
import { expect, test } from "vitest";
import { samplePayload } from "../dev/samplePayload";
import { completions } from "./completion";
import { filterRows, readQuery } from "./filter";
import { decodePayload } from "./payload";
import { textMatcher, withSpan } from "./query";

const table = decodePayload(samplePayload({ layers: 10, uncompared: 3 }));
const rows = (text: string): number[] => [...filterRows(table, text)];
const every = (text: string, check: (row: number) => boolean): void => {
  const found = rows(text);
  expect(found.length).toBeGreaterThan(0);
  expect(found.filter((row) => !check(row))).toEqual([]);
  const missed = rows("").filter((row) => !found.includes(row) && check(row));
  expect(missed).toEqual([]);
};
const terms = (text: string): string[] =>
  readQuery(table, text).terms.map(
    ({ field, operator, value, exclude }) => `${exclude ? "not " : ""}${field}${field && operator}${value}`,
  );

test("words, quotes, a minus, fields with their operators", () => {
  expect(terms('Conv "Layer Norm" -add -"bmm out"')).toEqual(["conv", "layer norm", "not add", "not bmm out"]);
  expect(terms('  "half open')).toEqual(["half open"]);
  expect(terms('module:encoder.* -kind:delegate severity>10 at:3..5 #=7 op:"layer norm"')).toEqual([
    "module:encoder.*",
    "not kind:delegate",
    "severity>10",
    "at:3..5",
    "#=7",
    "op:layer norm",
  ]);
});

test("what is no field is a word: overloads and source lines have colons too", () => {
  expect(terms("aten::add.out digits.py:41 C:\\x")).toEqual(["aten::add.out", "digits.py:41", "c:\\x"]);
});

test("a term that is not finished does not hide everything, one that can't be answered says why", () => {
  expect(rows("severity> op:")).toHaveLength(table.compared);
  const { terms: known, problems } = readQuery(table, "severity>many is:nonsense op>3");
  expect(known).toEqual([]);
  expect(problems).toHaveLength(3);
  expect(problems[1]).toContain("is:nonsense is not known; there are fault, look");
  const { terms: words, problems: unknown } = readQuery(table, "severty>10 modul:encoder aten::add.out");
  expect(words.map(({ text }) => text)).toEqual(["aten::add.out"]);
  expect(unknown).toEqual(["severty>10: there is no column severty", "modul:encoder: there is no column modul"]);
});

test("what was not compared is hidden unless it is asked for", () => {
  expect(rows("")).toHaveLength(table.compared);
  expect(rows("is:uncompared")).toEqual([80, 81, 82]);
  expect(rows("is:any")).toHaveLength(table.rows);
  expect(rows("status:*not*")).toEqual([80, 81, 82]);
});

test("all words must match, in any of the text columns", () => {
  for (const row of rows("layer_norm encoder_layer_3")) {
    expect(table.text("op", row)).toContain("layer_norm");
    expect(table.text("module", row)).toContain("encoder_layer_3");
  }
  expect(rows("layer_norm encoder_layer_3").length).toBeGreaterThan(0);
  expect(rows("no such operator")).toEqual([]);
});

test("an excluded word removes the rows that have it, also those without that column", () => {
  const without = rows("-xnnpack");
  expect(without.length).toBeGreaterThan(0);
  expect(without.every((row) => table.text("backend", row) === null)).toBe(true);
  expect(without.length + rows("xnnpack").length).toBe(table.compared);
});

test("fields: stars are anchored, commas are alternatives, shapes can be written with x", () => {
  every("kind:kernel", (row) => table.text("kind", row) === "kernel");
  expect(rows("kind:kernel,delegate")).toHaveLength(table.compared);
  expect(rows("module:*layer_3*").length).toBeGreaterThan(0);
  expect(rows("module:layer_3*")).toEqual([]);
  every("shape:1x197x*", (row) => table.text("shape", row)?.startsWith("[1, 197, ") ?? false);
});

test("numbers: limits and ranges; mismatches always are on the bad side", () => {
  const severity = (row: number): number => table.number("severity", row);
  every("severity>=10", (row) => table.mismatch[row] === 1 || severity(row) >= 10);
  every("severity<10", (row) => table.mismatch[row] === 0 && severity(row) < 10);
  every("total:1..10", (row) => table.mismatch[row] === 0 && severity(row) >= 1 && severity(row) <= 10);
  expect(rows("severity>=10").length + rows("severity<10").length).toBe(table.compared);
  every("at:3..5", (row) => [3, 4, 5].includes(table.number("instruction", row)));
});

test("flags", () => {
  expect(rows("is:mismatch")).toEqual([60]);
  expect(rows("is:first")).toEqual([table.first]);
  every("is:nan", (row) => table.number("runtime_nan", row) > 0);
  every("is:fault", (row) => table.levels[row] === 2);
  every("is:look", (row) => table.levels[row] >= 1);
});

test("another span replaces the one that there is", () => {
  expect(withSpan("op:add at:3..9 relu", "at:1..2")).toBe("op:add relu at:1..2");
  expect(withSpan("at:3..9", "")).toBe("");
});

test("completion: fields, then what there is of them, with counts", () => {
  const offered = (text: string): string[] => completions(table, text, text.length).map((one) => one.text);
  expect(offered("")).toContain("is:fault");
  expect(offered("sev")).toEqual(["severity>"]);
  expect(offered("add -ki")).toEqual(["kind:"]);
  expect(offered("intro")).toContain("introduced>");
  const [first] = completions(table, "add -kind:del", 13);
  expect(first).toMatchObject({ text: "kind:delegate", whole: "add -kind:delegate " });
  expect(first.about).toMatch(/^\d+ rows$/);
  expect(offered("op:")).toContain("op:executorch_call_delegate");
  for (const { whole } of completions(table, "op:", 3)) expect(rows(whole).length).toBeGreaterThan(0);
});

test("a name finds its row, and what belongs to it", () => {
  every("#3", (row) => table.number("instruction", row) === 3);
  expect(rows("#3 #4")).toEqual([]);
  expect(textMatcher("a*b*c")("aXbXc")).toBe(true);
  expect(textMatcher("a*bc*c")("abc")).toBe(false);
});

test("a glob takes linear time", () => {
  const text = `${"a".repeat(5000)}c`;
  expect(textMatcher("*a*a*a*a*a*a*a*a*a*a*b")(text)).toBe(false);
  expect(textMatcher("*a*a*a*a*a*a*a*a*a*a*c")(text)).toBe(true);
});
