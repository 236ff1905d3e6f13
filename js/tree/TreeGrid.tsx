// The delegated-graph tree: a windowed treegrid by program order or by module hierarchy.
import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { useCallback, useEffect } from "preact/hooks";
import type { NodeBars } from "../data/nodeBars";
import type { Payload } from "../data/payload";
import type { Nodes } from "../state/nodes";
import type { Tree } from "../data/tree";
import { useApp } from "../ui/context";
import { Pages } from "../ui/Pages";
import { type WindowedList, drawnPositions, useWindow } from "../ui/window";
import { TREE_ROW_HEIGHT, TreeRow } from "./TreeRow";
import { useTreeKeys } from "./useTreeKeys";

const HEAD_HEIGHT = 24;
/** The trees of the first program: its delegates can be looked into here. */
const OWN = { program: true, modules: true };

/** Opens the ancestors of the selected node and scrolls to it. */
function useReveal(nodes: Nodes, list: WindowedList, active: Signal<number>): void {
  const { selection } = useApp();
  const tree = nodes.tree.value;
  const selected = selection.nodeIn(tree);
  useEffect(() => {
    if (selected < 0) return;
    active.value = selected;
    nodes.openAncestors(selected);
    const frame = requestAnimationFrame(() => list.show(nodes.positionOf(selected)));
    return () => cancelAnimationFrame(frame);
  }, [selected, tree]);
}

function Head({ bars }: { bars: NodeBars | null }): JSX.Element {
  const label = bars?.column.label ?? "";
  const tip =
    bars?.head === "sum"
      ? `Sum of the ${label} at and under the node`
      : `Worst ${label} at or under the node`;
  return (
    <div class="etv-node etv-tree-head" role="row" aria-rowindex={1}>
      <span class="etv-node-name" role="columnheader">
        node
      </span>
      <span class="etv-node-ops" role="columnheader" data-tip="Operators inside a delegate or module">
        ops
      </span>
      <span class="etv-node-worst" role="columnheader" data-tip={tip}>
        {bars?.head ?? "worst"}
      </span>
      <span class="etv-node-latency" role="columnheader" data-tip="Latency of the instruction">
        ms
      </span>
    </div>
  );
}

interface BodyProps {
  nodes: Nodes;
  tree: Tree;
  payload: Payload;
  list: WindowedList;
  active: Signal<number>;
}

function Body({ nodes, tree, payload, list, active }: BodyProps): JSX.Element {
  const { selection, store } = useApp();
  const visible = nodes.visible.value;
  const selected = selection.nodeIn(tree);
  const { kernel } = store.source;
  const own = tree.name in OWN;
  const reachable = Math.max(0, nodes.positionOf(active.value));
  const select = useCallback(
    (node: number) => {
      active.value = node;
      selection.selectNode(tree, node);
    },
    [tree],
  );
  return (
    <div class="etv-tree-rows" role="rowgroup" style={{ height: `${visible.length * TREE_ROW_HEIGHT}px` }}>
      {drawnPositions(list.window, reachable, visible.length).map((position) => {
        const node = visible[position];
        const call = own && tree.text("kind", node) === "delegate" ? (tree.rowsOf(node)[0] ?? -1) : -1;
        return (
          <TreeRow
            key={node}
            tree={tree}
            node={node}
            position={position}
            open={nodes.open.value[node] === 1}
            selected={node === selected}
            reachable={position === reachable}
            bars={nodes.bars.value}
            zoomable={kernel && payload.zooms.canZoom(call) ? call : -1}
            zoom={payload.zooms.of(call)}
            onToggle={nodes.toggle}
            onSelect={select}
          />
        );
      })}
    </div>
  );
}

/** `nodes` belong to another tree than the chosen one; `label` says which. */
export function TreeGrid(props: { payload: Payload; pages: boolean; nodes?: Nodes; label?: string }): JSX.Element {
  const { payload, pages, label } = props;
  const app = useApp();
  const { view } = app;
  const nodes = props.nodes ?? app.nodes;
  const tree = nodes.tree.value;
  const count = nodes.visible.value.length;
  const list = useWindow(nodes.visible.value, TREE_ROW_HEIGHT, HEAD_HEIGHT, pages);
  const { onKeyDown, active } = useTreeKeys(payload, nodes, list);
  useReveal(nodes, list, active);
  return (
    <>
      <div
        class="etv-tree"
        role="treegrid"
        aria-label={label ?? (view.treeName.value === "program" ? "Program order" : "Module hierarchy")}
        aria-rowcount={count + 1}
        ref={list.ref}
        onKeyDown={onKeyDown}
        style={{ height: list.paged?.height }}
      >
        <Head bars={nodes.bars.value} />
        {tree && <Body nodes={nodes} tree={tree} payload={payload} list={list} active={active} />}
      </div>
      <Pages list={list} count={count} />
    </>
  );
}
