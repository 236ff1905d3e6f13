// A tree as preorder arrays (depth, subtree size): what is visible, parents, worst value per node.
import { bisectLeft } from "d3-array";
import { decodeFloats, decodeInts } from "../kernel/codec";
import { TEXT_FIELDS, type TextField, type TreeName, type WireTree } from "../kernel/contract";
import { groupBy } from "./groups";

export interface TreeShape {
  nodes: number;
  depth: Uint16Array | Int32Array;
  size: Int32Array;
}

/** Parent of every node in preorder; -1 for a root. */
export function parentsOf(tree: TreeShape): Int32Array {
  const parents = new Int32Array(tree.nodes).fill(-1);
  const path: number[] = [];
  for (let node = 0; node < tree.nodes; node++) {
    const depth = tree.depth[node];
    path[depth] = node;
    if (depth > 0) parents[node] = path[depth - 1] ?? -1;
  }
  return parents;
}

/** Ids of the nodes that are on screen when the flagged nodes are open, in order; `left` are those that a filter leaves. */
export function visibleNodes(tree: TreeShape, open: Uint8Array, left: Uint8Array | null = null): Int32Array {
  const visible = new Int32Array(tree.nodes);
  let count = 0;
  for (let node = 0; node < tree.nodes;) {
    const shown = !left || left[node] === 1;
    if (shown) visible[count++] = node;
    node += shown && open[node] ? 1 : Math.max(1, tree.size[node]);
  }
  return visible.slice(0, count);
}

/** Position of `node` in the ascending ids `visible`; -1 if it is inside a closed node. */
export function positionOf(visible: Int32Array, node: number): number {
  const position = bisectLeft(visible, node);
  return visible[position] === node ? position : -1;
}

export function openFlags(nodes: number, expanded: Iterable<number>): Uint8Array {
  const open = new Uint8Array(nodes);
  for (const node of expanded) if (node >= 0 && node < nodes) open[node] = 1;
  return open;
}

/** Ancestors of `node`, nearest first. */
export function ancestorsOf(parents: Int32Array, node: number): number[] {
  const ancestors: number[] = [];
  for (let up = parents[node] ?? -1; up >= 0; up = parents[up]) ancestors.push(up);
  return ancestors;
}

/** Every node that can be opened. */
export function branches(tree: TreeShape): number[] {
  const result: number[] = [];
  for (let node = 0; node < tree.nodes; node++) if (tree.size[node] > 1) result.push(node);
  return result;
}

/** What is open at first: the two outer levels, but no delegate. */
export function initiallyOpen(tree: TreeShape, isDelegate: (node: number) => boolean): number[] {
  return branches(tree).filter((node) => tree.depth[node] < 2 && !isDelegate(node));
}

/** Worst row under each node; -1 if nothing under it has a value. `rank` grows with badness, -1 unknown. */
export function worstRows(
  { nodes, parents, rowNode }: Pick<Tree, "nodes" | "parents" | "rowNode">,
  rank: Int32Array,
): Int32Array {
  const worst = new Int32Array(nodes).fill(-1);
  const keep = (node: number, row: number): void => {
    if (row >= 0 && rank[row] >= 0 && (worst[node] < 0 || rank[row] > rank[worst[node]])) {
      worst[node] = row;
    }
  };
  for (let row = 0; row < rowNode.length; row++) if (rowNode[row] >= 0) keep(rowNode[row], row);
  for (let node = nodes - 1; node > 0; node--) {
    if (parents[node] >= 0) keep(parents[node], worst[node]);
  }
  return worst;
}

/** One tree of the program. */
export interface Tree extends TreeShape {
  name: TreeName;
  parents: Int32Array;
  /** The node of each row. */
  rowNode: Int32Array;
  /** Rows that belong to a node itself, not to what is inside it. */
  rowsOf(node: number): Int32Array;
  instruction: Int32Array;
  latency: Float64Array;
  operators: Int32Array;
  text(field: TextField, node: number): string | null;
  /** Every text of a field, each once. */
  words(field: TextField): readonly string[];
}

export function decodeTree(name: TreeName, wire: WireTree, buffers: readonly DataView[]): Tree {
  const texts = new Map(
    TEXT_FIELDS.map((field) => [
      field,
      { codes: decodeInts(wire[field], buffers), words: wire[`${field}s`] },
    ]),
  );
  const { nodes } = wire;
  const shape = { nodes, depth: decodeInts(wire.depth, buffers), size: decodeInts(wire.size, buffers) };
  const rowNode = decodeInts(wire.row_node, buffers);
  return {
    name,
    ...shape,
    parents: parentsOf(shape),
    rowNode,
    rowsOf: groupBy(nodes, rowNode, (row) => row),
    instruction: decodeInts(wire.instruction, buffers),
    latency: decodeFloats(wire.latency, buffers),
    operators: decodeInts(wire.operators, buffers),
    text(field, node) {
      const text = texts.get(field);
      return text?.words[text.codes[node]] ?? null;
    },
    words: (field) => texts.get(field)?.words ?? [],
  };
}

/** The nodes of a tree that are open before anyone touched it. */
export function openAtFirst(tree: Tree): number[] {
  return initiallyOpen(tree, (node) => tree.text("kind", node) === "delegate");
}

/** As people write them. */
const BACKENDS: Record<string, string> = { Xnnpack: "XNNPACK", Qnn: "QNN", Openvino: "OpenVINO" };

/** "XNNPACK" is enough where there is little room. */
export function shortBackend(backend: string): string {
  const short = backend.replace(/Backend$/, "");
  return BACKENDS[short] ?? short;
}
