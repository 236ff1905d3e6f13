// How long and how red a bar is.
import { expect, test } from "vitest";
import { numberColumn } from "../dev/columns";
import { gaugeOf } from "./gauge";

test("with thresholds the scale is absolute: a third at suspicious, two thirds at bad", () => {
  const gauge = gaugeOf(numberColumn([], { thresholds: [10, 1000] }));
  expect(gauge(10, false)).toMatchObject({ step: 1 });
  expect(gauge(10, false)?.length).toBeCloseTo(1 / 3);
  expect(gauge(1000, false)?.length).toBeCloseTo(2 / 3);
  expect(gauge(9, false)).toMatchObject({ step: 0 });
  expect(gauge(1e9, false)).toEqual({ length: 1, step: 4 });
});

test("decibels are read downwards", () => {
  const gauge = gaugeOf(numberColumn([], { format: "db", better: "high", thresholds: [60, 30] }));
  expect(gauge(90, false)).toMatchObject({ length: 0, step: 0 });
  expect(gauge(30, false)).toMatchObject({ step: 3 });
  expect(gauge(Infinity, false)).toEqual({ length: 0, step: 0 });
  expect(gauge(-Infinity, false)).toEqual({ length: 1, step: 4 });
});

test("without thresholds the bar spans the column", () => {
  const gauge = gaugeOf(numberColumn([1e-6, 1e-3, 1, NaN, 0]));
  expect(gauge(1e-6, false)?.length).toBeCloseTo(0);
  expect(gauge(1e-3, false)?.length).toBeCloseTo(0.5);
  expect(gauge(1, false)?.length).toBeCloseTo(1);
});

test("two equal values that are better high are no fault", () => {
  const gauge = gaugeOf(numberColumn([0.5, 0.5], { better: "high" }));
  expect(gauge(0.5, false)).toEqual({ length: 0, step: 0 });
});

test("a row is judged by the limits of its own precision", () => {
  const limits = [Float64Array.of(100, 3, NaN), Float64Array.of(1000, 10, NaN)] as const;
  const gauge = gaugeOf(numberColumn([20, 20, 20], { thresholds: [100, 1000], limits }));
  expect(gauge(20, false, 0)?.step).toBe(0);
  expect(gauge(20, false, 1)?.step).toBe(3);
  expect(gauge(20, false, 2)?.step).toBe(0);
  expect(gauge(NaN, true, 2)?.step).toBe(4);
});

test("exact is empty, unknown is nothing, a mismatch is full", () => {
  const gauge = gaugeOf(numberColumn([], { thresholds: [10, 100] }));
  expect(gauge(0, false)).toEqual({ length: 0, step: 0 });
  expect(gauge(NaN, false)).toBeNull();
  expect(gauge(NaN, true)).toEqual({ length: 1, step: 4 });
  expect(gauge(Infinity, false)).toEqual({ length: 1, step: 4 });
});
