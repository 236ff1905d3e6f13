// The graph around the selected node: what it reads and who reads it, some steps away, coloured by the
// error that each instruction introduces itself.
import type { JSX } from "preact";
import { useCallback, useMemo } from "preact/hooks";
import { formatNumber } from "../data/format";
import { type Gauge, gaugeOf } from "../data/gauge";
import type { Payload } from "../data/payload";
import { ownError, worstOf } from "../data/rank";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { useCamera, viewBox } from "./camera";
import { GraphNode } from "./GraphNode";
import { MOST, neighbourhood, onTheWay } from "./neighbourhood";
import { place } from "./picture";

const NEARER = 0.8;

interface Props {
  payload: Payload;
  center: number;
}

function Picture({ payload, center }: Props): JSX.Element {
  const { selection } = useApp();
  const tree = payload.trees.program;
  const around = useMemo(() => {
    const isInner = (node: number): boolean => tree.text("kind", node) === "inner";
    return neighbourhood({ ...tree, isInner }, payload.edges, center);
  }, [payload, center]);
  const picture = useMemo(() => place(around), [around]);
  const way = useMemo(() => onTheWay(around.edges, center), [around]);
  const camera = useCamera(picture, center);
  const column = useMemo(() => ownError(payload), [payload]);
  const select = useCallback((node: number) => selection.selectNode(tree, node), [tree]);
  const shades = (node: number): { gauge: Gauge | null; figure: string } => {
    const row = column ? worstOf(payload, tree.rowsOf(node), column.name) : -1;
    if (!column || row < 0) return { gauge: null, figure: "" };
    const mismatch = payload.mismatch[row] === 1;
    const value = column.values[row];
    const figure = mismatch ? "non-finite" : formatNumber(value, column.format);
    return { gauge: gaugeOf(column)(value, mismatch, row), figure };
  };
  return (
    <div class="etv-graph">
      <svg
        ref={camera.ref}
        class="etv-graph-svg"
        role="group"
        aria-label="Producers and consumers of the selected node"
        viewBox={viewBox(camera.box)}
        onPointerDown={camera.onPointerDown}
      >
        {picture.lines.map(({ source, target, path }) => (
          <path
            key={`${source}-${target}`}
            class="etv-graph-line"
            data-near={source === center || target === center}
            data-aside={way.has(source) && way.has(target) ? undefined : true}
            d={path}
          />
        ))}
        {picture.nodes.map((placed) => (
          <GraphNode
            key={placed.node}
            tree={tree}
            placed={placed}
            selected={placed.node === center}
            aside={!way.has(placed.node)}
            {...shades(placed.node)}
            onSelect={select}
          />
        ))}
      </svg>
      <div class="etv-graph-bar">
        <span class="etv-graph-note">
          {column ? `colour: ${column.label}` : ""}
          {around.cut ? ` · the nearest ${Math.min(MOST, around.nodes.length)} nodes` : ""}
        </span>
        <Button aria-label="Zoom in" onClick={() => camera.zoom(NEARER)}>
          +
        </Button>
        <Button aria-label="Zoom out" onClick={() => camera.zoom(1 / NEARER)}>
          −
        </Button>
        <Button onClick={camera.fit}>Fit</Button>
      </div>
    </div>
  );
}

export function GraphPane({ payload }: { payload: Payload }): JSX.Element {
  const node = useApp().selection.node.value;
  if (node < 0) {
    return <p class="etv-graph-empty">Select a row or a node to see what it reads and who reads it.</p>;
  }
  if (payload.edges.producers(node).length + payload.edges.consumers(node).length === 0) {
    return <p class="etv-graph-empty">No edge of this node is known.</p>;
  }
  return <Picture payload={payload} center={node} />;
}
