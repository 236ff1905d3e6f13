// The delegated-graph tree: a windowed treegrid by program order or by module hierarchy.
import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { useCallback, useEffect } from "preact/hooks";
import { GraphPane } from "../graph/GraphPane";
import type { Payload, Tree } from "../state/payload";
import { drawnPositions } from "../state/window";
import { useApp } from "../ui/context";
import { type WindowedList, useWindow } from "../ui/useWindow";
import { TreeBar } from "./TreeBar";
import { TREE_HEAD_HEIGHT, TreeHead } from "./TreeHead";
import { TREE_ROW_HEIGHT, TreeRow } from "./TreeRow";
import { useTreeKeys } from "./useTreeKeys";

export function TreePane(): JSX.Element {
  const { treeMode } = useApp().view;
  return (
    <section class="etv-pane etv-tree-pane" aria-label="Delegated graph">
      <TreeBar />
      {treeMode.value === "graph" ? <GraphPane /> : <TreeGrid />}
    </section>
  );
}

/** Opens the ancestors of the selected node and scrolls to it. */
function useReveal(list: WindowedList, active: Signal<number>): void {
  const app = useApp();
  const focusNode = app.focusNode.value;
  useEffect(() => {
    if (focusNode < 0) return;
    active.value = focusNode;
    app.openAncestors(focusNode);
    const frame = requestAnimationFrame(() => list.show(app.positionOfNode(focusNode)));
    return () => cancelAnimationFrame(frame);
  }, [focusNode, app.tree.value]);
}

/** The first row of a delegate call; -1 for other nodes. */
function ownRow(tree: Tree, node: number): number {
  if (tree.text("kind", node) !== "delegate") return -1;
  const { start, rows } = tree.rows;
  return start[node + 1] > start[node] ? rows[start[node]] : -1;
}

interface BodyProps {
  tree: Tree;
  payload: Payload;
  list: WindowedList;
  active: Signal<number>;
}

function Body({ tree, payload, list, active }: BodyProps): JSX.Element {
  const app = useApp();
  const visible = app.visible.value;
  const figures = app.figures.value;
  const { kernel } = app.store.source;
  const reachable = Math.max(0, app.positionOfNode(active.value));
  const select = useCallback(
    (node: number) => {
      active.value = node;
      const shown = app.tree.peek();
      if (shown) app.selectNode(shown, node);
    },
    [app],
  );
  return (
    <div class="etv-tree-rows" role="rowgroup" style={{ height: `${visible.length * TREE_ROW_HEIGHT}px` }}>
      {drawnPositions(list.window, reachable, visible.length).map((position) => {
        const node = visible[position];
        const row = ownRow(tree, node);
        return (
          <TreeRow
            key={node}
            tree={tree}
            node={node}
            position={position}
            open={app.open.value[node] === 1}
            selected={node === app.focusNode.value}
            reachable={position === reachable}
            value={figures?.values[node] ?? NaN}
            mismatch={figures?.mismatch(node) ?? false}
            figures={figures}
            zoomable={kernel && payload.zooms.canZoom(row) ? row : -1}
            zoom={payload.zooms.of(row)}
            onToggle={app.toggleNode}
            onSelect={select}
          />
        );
      })}
    </div>
  );
}

function TreeGrid(): JSX.Element {
  const app = useApp();
  const tree = app.tree.value;
  const payload = app.payload.value;
  const nodes = app.visible.value.length;
  const list = useWindow(nodes, TREE_ROW_HEIGHT, TREE_HEAD_HEIGHT);
  const { onKeyDown, active } = useTreeKeys(list);
  useReveal(list, active);
  return (
    <div
      class="etv-tree"
      role="treegrid"
      aria-label={app.view.treeName.value === "program" ? "Program order" : "Module hierarchy"}
      aria-rowcount={nodes + 1}
      ref={list.ref}
      onKeyDown={onKeyDown}
    >
      <TreeHead figures={app.figures.value} />
      {tree && payload && <Body tree={tree} payload={payload} list={list} active={active} />}
    </div>
  );
}
