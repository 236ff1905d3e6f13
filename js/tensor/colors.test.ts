// Colours of the maps: opacity is size, hue is sign, and a single element can be seen.
import { expect, test } from "vitest";
import { ABOVE, BELOW, DENSITY, NONFINITE, extent, paintCounts, paintSigned, strength } from "./colors";

test("the sign gives the hue, the size the opacity", () => {
  const pixels = paintSigned(Float64Array.from([-1, 0, 0.5, NaN, Infinity]), 1, false);
  expect([...pixels.slice(0, 4)]).toEqual([...BELOW, 255]);
  expect(pixels[7]).toBe(0);
  expect([...pixels.slice(8, 11)]).toEqual([...ABOVE]);
  expect(pixels[11]).toBeCloseTo(128, -1);
  expect([...pixels.slice(12, 16)]).toEqual([...NONFINITE, 255]);
  expect([...pixels.slice(16, 20)]).toEqual([...NONFINITE, 255]);
});

test("the scale holds both ends", () => {
  expect(extent(-3, 1)).toBe(3);
  expect(extent(NaN, NaN)).toBe(0);
});

test("a logarithmic scale shows what is four decades below, and nothing for nothing", () => {
  expect(strength(1e-2, 1, true)).toBeCloseTo(0.5);
  expect(strength(1e-5, 1, true)).toBe(0);
  expect(strength(0, 1, true)).toBe(0);
  expect(strength(0, 0, false)).toBe(0);
});

test("counts: one element is seen, the first row is at the bottom", () => {
  const pixels = paintCounts(Float64Array.from([1, 0, 0, 1e6]), 2, 1e6);
  const opacity = (cell: number): number => pixels[4 * cell + 3];
  expect([...pixels.slice(8, 11)]).toEqual([...DENSITY]);
  expect(opacity(2)).toBeGreaterThan(25);
  expect(opacity(1)).toBe(255);
  expect(opacity(0)).toBe(0);
});
