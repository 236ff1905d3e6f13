// Keys of the tree, as in a treegrid: arrows move, right opens or enters, left closes or leaves;
// Z looks into a delegate call.
import { type Signal, useSignal } from "@preact/signals";
import type { Payload } from "../data/payload";
import type { Tree } from "../data/tree";
import type { Nodes } from "../state/nodes";
import { useApp } from "../ui/context";
import { keysOf, movedTo, useRefocus } from "../ui/keys";
import type { WindowedList } from "../ui/window";

type Move = { to: number } | { toggle: number } | null;

/** What a key does at the node `visible[at]`. */
function treeMove(
  key: string,
  tree: Tree,
  visible: Int32Array,
  open: Uint8Array,
  at: number,
  page: number,
): Move {
  const node = visible[at];
  const branch = tree.size[node] > 1;
  switch (key) {
    case "ArrowRight":
      if (!branch) return { to: node };
      return open[node] ? { to: node + 1 } : { toggle: node };
    case "ArrowLeft":
      if (branch && open[node]) return { toggle: node };
      return { to: tree.parents[node] >= 0 ? tree.parents[node] : node };
    case "Enter":
    case " ":
      return branch ? { toggle: node } : { to: node };
    default: {
      const to = movedTo(key, at, visible.length - 1, page);
      return to === null ? null : { to: visible[to] };
    }
  }
}

interface TreeKeys {
  onKeyDown: (event: KeyboardEvent) => void;
  /** The node that Tab reaches. */
  active: Signal<number>;
}

export function useTreeKeys(payload: Payload, nodes: Nodes, list: WindowedList): TreeKeys {
  const app = useApp();
  const { selection } = app;
  const active = useSignal(0);
  const refocus = useRefocus(list);

  const onKeyDown = keysOf(({ key }) => {
    const tree = nodes.tree.peek();
    if (!tree) return false;
    const row = tree.rowsOf(active.peek())[0];
    if (key.toLowerCase() === "z" && nodes === app.nodes && payload.zooms.canZoom(row)) {
      app.zoom(row);
      return true;
    }
    const at = Math.max(0, nodes.positionOf(active.peek()));
    const move = treeMove(key, tree, nodes.visible.peek(), nodes.open.peek(), at, list.page());
    if (!move) return false;
    refocus({ preventScroll: true });
    if ("toggle" in move) {
      nodes.toggle(move.toggle);
      return true;
    }
    active.value = move.to;
    selection.selectNode(tree, move.to);
    list.show(nodes.positionOf(move.to));
    return true;
  });
  return { onKeyDown, active };
}
