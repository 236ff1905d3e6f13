// Numbers as people read them, without rounding into something else.
import { expect, test } from "vitest";
import { formatExact, formatMetric, formatMilliseconds, formatNumber } from "./format";

test.each([
  [0, "0"],
  [1.23456e-7, "1.23e-7"],
  [0.012345, "0.0123"],
  [1, "1.00"],
  [0.99999982, "0.99999982"],
  [0.996, "0.9960"],
  [1 - 2 ** -40, "1 - 9.09e-13"],
  [2 ** -40 - 1, "-1 + 9.09e-13"],
  [12.345, "12.3"],
  [-3.1842, "-3.18"],
  [3, "3.00"],
  [2.998, "2.998"],
  [3.00004, "3.00004"],
  [999.7, "1,000"],
  [10_878.4, "10,878"],
  [123_456, "1.23e5"],
  [5e-324, "4.94e-324"],
  [Infinity, "∞"],
  [-Infinity, "-∞"],
  [NaN, ""],
])("metric %d is %s", (value, text) => expect(formatMetric(value)).toBe(text));

test.each([
  [1, "100 %"],
  [0, "0 %"],
  [0.9999999, "99.99 %"],
  [0.93, "93.0 %"],
  [1e-9, "<0.1 %"],
  [-0.05, "-5.0 %"],
  [-1e-9, "<0.1 %"],
  [1.0234, "102.3 %"],
])("share %d is %s", (value, text) => expect(formatNumber(value, "percent")).toBe(text));

test.each([
  [0, "0"],
  [0.0000213, "2.1e-5"],
  [0.0042, "0.0042"],
  [0.37512, "0.375"],
  [12.304, "12.30"],
  [118.24, "118.2"],
])("%d ms is %s", (value, text) => expect(formatMilliseconds(value)).toBe(text));

test("counts are grouped, decibels have one decimal, exact numbers keep every digit", () => {
  expect(formatNumber(50_176, "int")).toBe("50,176");
  expect(formatNumber(43.21, "db")).toBe("43.2");
  expect(formatNumber(Infinity, "db")).toBe("∞");
  expect(formatExact(0.1 + 0.2)).toBe("0.30000000000000004");
});
