// Order of the columns and which of them are drawn.
import { expect, test } from "vitest";
import { decodePayload } from "../data/payload";
import { samplePayload } from "../dev/samplePayload";
import { columnWidths, columnsInView, tableOrder } from "./gridColumns";

test("the op comes first, what rows are ranked by beside it, the rest as sent", () => {
  const { columns } = decodePayload(samplePayload({ layers: 1 }));
  const names = tableOrder(columns).map((column) => column.name);
  expect(names.slice(0, 5)).toEqual(["op", "introduced_severity", "severity", "source", "latency_ms"]);
  expect(names).toHaveLength(columns.length);
});

test("columns in view are drawn, far ones are not", () => {
  const widths = [200, 100, 100, 400, 400, 400, 100];
  expect(columnsInView(widths, 0, 300)).toEqual({ first: 0, end: 4 });
  const { first, end } = columnsInView(widths, 900, 300);
  expect(first).toBeLessThanOrEqual(4);
  expect(first).toBeGreaterThan(0);
  expect(end).toBeGreaterThanOrEqual(5);
});

test("before anything is measured all columns are drawn", () => {
  expect(columnsInView([10, 20], 0, 0)).toEqual({ first: 0, end: 2 });
});

test("where there is little room, the name gives way to what it is ranked by", () => {
  const columns = tableOrder(decodePayload(samplePayload({ layers: 1 })).columns);
  for (const room of [291, 330, 402]) {
    const [name, ranked] = columnWidths(columns, new Map(), room);
    expect(name + ranked).toBeLessThanOrEqual(room);
    expect(name).toBeGreaterThan(100);
  }
});
