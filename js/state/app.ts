// One view's state put together: kernel state, its own state, and everything computed from both.
import { batch, computed } from "@preact/signals";
import { type Column, worstFirst } from "./columns";
import { type NodesState, nodesState } from "./nodes";
import type { Payload } from "./payload";
import type { Placement } from "./placement";
import { type RowsState, rowsState } from "./rows";
import { type SelectionState, selectionState } from "./selection";
import { nextKeys } from "./sort";
import type { Store } from "./store";
import { type Read, type ViewState, createViewState } from "./view";

export interface App extends RowsState, NodesState, SelectionState {
  store: Store;
  view: ViewState;
  payload: Read<Payload | null>;
  /** How the view is moved to a side panel; only a view in a cell has it. */
  placement?: Placement;
  /** Sort by a column; `add` makes it the second key. */
  sortOn(column: Column, add: boolean): void;
  /** Sort by a column, worst first, and let the tree's bars show it. */
  rankBy(name: string): void;
  /** Look into the delegate call of a row, and open its node when that is done. */
  zoom(row: number): void;
}

export function createApp(store: Store): App {
  const { traits } = store;
  const view = createViewState();
  const payload = computed(() => (store.payload.value.status === "ready" ? store.payload.value.value : null));
  const rows = rowsState(traits, view, payload);
  const nodes = nodesState(traits, view, payload, rows.gaugeColumn, rows.gauge);
  const selection = selectionState(traits, view, payload, nodes.tree, rows.gaugeColumn);
  return {
    store,
    view,
    payload,
    ...rows,
    ...nodes,
    ...selection,
    sortOn(column, add) {
      const keys = nextKeys(rows.keys.peek(), column.name, worstFirst(column), add);
      batch(() => {
        traits.sortBy.value = keys[0].column;
        traits.descending.value = keys[0].descending;
        view.secondKey.value = keys[1] ?? null;
      });
    },
    rankBy(name) {
      const column = payload.peek()?.column(name);
      if (!column) return;
      batch(() => {
        if (!column.visible) view.columnChoice.value = new Map(view.columnChoice.peek()).set(name, true);
        traits.sortBy.value = name;
        traits.descending.value = worstFirst(column);
        view.secondKey.value = null;
      });
    },
    zoom(row) {
      store.jobs.start("zoom", { row }, () => nodes.openNode(nodes.tree.peek()?.rowNode[row] ?? -1));
    },
  };
}
