// Geometry of histograms and of bars by channel.
import { expect, test } from "vitest";
import type { Channels } from "../data/tensor";
import {
  barPath,
  binOf,
  channelScales,
  domainOf,
  histogramScales,
  largest,
  outline,
  worstChannel,
} from "./scales";

const frame = { width: 138, height: 120, left: 30, right: 8, top: 10, bottom: 10 };
const edges = [0, 1, 2, 3, 4];

test("the outline follows the tops of the bins", () => {
  const scales = histogramScales(edges, 10, false, frame);
  expect(outline([0, 10, 5, 0], scales, true)).toBe(
    "M30.0,110.0V110.0H55.0V10.0H80.0V60.0H105.0V110.0H130.0V110.0Z",
  );
});

test("on a log scale a single element is visible and an empty bin is not", () => {
  const scales = histogramScales(edges, 10_000, true, frame);
  expect(scales.y(0)).toBe(110);
  expect(scales.y(1)).toBeLessThan(105);
  expect(scales.y(10_000)).toBe(10);
});

test("the bin under the pointer includes its left edge, the last one both", () => {
  expect(binOf(edges, 0)).toBe(0);
  expect(binOf(edges, 0.999)).toBe(0);
  expect(binOf(edges, 1)).toBe(1);
  expect(binOf(edges, 4)).toBe(3);
  expect(binOf(edges, 4.01)).toBe(-1);
  expect(binOf(edges, -1)).toBe(-1);
});

test("a tensor with one value still has a range", () => {
  const [low, high] = domainOf([0.5, 0.5]);
  expect(low).toBeLessThan(0.5);
  expect(high).toBeGreaterThan(0.5);
  expect(domainOf([NaN, NaN])).toEqual([0, 1]);
});

test("tiny ranges get exponents, ordinary ones do not", () => {
  const tiny = histogramScales([-4e-6, 4e-6], 10, false, frame).xTicks.map((tick) => tick.text);
  expect(tiny).toContain("0");
  expect(tiny.some((text) => /e-6$/.test(text))).toBe(true);
  expect(histogramScales([-3, 4], 10, false, frame).xTicks.map((tick) => tick.text)).toEqual([
    "-2",
    "0",
    "2",
    "4",
  ]);
});

test("the largest count is over all series", () => {
  expect(largest([[1, 9], [], [12, 2]])).toBe(12);
});

const wide = { width: 300, height: 150, left: 50, right: 10, top: 10, bottom: 20 };

function channels(rmse: number[]): Channels {
  const values = Float64Array.from(rmse);
  return { row: 0, axis: 1, size: rmse.length, rmse: values, maxAbs: values, share: values };
}

test("the worst channel is the largest that is known", () => {
  expect(worstChannel(Float64Array.from([0, NaN, 3e-9, 1e-9]))).toBe(2);
  expect(worstChannel(Float64Array.from([0, NaN]))).toBe(-1);
});

test("an error of 1e-9 fills the height", () => {
  const scales = channelScales(channels([1e-9, 0.5e-9]), "rmse", wide);
  expect(scales.y(1e-9)).toBe(wide.top);
  expect(scales.y(0)).toBe(wide.height - wide.bottom);
  expect(scales.yTicks.at(-1)?.text).toBe("1e-9");
  expect(scales.binAt(scales.x(1) + 1)).toBe(1);
});

test("only channels with an error have a bar", () => {
  const facts = channels([1, 0, NaN, 2]);
  const path = barPath(facts.rmse, channelScales(facts, "rmse", wide));
  expect(path.match(/M/g)).toHaveLength(2);
});
