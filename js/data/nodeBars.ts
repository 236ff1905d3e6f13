// The bar of each tree node: the worst value at or under it, or, for what adds up (shares of the
// error, time), the sum.
import { type NumberColumn, addsUp } from "./columns";
import { type Gauge, gaugeOf, gaugeOfParts } from "./gauge";
import type { Payload } from "./payload";
import type { Tree } from "./tree";

export interface NodeBars {
  column: NumberColumn;
  /** What a value is of the values at and under the node. */
  head: "worst" | "sum";
  /** NaN for a node without a value. */
  value: (node: number) => number;
  mismatch: (node: number) => boolean;
  gauge: (node: number) => Gauge | null;
}

/** Sum at and under each node; NaN where nothing is known. A node's own value wins over its children's. */
function sumsUnder(tree: Tree, own: Float64Array): Float64Array {
  const sums = own.slice();
  const under = new Float64Array(tree.nodes).fill(NaN);
  for (let node = tree.nodes - 1; node >= 0; node--) {
    if (Number.isNaN(sums[node])) sums[node] = under[node];
    const parent = tree.parents[node];
    if (parent < 0 || Number.isNaN(sums[node])) continue;
    under[parent] = (Number.isNaN(under[parent]) ? 0 : under[parent]) + sums[node];
  }
  return sums;
}

/** What each node has itself: its latency, or the shares of its rows. */
function ownValues(tree: Tree, column: NumberColumn): Float64Array {
  if (column.group === "latency") return tree.latency;
  const own = new Float64Array(tree.nodes).fill(NaN);
  tree.rowNode.forEach((node, row) => {
    const value = column.values[row];
    if (node < 0 || Number.isNaN(value)) return;
    own[node] = (Number.isNaN(own[node]) ? 0 : own[node]) + value;
  });
  return own;
}

/** The longest bar is that of the largest instruction: groups would dwarf all the others. */
function sumBars(tree: Tree, column: NumberColumn): NodeBars {
  const own = ownValues(tree, column);
  const values = sumsUnder(tree, own);
  const gauge = gaugeOfParts(own);
  return {
    column,
    head: "sum",
    value: (node) => values[node],
    mismatch: () => false,
    gauge: (node) => gauge(values[node], false),
  };
}

/** `worst` is the worst row under each node, -1 for none. */
export function nodeBars(payload: Payload, tree: Tree, column: NumberColumn, worst: Int32Array): NodeBars {
  if (addsUp(column)) return sumBars(tree, column);
  const value = (node: number): number => (worst[node] >= 0 ? column.values[worst[node]] : NaN);
  const mismatch = (node: number): boolean => worst[node] >= 0 && payload.mismatch[worst[node]] === 1;
  const gauge = gaugeOf(column);
  return {
    column,
    head: "worst",
    value,
    mismatch,
    gauge: (node) => gauge(value(node), mismatch(node), worst[node]),
  };
}
