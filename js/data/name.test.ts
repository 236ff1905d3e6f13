// Long names keep what tells most: the operator, the line's number.
import { expect, test } from "vitest";
import { shortName, splitName } from "./name";

test.each([
  ["attention.self · linear +5", "", "attention.self · ", "linear +5"],
  ["11.attention.self · linear +5", "11.", "attention.self · ", "linear +5"],
  ["block3.conv · conv2d", "", "block3.conv · ", "conv2d"],
  ["0 · conv2d", "", "0 · ", "conv2d"],
  ["modeling_swinv2.py:418", "", "modeling_swinv2.py", ":418"],
  ["linear +5", "", "", "linear +5"],
  ["feature_extraction_backbone", "", "", "feature_extraction_backbone"],
])("%s", (text, head, place, kept) => expect(splitName(text)).toEqual({ head, place, kept }));

test.each([
  ["attention.self · linear", 40, "attention.self · linear"],
  ["layer.3.attention.self · linear", 21, "…ention.self · linear"],
  ["11.attention.self · linear", 21, "11.…ion.self · linear"],
  ["11.attention.self · linear", 15, "11.…lf · linear"],
  ["layer.3.attention.self · scaled_dot", 14, "scaled_dot"],
  ["layer.3.attention.self · scaled_dot_product", 14, "scaled_dot_pr…"],
  ["modeling_swinv2.py:418", 12, "…inv2.py:418"],
  ["linear, relu, softmax", 10, "linear, r…"],
])("%s in %i letters", (text, letters, short) => {
  expect(shortName(text, letters)).toBe(short);
  expect(short.length).toBeLessThanOrEqual(Math.max(letters, text.length));
});
