// Trees as preorder arrays: what is visible, who is whose parent, the worst row under a node.
import { expect, test } from "vitest";
import { fastest } from "../dev/fastest";
import { groupBy } from "./groups";
import {
  ancestorsOf,
  branches,
  initiallyOpen,
  openFlags,
  parentsOf,
  positionOf,
  visibleNodes,
  worstRows,
} from "./tree";

// 0 program, 1 method, 2 delegate (3, 4 inside), 5 kernel, 6 delegate (7 inside)
const tree = {
  nodes: 8,
  depth: Uint16Array.from([0, 1, 2, 3, 3, 2, 2, 3]),
  size: Int32Array.from([8, 7, 3, 1, 1, 1, 2, 1]),
};
const parents = parentsOf(tree);

test("parents come from the depths", () => {
  expect([...parents]).toEqual([-1, 0, 1, 2, 2, 1, 1, 6]);
  expect(ancestorsOf(parents, 4)).toEqual([2, 1, 0]);
});

test("a closed node hides all that is inside it", () => {
  const seen = (open: number[]): number[] => [...visibleNodes(tree, openFlags(8, open))];
  expect(seen([])).toEqual([0]);
  expect(seen([0, 1])).toEqual([0, 1, 2, 5, 6]);
  expect(seen([0, 1, 6])).toEqual([0, 1, 2, 5, 6, 7]);
  expect(seen([2, 6])).toEqual([0]);
  expect(seen(branches(tree))).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
});

test("ids that are not in this tree are ignored", () => {
  expect([...openFlags(3, [-1, 1, 99])]).toEqual([0, 1, 0]);
});

test("the position of a node is found, or -1 inside a closed one", () => {
  const visible = visibleNodes(tree, openFlags(8, [0, 1]));
  expect(positionOf(visible, 5)).toBe(3);
  expect(positionOf(visible, 4)).toBe(-1);
});

test("at first the program and its method are open, delegates are not", () => {
  expect(initiallyOpen(tree, (node) => node === 2 || node === 6)).toEqual([0, 1]);
});

test("the worst row under a node is the worst of its own and of all inside", () => {
  const rowNode = Int32Array.from([2, 5, 6, 6, -1]);
  const badness = Int32Array.from([4, 1, 2, 3, 9]);
  const worst = worstRows({ nodes: 8, parents, rowNode }, badness);
  expect([...worst]).toEqual([0, 0, 0, -1, -1, 1, 3, -1]);
});

test("a row whose value is not known is nobody's worst", () => {
  const worst = worstRows({ nodes: 8, parents, rowNode: Int32Array.from([5]) }, Int32Array.from([-1]));
  expect([...worst]).toEqual(Array(8).fill(-1));
});

test("each node knows its rows", () => {
  const rowsOf = groupBy(8, Int32Array.from([6, 2, 6, -1]), (row) => row);
  expect([6, 2, 5].map((node) => [...rowsOf(node)])).toEqual([[0, 2], [1], []]);
});

test("100,000 nodes are flattened and rated within a frame", () => {
  const nodes = 100_001;
  const wide = {
    nodes,
    depth: Uint16Array.from({ length: nodes }, (_, node) => (node === 0 ? 0 : node % 10 === 1 ? 1 : 2)),
    size: Int32Array.from({ length: nodes }, (_, node) => (node === 0 ? nodes : node % 10 === 1 ? 10 : 1)),
  };
  const visible = (): Int32Array => visibleNodes(wide, openFlags(nodes, branches(wide)));
  expect(visible()).toHaveLength(nodes);
  const rowNode = Int32Array.from({ length: nodes }, (_, k) => k);
  const rate = (): unknown => worstRows({ nodes, parents: parentsOf(wide), rowNode }, new Int32Array(nodes));
  expect(fastest(() => [visible(), rate()])).toBeLessThan(100);
});
