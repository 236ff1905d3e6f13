// Places the nodes of a neighbourhood in layers, from producers down to consumers.
import { Graph, layout } from "@dagrejs/dagre";
import type { Neighbourhood } from "./neighbourhood";

export const NODE_WIDTH = 148;
export const NODE_HEIGHT = 36;

export interface Placed {
  node: number;
  /** Of the centre. */
  x: number;
  y: number;
}

export interface Line {
  source: number;
  target: number;
  /** An SVG path. */
  path: string;
}

export interface Picture {
  nodes: Placed[];
  lines: Line[];
  width: number;
  height: number;
}

interface Point {
  x: number;
  y: number;
}

const round = (value: number): number => Math.round(value * 10) / 10;

/** A smooth line through the points that the layout gives. */
function pathThrough(points: readonly Point[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  const parts = [`M${round(first.x)} ${round(first.y)}`];
  rest.forEach((point, at) => {
    const after = rest[at + 1];
    if (!after) parts.push(`L${round(point.x)} ${round(point.y)}`);
    else {
      const [x, y] = [(point.x + after.x) / 2, (point.y + after.y) / 2];
      parts.push(`Q${round(point.x)} ${round(point.y)} ${round(x)} ${round(y)}`);
    }
  });
  return parts.join("");
}

export function place(around: Neighbourhood): Picture {
  const graph = new Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 30, edgesep: 8, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of around.nodes) graph.setNode(String(node), { width: NODE_WIDTH, height: NODE_HEIGHT });
  for (const [source, target] of around.edges) graph.setEdge(String(source), String(target));
  layout(graph);
  const nodes = around.nodes.map((node): Placed => {
    const { x = 0, y = 0 } = graph.node(String(node)) as Partial<Point>;
    return { node, x, y };
  });
  const lines = around.edges.map(([source, target]): Line => {
    const { points = [] } = graph.edge(String(source), String(target)) as { points?: Point[] };
    return { source, target, path: pathThrough(points) };
  });
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  return { nodes, lines, width, height };
}
