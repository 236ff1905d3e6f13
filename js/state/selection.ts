// What is selected, in every pane: a gap row (a trait), or a row or node without numbers (view only).
import { batch, computed } from "@preact/signals";
import type { NumberColumn } from "./columns";
import type { Payload, Tree } from "./payload";
import type { Traits } from "./traits";
import type { Detail, Read, ViewState } from "./view";

export interface SelectionState {
  focus: Read<Detail | null>;
  /** The focused row, gap row or not, -1 for none. */
  focusRow: Read<number>;
  /** The focused node of the tree that is shown, -1 for none. */
  focusNode: Read<number>;
  selectRow(row: number): void;
  selectNode(tree: Tree, node: number): void;
}

/** Rows that belong to a node itself, not to what is inside it. */
export function ownRows(tree: Tree, node: number): Int32Array {
  return tree.rows.rows.subarray(tree.rows.start[node], tree.rows.start[node + 1]);
}

function worstOf(rows: Int32Array, badness: Int32Array | null): number {
  return rows.reduce((worst, row) => (badness && badness[row] > badness[worst] ? row : worst), rows[0]);
}

function focusOf(selected: number | null, payload: Payload | null, detail: Detail | null): Detail | null {
  if (!payload) return null;
  if (selected !== null && selected >= 0 && selected < payload.compared) {
    return { kind: "row", row: selected };
  }
  if (detail?.kind === "row") return detail.row < payload.rows ? detail : null;
  return detail && detail.node < payload.trees[detail.tree].nodes ? detail : null;
}

export function selectionState(
  traits: Traits,
  view: ViewState,
  payload: Read<Payload | null>,
  tree: Read<Tree | null>,
  gaugeColumn: Read<NumberColumn | null>,
): SelectionState {
  const focus = computed(() => focusOf(traits.selected.value, payload.value, view.detail.value));
  const focusRow = computed(() => (focus.value?.kind === "row" ? focus.value.row : -1));
  const focusNode = computed(() => {
    const shown = tree.value;
    if (!shown || !focus.value) return -1;
    if (focus.value.kind === "row") return shown.rowNode[focus.value.row] ?? -1;
    return focus.value.tree === shown.name ? focus.value.node : -1;
  });
  const select = (selected: number | null, detail: Detail | null): void =>
    batch(() => {
      traits.selected.value = selected;
      view.detail.value = detail;
    });
  const selectRow = (row: number): void => {
    if (row < (payload.peek()?.compared ?? 0)) select(row, null);
    else select(null, { kind: "row", row });
  };
  return {
    focus,
    focusRow,
    focusNode,
    selectRow,
    selectNode(shown, node) {
      const rows = ownRows(shown, node);
      if (rows.length === 0) return select(null, { kind: "node", tree: shown.name, node });
      if (rows.includes(focusRow.peek())) return;
      selectRow(worstOf(rows, payload.peek()?.badness(gaugeColumn.peek()?.name ?? "") ?? null));
    },
  };
}
