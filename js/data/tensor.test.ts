// Where a cell of a map is in the tensor.
import { expect, test } from "vitest";
import { sampleMap } from "../dev/sampleTensor";
import { FIRST_MAP, cellIndex, cellOf, sliceAt, channelAxis, mapQuestion, parseShape } from "./tensor";

const base = { row: 0, values: new Float64Array(), kinds: null, low: 0, high: 1 };

test("the index of a cell names the elements that it stands for", () => {
  const map = {
    ...base,
    shape: [1, 197, 768],
    axes: [1, 2],
    index: [0, 9, 9],
    height: 197,
    width: 256,
    block: [1, 3],
  };
  expect(cellIndex(map, 40, 77)).toBe("[0, 40, 231–233]");
  expect(cellIndex({ ...map, shape: [1, 197, 767] }, 0, 255)).toBe("[0, 0, 765–766]");
});

test("an element's cell is the one that names it; off the slice it has none", () => {
  const map = {
    ...base,
    shape: [2, 197, 768],
    axes: [1, 2],
    index: [1, 9, 9],
    height: 197,
    width: 256,
    block: [1, 3],
  };
  expect(cellOf(map, [1, 40, 232])).toEqual({ down: 40, across: 77 });
  expect(cellIndex(map, 40, 77)).toBe("[1, 40, 231–233]");
  expect(cellOf(map, [0, 40, 232])).toBeNull();
  expect(cellOf(map, [40, 232])).toBeNull();
});

test("the slice of a channel runs over the other axes", () => {
  expect(sliceAt([2, 16, 8, 8], 1, 5)).toEqual({ axes: [2, 3], index: [0, 5, 0, 0] });
  expect(sliceAt([2, 197, 768], 2, 7)).toEqual({ axes: [0, 1], index: [0, 0, 7] });
  expect(sliceAt([16], 0, 3)).toEqual({ axes: null, index: [3] });
});

test("axes that are turned around are read turned around", () => {
  const map = { ...base, shape: [4, 5], axes: [1, 0], index: [0, 0], height: 5, width: 4, block: [1, 1] };
  expect(cellIndex(map, 3, 2)).toBe("[2, 3]");
});

test("a vector is a strip, a single number one cell", () => {
  const strip = { ...base, shape: [10], axes: [0], index: [0], height: 1, width: 5, block: [1, 2] };
  expect(cellIndex(strip, 0, 2)).toBe("[4–5]");
  expect(
    cellIndex({ ...base, shape: [], axes: [], index: [], height: 1, width: 1, block: [1, 1] }, 0, 0),
  ).toBe("[]");
});

test("an answer is decoded with the row that was asked for", () => {
  const map = mapQuestion(7, FIRST_MAP).decode(sampleMap({ of: "error", row: 7 }));
  expect(map).toMatchObject({ row: 7, height: 197, width: 256 });
  expect(map.values).toHaveLength(197 * 256);
  expect(map.high).toBeCloseTo(3.1e-2);
});

test("channels are those of an image, else the last axis", () => {
  expect(channelAxis([1, 64, 8, 8])).toBe(1);
  expect(channelAxis([1, 197, 768])).toBe(2);
  expect(channelAxis([])).toBe(0);
});

test.each([
  ["[1, 197, 768]", [1, 197, 768]],
  ["[]", []],
  ["", null],
  [null, null],
])("shape %s", (text, shape) => expect(parseShape(text)).toEqual(shape));
