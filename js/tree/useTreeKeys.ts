// Keys of the tree, as in a treegrid: arrows move, right opens or enters, left closes or leaves;
// Z looks into a delegate call.
import { type Signal, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { App } from "../state/app";
import type { Tree } from "../state/payload";
import { ownRows } from "../state/selection";
import { useApp } from "../ui/context";
import type { WindowedList } from "../ui/useWindow";

type Move = { to: number } | { toggle: number } | null;

/** What a key does at the node `visible[at]`. */
export function treeMove(
  key: string,
  tree: Tree,
  visible: Int32Array,
  open: Uint8Array,
  at: number,
  page: number,
): Move {
  const node = visible[at];
  const branch = tree.size[node] > 1;
  const last = visible.length - 1;
  switch (key) {
    case "ArrowDown":
      return { to: visible[Math.min(last, at + 1)] };
    case "ArrowUp":
      return { to: visible[Math.max(0, at - 1)] };
    case "PageDown":
      return { to: visible[Math.min(last, at + page)] };
    case "PageUp":
      return { to: visible[Math.max(0, at - page)] };
    case "Home":
      return { to: visible[0] };
    case "End":
      return { to: visible[last] };
    case "ArrowRight":
      if (!branch) return { to: node };
      return open[node] ? { to: node + 1 } : { toggle: node };
    case "ArrowLeft":
      if (branch && open[node]) return { toggle: node };
      return { to: tree.parents[node] >= 0 ? tree.parents[node] : node };
    case "Enter":
    case " ":
      return branch ? { toggle: node } : { to: node };
    default:
      return null;
  }
}

interface TreeKeys {
  onKeyDown: (event: KeyboardEvent) => void;
  /** The node that Tab reaches. */
  active: Signal<number>;
}

function stop(event: Event): void {
  event.preventDefault();
  event.stopPropagation();
}

/** Looks into a delegate call; false if the node is none that can be looked into. */
function zoomNode(app: App, tree: Tree, node: number): boolean {
  const row = ownRows(tree, node)[0];
  if (row === undefined || !app.payload.peek()?.zooms.canZoom(row)) return false;
  app.zoom(row);
  return true;
}

export function useTreeKeys(list: WindowedList): TreeKeys {
  const app = useApp();
  const active = useSignal(0);
  const refocus = useRef(false);

  useLayoutEffect(() => {
    if (!refocus.current) return;
    refocus.current = false;
    list.element()?.querySelector<HTMLElement>('[tabindex="0"]')?.focus({ preventScroll: true });
  });

  const onKeyDown = (event: KeyboardEvent): void => {
    const tree = app.tree.peek();
    if (!tree || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.toLowerCase() === "z" && zoomNode(app, tree, active.peek())) return stop(event);
    const at = Math.max(0, app.positionOfNode(active.peek()));
    const move = treeMove(event.key, tree, app.visible.peek(), app.open.peek(), at, list.page());
    if (!move) return;
    stop(event);
    refocus.current = true;
    if ("toggle" in move) {
      app.toggleNode(move.toggle);
      return;
    }
    active.value = move.to;
    app.selectNode(tree, move.to);
    list.show(app.positionOfNode(move.to));
  };
  return { onKeyDown, active };
}
