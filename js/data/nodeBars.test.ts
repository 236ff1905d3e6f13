// The bars of the tree: the worst under a node, or the sum of what adds up.
import { expect, test } from "vitest";
import { samplePayload } from "../dev/samplePayload";
import type { NumberColumn } from "./columns";
import { nodeBars } from "./nodeBars";
import { decodePayload } from "./payload";
import { worstRows } from "./tree";

function barsOf(name: string) {
  const payload = decodePayload(samplePayload({ layers: 3, inside: 4, uncompared: 0, attributed: 0 }));
  const tree = payload.trees.program;
  const column = payload.column(name) as NumberColumn;
  const worst = worstRows(tree, payload.badness(name) as Int32Array);
  return { tree, column, bars: nodeBars(payload, tree, column, worst) };
}

function total(column: NumberColumn): number {
  return column.values.reduce((sum, value) => (Number.isNaN(value) ? sum : sum + value), 0);
}

test.each(["latency_ms", "attribution"])("%s adds up to the root", (name) => {
  const { column, bars } = barsOf(name);
  expect(bars.head).toBe("sum");
  expect(bars.value(0)).toBeCloseTo(total(column));
});

test("a metric shows the worst", () => {
  const { column, bars } = barsOf("severity");
  expect(bars.head).toBe("worst");
  expect(bars.value(0)).toBe(Math.max(...column.values));
});

test("the largest instruction has the longest bar, a share below zero is marked", () => {
  const { tree, column, bars } = barsOf("attribution");
  const largest = column.values.indexOf(Math.max(...column.values));
  const least = column.values.indexOf(Math.min(...column.values));
  expect(bars.gauge(tree.rowNode[largest])).toEqual({ length: 1, step: "part" });
  expect(bars.gauge(tree.rowNode[least])?.step).toBe("less");
});
