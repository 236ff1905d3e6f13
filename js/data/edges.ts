// Who reads whose values, between the nodes of the program tree, ready to be walked in both directions.
import { decodeInts } from "../kernel/codec";
import type { WirePayload } from "../kernel/contract";
import { groupBy } from "./groups";

export interface Edges {
  count: number;
  /** Nodes whose values a node reads. */
  producers(node: number): Int32Array;
  /** Nodes that read a node's values. */
  consumers(node: number): Int32Array;
}

export function edgesOf(nodes: number, sources: Int32Array, targets: Int32Array): Edges {
  return {
    count: sources.length,
    producers: groupBy(nodes, targets, (edge) => sources[edge]),
    consumers: groupBy(nodes, sources, (edge) => targets[edge]),
  };
}

/** The edges of a payload: pairs of source and target; none where the kernel did not send any. */
export function decodeEdges(wire: WirePayload, buffers: readonly DataView[]): Edges {
  const { nodes } = wire.trees.program;
  const pairs = wire.edges ? decodeInts(wire.edges, buffers) : new Int32Array(0);
  const known: number[] = [];
  const there = (node: number): boolean => node >= 0 && node < nodes;
  for (let at = 0; at + 1 < pairs.length; at += 2) {
    if (there(pairs[at]) && there(pairs[at + 1])) known.push(at);
  }
  return edgesOf(
    nodes,
    Int32Array.from(known, (at) => pairs[at]),
    Int32Array.from(known, (at) => pairs[at + 1]),
  );
}
