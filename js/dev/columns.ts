// Columns of the gap table, for the tests of what is made of one.
import type { NumberColumn, TextColumn } from "../data/columns";

const INFO = {
  name: "severity",
  label: "severity",
  group: "metric",
  description: "",
  thresholds: null,
  visible: true,
};

export function numberColumn(values: number[], more: Partial<NumberColumn> = {}): NumberColumn {
  const numbers = { values: Float64Array.from(values), limits: null };
  return { ...INFO, kind: "number", format: "metric", better: "low", ...numbers, ...more };
}

export function textColumn(codes: number[], dictionary: string[]): TextColumn {
  return { ...INFO, kind: "text", format: "code", better: null, codes: Int32Array.from(codes), dictionary };
}
