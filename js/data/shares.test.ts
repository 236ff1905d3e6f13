// Shares of the error as one bar: the largest by themselves, the rest together, nothing lost.
import { expect, test } from "vitest";
import { COLORED, segmentsOf } from "./shares";

test("positive shares fall, then come those below zero, and the sum is kept", () => {
  const shares = Float64Array.from([0.1, NaN, 0.6, -0.05, 0.3, 0]);
  const segments = segmentsOf(shares);
  expect(segments.map(({ row }) => row)).toEqual([2, 4, 0, 3]);
  expect(segments.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(0.95);
});

test("what is too many or too small is put together, by sign", () => {
  const shares = Float64Array.from({ length: 40 }, (_, row) =>
    row < 10 ? 1 - row / 20 : row % 2 ? 1e-4 : -1e-4,
  );
  const segments = segmentsOf(shares);
  const named = segments.filter(({ row }) => row >= 0);
  expect(named.map(({ rank }) => rank)).toEqual(Array.from({ length: COLORED }, (_, rank) => rank));
  const rest = segments.filter(({ row }) => row < 0);
  expect(rest.map(({ rows }) => rows)).toEqual([4 + 15, 15]);
  const sum = shares.reduce((all, share) => all + share, 0);
  expect(segments.reduce((all, { share }) => all + share, 0)).toBeCloseTo(sum);
});

test("no shares, no segments", () => {
  expect(segmentsOf(Float64Array.from([NaN, 0]))).toEqual([]);
});
