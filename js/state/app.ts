// One view's state put together: kernel state, its own state, and everything computed from both.
import { batch, computed } from "@preact/signals";
import { type Column, type NumberColumn, isMetric, worstFirst } from "./columns";
import type { TreeName } from "./contract";
import { filterRows } from "./filter";
import { type GaugeOf, gaugeOf } from "./gauge";
import type { Payload, Tree } from "./payload";
import { type SortKey, nextKeys, sortRows } from "./sort";
import type { Store } from "./store";
import { ancestorsOf, initiallyOpen, openFlags, positionOf, visibleNodes, worstRows } from "./tree";
import { type Detail, type Read, type ViewState, createViewState } from "./view";

export interface App {
  store: Store;
  view: ViewState;
  payload: Read<Payload | null>;
  keys: Read<readonly SortKey[]>;
  columns: Read<readonly Column[]>;
  /** Row ids that the table shows, in order. */
  order: Read<Uint32Array>;
  /** Position of each row in `order`, -1 if it is filtered out. */
  positions: Read<Int32Array>;
  gaugeColumn: Read<NumberColumn | null>;
  gauge: Read<GaugeOf | null>;
  tree: Read<Tree | null>;
  expanded: Read<readonly number[]>;
  open: Read<Uint8Array>;
  visible: Read<Int32Array>;
  /** The worst row under each node of the tree by the gauge column, -1 for none. */
  worst: Read<Int32Array>;
  focus: Read<Detail | null>;
  /** The focused node of the tree that is shown, -1 for none. */
  focusNode: Read<number>;
  /** The focused row, gap row or not, -1 for none. */
  focusRow: Read<number>;
  sortOn(column: Column, add: boolean): void;
  selectRow(row: number): void;
  selectNode(tree: Tree, node: number): void;
  setExpanded(nodes: readonly number[]): void;
  toggleNode(node: number): void;
  openAncestors(node: number): void;
  /** Position of a node among the visible nodes, -1 if it is inside a closed one. */
  positionOfNode(node: number): number;
}

const SEVERITY = "severity";

/** The column that bars stand for: the one sorted by if it is a metric, else severity. */
function gaugeColumnOf(payload: Payload | null, sortedBy: string): NumberColumn | null {
  const sorted = payload?.column(sortedBy);
  if (isMetric(sorted)) return sorted;
  const severity = payload?.column(SEVERITY);
  return isMetric(severity) ? severity : (payload?.columns.find(isMetric) ?? null);
}

function tableState(store: Store, view: ViewState, payload: Read<Payload | null>) {
  const { traits } = store;
  const keys = computed<readonly SortKey[]>(() => {
    const first = { column: traits.sortBy.value, descending: traits.descending.value };
    const second = view.secondKey.value;
    return second && second.column !== first.column ? [first, second] : [first];
  });
  const columns = computed<readonly Column[]>(() => {
    const chosen = view.columnChoice.value;
    return payload.value?.columns.filter((c) => chosen.get(c.name) ?? c.visible) ?? [];
  });
  const kept = computed(() => {
    if (!payload.value) return new Uint32Array(0);
    return filterRows(payload.value, {
      text: traits.filter.value,
      backend: view.backend.value,
      kind: view.kind.value,
      statuses: view.statuses.value,
      threshold: view.threshold.value,
    });
  });
  const order = computed(() => sortRows(kept.value, keys.value, (n) => payload.value?.ranks(n) ?? null));
  const positions = computed(() => {
    const found = new Int32Array(payload.value?.rows ?? 0).fill(-1);
    order.value.forEach((row, position) => (found[row] = position));
    return found;
  });
  const gaugeColumn = computed(() => gaugeColumnOf(payload.value, traits.sortBy.value));
  const gauge = computed(() => (gaugeColumn.value ? gaugeOf(gaugeColumn.value) : null));
  return { keys, columns, order, positions, gaugeColumn, gauge };
}

function treeState(
  store: Store,
  view: ViewState,
  payload: Read<Payload | null>,
  gaugeColumn: Read<NumberColumn | null>,
) {
  const tree = computed(() => payload.value?.trees[view.treeName.value] ?? null);
  const expanded = computed(() => {
    if (view.treeName.value === "program") return store.traits.expanded.value;
    return view.moduleExpanded.value ?? (tree.value ? initiallyOpen(tree.value) : []);
  });
  const open = computed(() => openFlags(tree.value?.nodes ?? 0, expanded.value));
  const visible = computed(() =>
    tree.value ? visibleNodes(tree.value, open.value) : new Int32Array(0),
  );
  const worst = computed(() => {
    const rank = gaugeColumn.value && payload.value?.badness(gaugeColumn.value.name);
    if (!tree.value) return new Int32Array(0);
    if (!rank) return new Int32Array(tree.value.nodes).fill(-1);
    return worstRows(tree.value, tree.value.parents, tree.value.rowNode, rank);
  });
  return { tree, expanded, open, visible, worst };
}

function focusState(store: Store, view: ViewState, payload: Read<Payload | null>, tree: Read<Tree | null>) {
  const focus = computed<Detail | null>(() => {
    const row = store.traits.selected.value;
    if (row !== null && payload.value && row >= 0 && row < payload.value.compared) {
      return { kind: "row", row };
    }
    return view.detail.value;
  });
  const focusRow = computed(() => (focus.value?.kind === "row" ? focus.value.row : -1));
  const focusNode = computed(() => {
    const shown = tree.value;
    if (!shown || !focus.value) return -1;
    if (focus.value.kind === "row") return shown.rowNode[focus.value.row] ?? -1;
    return focus.value.tree === shown.name ? focus.value.node : -1;
  });
  return { focus, focusRow, focusNode };
}

/** Rows that belong to a node itself, not to what is inside it. */
export function ownRows(tree: Tree, node: number): Int32Array {
  return tree.rows.rows.subarray(tree.rows.start[node], tree.rows.start[node + 1]);
}

function worstOf(rows: Int32Array, badness: Int32Array | null): number {
  return rows.reduce((worst, row) => (badness && badness[row] > badness[worst] ? row : worst), rows[0]);
}

export function createApp(store: Store): App {
  const view = createViewState();
  const { traits } = store;
  const payload = computed(() =>
    store.payload.value.status === "ready" ? store.payload.value.value : null,
  );
  const table = tableState(store, view, payload);
  const nodes = treeState(store, view, payload, table.gaugeColumn);
  const focused = focusState(store, view, payload, nodes.tree);

  const setDetail = (detail: Detail): void =>
    batch(() => {
      traits.selected.value = null;
      view.detail.value = detail;
    });
  const selectRow = (row: number): void => {
    if (row >= (payload.peek()?.compared ?? 0)) return setDetail({ kind: "row", row });
    batch(() => {
      traits.selected.value = row;
      view.detail.value = null;
    });
  };
  const setExpanded = (ids: readonly number[], name: TreeName): void => {
    if (name === "program") traits.expanded.value = ids;
    else view.moduleExpanded.value = ids;
  };

  return {
    store,
    view,
    payload,
    ...table,
    ...nodes,
    ...focused,
    selectRow,
    sortOn(column, add) {
      const keys = nextKeys(table.keys.peek(), column.name, worstFirst(column), add);
      batch(() => {
        traits.sortBy.value = keys[0].column;
        traits.descending.value = keys[0].descending;
        view.secondKey.value = keys[1] ?? null;
      });
    },
    selectNode(tree, node) {
      const rows = ownRows(tree, node);
      if (rows.length === 0) return setDetail({ kind: "node", tree: tree.name, node });
      if (rows.includes(focused.focusRow.peek())) return;
      const badness = payload.peek()?.badness(table.gaugeColumn.peek()?.name ?? "") ?? null;
      selectRow(worstOf(rows, badness));
    },
    setExpanded: (ids) => setExpanded(ids, view.treeName.peek()),
    toggleNode(node) {
      const ids = nodes.expanded.peek();
      const next = ids.includes(node) ? ids.filter((id) => id !== node) : [...ids, node];
      setExpanded(next, view.treeName.peek());
    },
    positionOfNode: (node) => positionOf(nodes.visible.value, node),
    openAncestors(node) {
      const tree = nodes.tree.peek();
      if (!tree) return;
      const open = nodes.open.peek();
      const closed = ancestorsOf(tree.parents, node).filter((id) => !open[id]);
      if (closed.length) setExpanded([...nodes.expanded.peek(), ...closed], tree.name);
    },
  };
}
