// The bar of each tree node: the worst value at or under it, or, for what adds up (shares of the
// error, time), the sum.
import type { Format } from "./contract";
import { type NumberColumn, addsUp } from "./columns";
import type { GaugeOf } from "./gauge";
import type { Payload, Tree } from "./payload";

export interface Figures {
  label: string;
  /** Head of the column. */
  head: "worst" | "sum";
  format: Format;
  values: Float64Array;
  mismatch: (node: number) => boolean;
  gauge: GaugeOf;
}

/** Sum at and under each node; NaN where nothing is known. A node's own value wins over its children's. */
export function sumsUnder(tree: Tree, own: Float64Array): Float64Array {
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

function largest(values: Float64Array): number {
  return values.reduce((most, value) => (Math.abs(value) > most ? Math.abs(value) : most), 0);
}

/** The longest bar is that of the largest instruction: groups would dwarf all the others. */
function sumFigures(tree: Tree, column: NumberColumn): Figures {
  const own = ownValues(tree, column);
  const values = sumsUnder(tree, own);
  const most = largest(own) || 1;
  return {
    label: column.label,
    head: "sum",
    format: column.format,
    values,
    mismatch: () => false,
    gauge: (value) =>
      Number.isNaN(value)
        ? null
        : { length: Math.min(1, Math.abs(value) / most), step: value < 0 ? "less" : "part" },
  };
}

export function figuresOf(
  payload: Payload | null,
  tree: Tree | null,
  column: NumberColumn | null,
  worst: Int32Array,
  gauge: GaugeOf | null,
): Figures | null {
  if (!payload || !tree || !column || !gauge) return null;
  if (addsUp(column)) return sumFigures(tree, column);
  return {
    label: column.label,
    head: "worst",
    format: column.format,
    values: Float64Array.from(worst, (row) => (row < 0 ? NaN : column.values[row])),
    mismatch: (node) => worst[node] >= 0 && payload.mismatch[worst[node]] === 1,
    gauge,
  };
}
