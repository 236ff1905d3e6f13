// A made-up tree in the form of the contract.
import type { WireTree } from "../state/contract";
import type { Pool } from "./pool";
import type { SampleNode } from "./program";

const TREE_KINDS = ["program", "method", "delegate", "kernel", "inner", "module", "value"];
export const STACK = [
  'File "vision_transformer.py", line 113, in forward',
  "    x = self.ln_1(input)",
  'File "normalization.py", line 229, in forward',
  "    return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)",
].join("\n");

function flatten(root: SampleNode, rows: number) {
  const nodes: SampleNode[] = [];
  const depth: number[] = [];
  const size: number[] = [];
  const inside: number[] = [];
  const rowNode = new Int32Array(rows).fill(-1);
  const walk = (node: SampleNode, level: number): void => {
    const id = nodes.push(node) - 1;
    depth.push(level);
    size.push(1);
    inside.push(0);
    if (node.row >= 0 && node.row < rows) rowNode[node.row] = id;
    for (const child of node.children) walk(child, level + 1);
    size[id] = nodes.length - id;
    inside[id] = nodes.slice(id + 1).filter((one) => one.children.length === 0).length;
  };
  walk(root, 0);
  return { nodes, depth, size, inside, rowNode };
}

export function wireTree(pool: Pool, root: SampleNode, rows: number): WireTree {
  const { nodes, depth, size, inside, rowNode } = flatten(root, rows);
  const text = (read: (node: SampleNode) => string | null) => pool.texts(nodes.map(read));
  const label = text((node) => node.label);
  const backend = text((node) => node.backend);
  const op = text((node) => node.op);
  const shape = text((node) => node.shape);
  const module = text((node) => node.module);
  const source = text((node) => (node.kind === "module" ? null : "vision_transformer.py:113"));
  const stack = text((node) => (node.kind === "kernel" || node.kind === "inner" ? STACK : null));
  return {
    nodes: nodes.length,
    depth: pool.add(Uint16Array.from(depth)),
    size: pool.ints(size),
    kind: pool.add(Uint8Array.from(nodes.map((node) => TREE_KINDS.indexOf(node.kind)))),
    kinds: TREE_KINDS,
    label: label.values,
    labels: label.dictionary,
    backend: backend.values,
    backends: backend.dictionary,
    op: op.values,
    ops: op.dictionary,
    shape: shape.values,
    shapes: shape.dictionary,
    module: module.values,
    modules: module.dictionary,
    source: source.values,
    sources: source.dictionary,
    stack: stack.values,
    stacks: stack.dictionary,
    instruction: pool.ints(nodes.map((node) => node.instruction)),
    latency: pool.floats(nodes.map((node) => node.latency)),
    operators: pool.ints(inside),
    row_node: pool.add(rowNode),
  };
}

/** Each node of a level reads the one before it; the first inside of a delegate reads what the delegate reads. */
export function sampleEdges(root: SampleNode): number[] {
  const pairs: number[] = [];
  let id = -1;
  const walk = (node: SampleNode, before: number): number => {
    const own = ++id;
    const instruction = node.kind !== "program" && node.kind !== "method";
    if (instruction && before >= 0) pairs.push(before, own);
    let last = instruction ? before : -1;
    for (const child of node.children) last = walk(child, last);
    if (node.kind === "delegate" && node.children.length > 0) pairs.push(last, own);
    return own;
  };
  walk(root, -1);
  return pairs;
}
