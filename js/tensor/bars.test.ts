// Geometry of the histograms.
import { expect, test } from "vitest";
import { binAt, domainOf, largest, outline, scalesOf } from "./bars";

const frame = { width: 138, height: 120, left: 30, right: 8, top: 10, bottom: 10 };
const edges = [0, 1, 2, 3, 4];

test("the outline follows the tops of the bins", () => {
  const scales = scalesOf(edges, 10, false, frame);
  expect(outline(edges, [0, 10, 5, 0], scales, true)).toBe(
    "M30.0,110.0V110.0H55.0V10.0H80.0V60.0H105.0V110.0H130.0V110.0Z",
  );
});

test("on a log scale a single element is visible and an empty bin is not", () => {
  const scales = scalesOf(edges, 10_000, true, frame);
  expect(scales.y(0)).toBe(110);
  expect(scales.y(1)).toBeLessThan(105);
  expect(scales.y(10_000)).toBe(10);
});

test("the bin under the pointer includes its left edge, the last one both", () => {
  expect(binAt(edges, 0)).toBe(0);
  expect(binAt(edges, 0.999)).toBe(0);
  expect(binAt(edges, 1)).toBe(1);
  expect(binAt(edges, 4)).toBe(3);
  expect(binAt(edges, 4.01)).toBe(-1);
  expect(binAt(edges, -1)).toBe(-1);
});

test("a tensor with one value still has a range", () => {
  const [low, high] = domainOf([0.5, 0.5]);
  expect(low).toBeLessThan(0.5);
  expect(high).toBeGreaterThan(0.5);
  expect(domainOf([NaN, NaN])).toEqual([0, 1]);
});

test("tiny ranges get exponents, ordinary ones do not", () => {
  const tiny = scalesOf([-4e-6, 4e-6], 10, false, frame).xTicks.map((tick) => tick.text);
  expect(tiny).toContain("0");
  expect(tiny.some((text) => /e-6$/.test(text))).toBe(true);
  expect(scalesOf([-3, 4], 10, false, frame).xTicks.map((tick) => tick.text)).toEqual(["-2", "0", "2", "4"]);
});

test("the largest count is over all series", () => {
  expect(largest([[1, 9], null, [12, 2]])).toBe(12);
});
