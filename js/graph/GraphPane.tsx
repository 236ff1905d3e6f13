// The graph around the selected node: what it reads and who reads it, some steps away, coloured by the
// error that each instruction introduces itself.
import type { JSX } from "preact";
import { useCallback, useMemo } from "preact/hooks";
import { type NumberColumn } from "../state/columns";
import { formatNumber } from "../state/format";
import { type GaugeOf, gaugeOf } from "../state/gauge";
import type { Payload, Tree } from "../state/payload";
import { ownRows } from "../state/selection";
import { useApp } from "../ui/context";
import { GraphNode } from "./GraphNode";
import { viewBox } from "./camera";
import { place } from "./layout";
import { MOST, neighbourhood } from "./neighbourhood";
import { useCamera } from "./useCamera";

const NEARER = 0.8;

/** The column that colours the nodes: what is introduced, or, where that is not known, the total. */
function colorColumn(payload: Payload): NumberColumn | null {
  for (const name of ["introduced_severity", "severity"]) {
    const column = payload.column(name);
    if (column?.kind === "number" && column.values.some((value) => !Number.isNaN(value))) return column;
  }
  return null;
}

/** The worst row of a node itself, -1 if it has none with a value. */
function worstRow(payload: Payload, tree: Tree, node: number, column: NumberColumn): number {
  const badness = payload.badness(column.name);
  return ownRows(tree, node).reduce(
    (worst, row) => (badness && badness[row] > (worst < 0 ? -1 : badness[worst]) ? row : worst),
    -1,
  );
}

interface PictureProps {
  payload: Payload;
  tree: Tree;
  center: number;
}

function Picture({ payload, tree, center }: PictureProps): JSX.Element {
  const app = useApp();
  const around = useMemo(
    () =>
      neighbourhood(
        { ...tree, isInner: (node) => tree.text("kind", node) === "inner" },
        payload.edges,
        center,
      ),
    [payload, tree, center],
  );
  const picture = useMemo(() => place(around), [around]);
  const camera = useCamera(picture, center);
  const column = useMemo(() => colorColumn(payload), [payload]);
  const gauge = useMemo<GaugeOf | null>(() => column && gaugeOf(column), [column]);
  const select = useCallback((node: number) => app.selectNode(tree, node), [app, tree]);
  const shades = (node: number) => {
    const row = column ? worstRow(payload, tree, node, column) : -1;
    if (!column || row < 0) return { gauge: null, figure: "" };
    const mismatch = payload.mismatch[row] === 1;
    const value = column.values[row];
    const figure = mismatch ? "non-finite" : formatNumber(value, column.format);
    return { gauge: gauge?.(value, mismatch) ?? null, figure };
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
            d={path}
          />
        ))}
        {picture.nodes.map((placed) => (
          <GraphNode
            key={placed.node}
            tree={tree}
            placed={placed}
            selected={placed.node === center}
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
        <button type="button" class="etv-button" aria-label="Zoom in" onClick={() => camera.zoom(NEARER)}>
          +
        </button>
        <button type="button" class="etv-button" aria-label="Zoom out" onClick={() => camera.zoom(1 / NEARER)}>
          −
        </button>
        <button type="button" class="etv-button" onClick={camera.fit}>
          Fit
        </button>
      </div>
    </div>
  );
}

export function GraphPane(): JSX.Element {
  const app = useApp();
  const payload = app.payload.value;
  const tree = payload?.trees.program;
  const node = app.focusNode.value;
  if (!payload || !tree || node < 0) {
    return <p class="etv-graph-empty">Select a row or a node to see what it reads and who reads it.</p>;
  }
  if (payload.edges.producers(node).length + payload.edges.consumers(node).length === 0) {
    return <p class="etv-graph-empty">No edge of this node is known.</p>;
  }
  return <Picture payload={payload} tree={tree} center={node} />;
}
