// One view's state put together: kernel state, its own state, and everything computed from both.
import { batch, computed } from "@preact/signals";
import { type Column, worstFirst } from "./columns";
import { type NodesState, nodesState } from "./nodes";
import type { Payload } from "./payload";
import { type RowsState, rowsState } from "./rows";
import { type SelectionState, selectionState } from "./selection";
import { nextKeys } from "./sort";
import type { Store } from "./store";
import { type Read, type ViewState, createViewState } from "./view";

export interface App extends RowsState, NodesState, SelectionState {
  store: Store;
  view: ViewState;
  payload: Read<Payload | null>;
  /** Sort by a column; `add` makes it the second key. */
  sortOn(column: Column, add: boolean): void;
}

export function createApp(store: Store): App {
  const { traits } = store;
  const view = createViewState();
  const payload = computed(() => (store.payload.value.status === "ready" ? store.payload.value.value : null));
  const rows = rowsState(traits, view, payload);
  const nodes = nodesState(traits, view, payload, rows.gaugeColumn);
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
  };
}
