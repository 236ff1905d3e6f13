// The nodes around one node: its producers and consumers, some steps away. A delegate is one node,
// but for the one that the selected operator is in: that one is open.
import type { Edges } from "../data/edges";
import type { TreeShape } from "../data/tree";

export interface Neighbourhood {
  /** Nodes of the program tree, in program order. */
  nodes: number[];
  /** Source and target of each edge between them. */
  edges: [number, number][];
  /** True if there are further nodes within the steps that were left out. */
  cut: boolean;
}

export interface Around extends TreeShape {
  parents: Int32Array;
  isInner(node: number): boolean;
}

const STEPS = 3;
export const MOST = 150;
/** A value that very many read must not fill the picture at once. */
const MOST_READERS = 24;

/** The delegate that `node` is in, -1 if it is in none. */
function enclosing(tree: Around, node: number): number {
  return tree.isInner(node) ? tree.parents[node] : -1;
}

/** The nodes on a way to the centre, or from it on; the others are only near. */
export function onTheWay(edges: readonly (readonly [number, number])[], center: number): Set<number> {
  const found = new Set([center]);
  for (const side of [0, 1] as const) {
    const next = new Map<number, number[]>();
    for (const edge of edges) next.set(edge[1 - side], [...(next.get(edge[1 - side]) ?? []), edge[side]]);
    const rim = [center];
    const seen = new Set(rim);
    for (let node = rim.pop(); node !== undefined; node = rim.pop()) {
      for (const other of next.get(node) ?? []) {
        if (seen.has(other)) continue;
        seen.add(other);
        rim.push(other);
      }
    }
    for (const node of seen) found.add(node);
  }
  return found;
}

export function neighbourhood(
  tree: Around,
  edges: Edges,
  center: number,
  steps = STEPS,
  most = MOST,
): Neighbourhood {
  const open = enclosing(tree, center);
  const shown = (node: number): boolean =>
    node !== open && (!tree.isInner(node) || tree.parents[node] === open);
  const found = new Set([center]);
  let rim = [center];
  let cut = false;
  for (let step = 0; step < steps; step++) {
    const next: number[] = [];
    for (const node of rim) {
      const readers = edges.consumers(node);
      if (readers.length > MOST_READERS) cut = true;
      for (const other of [...edges.producers(node), ...readers.subarray(0, MOST_READERS)]) {
        if (found.has(other) || !shown(other)) continue;
        if (found.size >= most) {
          cut = true;
          continue;
        }
        found.add(other);
        next.push(other);
      }
    }
    rim = next;
  }
  const nodes = [...found].sort((one, other) => one - other);
  const pairs = nodes.flatMap((source) =>
    [...new Set(edges.consumers(source))]
      .filter((target) => target !== source && found.has(target))
      .map((target): [number, number] => [source, target]),
  );
  return { nodes, edges: pairs, cut };
}
