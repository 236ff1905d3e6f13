// The payload, decoded: columns by name, trees with parents and rows, ranks computed once a column.
import { type Edges, decodeEdges } from "../graph/edges";
import { decodeFloats, decodeInts } from "./codec";
import { type Column, mismatchRows } from "./columns";
import type { Attribution, Summary, TreeName, WireColumn, WirePayload, WireTree } from "./contract";
import { type FilterTable, statusOf } from "./filter";
import { type Ranks, rankColumn } from "./sort";
import { type RowsOfNodes, type TreeShape, initiallyOpen, parentsOf, rowsOfNodes } from "./tree";
import { type Zooms, decodeZooms } from "./zooms";

export type TextField = "kind" | "label" | "backend" | "op" | "shape" | "module" | "source" | "stack";

/** One tree of the program, with its texts read through `text(field, node)`. */
export interface Tree extends TreeShape {
  name: TreeName;
  parents: Int32Array;
  rowNode: Int32Array;
  rows: RowsOfNodes;
  instruction: Int32Array;
  latency: Float64Array;
  operators: Int32Array;
  text(field: TextField, node: number): string | null;
}

export interface Payload extends FilterTable {
  title: string;
  summary: Summary;
  columns: Column[];
  trees: Record<TreeName, Tree>;
  /** Of which output's error the column "attribution" tells the shares; null before it was computed. */
  attribution: Attribution | null;
  zooms: Zooms;
  /** Who reads whose values, in the program tree. */
  edges: Edges;
  /** Ascending ranks of a column (see sort.ts); null if there is no such column. */
  ranks(name: string): Ranks | null;
  /** Ranks that grow with badness, -1 where the value is not known; null for a text column. */
  badness(name: string): Int32Array | null;
}

const PLURAL: Record<TextField, keyof WireTree> = {
  kind: "kinds",
  label: "labels",
  backend: "backends",
  op: "ops",
  shape: "shapes",
  module: "modules",
  source: "sources",
  stack: "stacks",
};

const NEWEST = 2;

function decodeColumn(wire: WireColumn, buffers: readonly DataView[]): Column {
  const { values, dictionary, ...info } = wire;
  if (info.kind === "number") {
    return { ...info, kind: "number", values: decodeFloats(values, buffers) };
  }
  return { ...info, kind: "text", codes: decodeInts(values, buffers), dictionary: dictionary ?? [] };
}

function decodeTree(name: TreeName, wire: WireTree, buffers: readonly DataView[]): Tree {
  const codes = new Map<TextField, Int32Array>();
  const words = new Map<TextField, string[]>();
  for (const field of Object.keys(PLURAL) as TextField[]) {
    codes.set(field, decodeInts(wire[field], buffers));
    words.set(field, wire[PLURAL[field]] as string[]);
  }
  const shape = {
    nodes: wire.nodes,
    depth: decodeInts(wire.depth, buffers),
    size: decodeInts(wire.size, buffers),
  };
  const rowNode = decodeInts(wire.row_node, buffers);
  return {
    name,
    ...shape,
    parents: parentsOf(shape),
    rowNode,
    rows: rowsOfNodes(wire.nodes, rowNode),
    instruction: decodeInts(wire.instruction, buffers),
    latency: decodeFloats(wire.latency, buffers),
    operators: decodeInts(wire.operators, buffers),
    text: (field, node) => words.get(field)?.[codes.get(field)?.[node] ?? -1] ?? null,
  };
}

/** The nodes of a tree that are open before anyone touched it. */
export function openAtFirst(tree: Tree): number[] {
  return initiallyOpen(tree, (node) => tree.text("kind", node) === "delegate");
}

function badnessOf(column: Column | undefined, ranks: Ranks | null): Int32Array | null {
  if (!ranks || column?.kind !== "number") return null;
  if (column.better !== "high") return ranks.rank;
  return ranks.rank.map((rank) => (rank < 0 ? -1 : ranks.count - 1 - rank));
}

/** The value of `compute` for a key, computed when first asked for. */
function memoized<T>(compute: (key: string) => T): (key: string) => T {
  const known = new Map<string, T>();
  return (key) => {
    const found = known.get(key);
    if (found !== undefined) return found;
    const value = compute(key);
    known.set(key, value);
    return value;
  };
}

/** Decode a `payload` answer; an error names the buffer that is missing or short. */
export function decodePayload(wire: WirePayload, buffers: readonly DataView[]): Payload {
  if (wire.version > NEWEST) {
    throw new Error(
      `this view reads payload versions up to ${NEWEST}, the kernel sent ${wire.version}: restart it`,
    );
  }
  const columns = wire.columns.map((column) => decodeColumn(column, buffers));
  const byName = new Map(columns.map((column) => [column.name, column]));
  const status = byName.get("status");
  const mismatch = mismatchRows(status, wire.rows);
  const ranks = memoized((name: string) => {
    const column = byName.get(name);
    return column ? rankColumn(column, mismatch) : null;
  });
  return {
    title: wire.title,
    summary: wire.summary,
    rows: wire.rows,
    compared: wire.compared,
    columns,
    column: (name) => byName.get(name),
    mismatch,
    status: statusOf(status, wire.rows, wire.compared),
    trees: {
      program: decodeTree("program", wire.trees.program, buffers),
      modules: decodeTree("modules", wire.trees.modules, buffers),
    },
    attribution: wire.attribution ?? null,
    zooms: decodeZooms(wire, buffers, (name) => byName.get(name)),
    edges: decodeEdges(wire, buffers),
    ranks,
    badness: memoized((name: string) => badnessOf(byName.get(name), ranks(name))),
  };
}
