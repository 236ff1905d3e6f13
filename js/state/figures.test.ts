// The bars of the tree: the worst under a node, or the sum of what adds up.
import { expect, test } from "vitest";
import { samplePayload } from "../dev/sample";
import type { NumberColumn } from "./columns";
import { figuresOf } from "./figures";
import { gaugeOf } from "./gauge";
import { decodePayload } from "./payload";
import { worstRows } from "./tree";

function figures(name: string) {
  const { result, buffers } = samplePayload({ layers: 3, inside: 4, uncompared: 0, attributed: 0 });
  const payload = decodePayload(result, buffers);
  const tree = payload.trees.program;
  const column = payload.column(name) as NumberColumn;
  const worst = worstRows(tree, tree.parents, tree.rowNode, payload.badness(name) as Int32Array);
  return { payload, tree, column, found: figuresOf(payload, tree, column, worst, gaugeOf(column)) };
}

function total(column: NumberColumn): number {
  return column.values.reduce((sum, value) => (Number.isNaN(value) ? sum : sum + value), 0);
}

test.each(["latency_ms", "attribution"])("%s adds up to the root", (name) => {
  const { column, found } = figures(name);
  expect(found?.head).toBe("sum");
  expect(found?.values[0]).toBeCloseTo(total(column));
});

test("a metric shows the worst", () => {
  const { column, found } = figures("severity");
  expect(found?.head).toBe("worst");
  expect(found?.values[0]).toBe(Math.max(...column.values));
});

test("the largest instruction has the longest bar, a share below zero is marked", () => {
  const { tree, column, found } = figures("attribution");
  const largest = column.values.indexOf(Math.max(...column.values));
  const least = column.values.indexOf(Math.min(...column.values));
  expect(found?.gauge(found.values[tree.rowNode[largest]], false)).toEqual({ length: 1, step: "part" });
  expect(found?.gauge(found.values[tree.rowNode[least]], false)?.step).toBe("less");
});
