// What is selected, in every pane: a gap row (a trait), or a row or node without numbers (view only).
import { batch, computed } from "@preact/signals";
import type { Traits } from "../kernel/traits";
import type { Payload } from "../data/payload";
import { worstOf } from "../data/rank";
import type { Tree } from "../data/tree";
import type { Nodes } from "./nodes";
import type { Rows } from "./rows";
import type { Detail, Read, ViewState } from "./view";

export class Selection {
  readonly detail = computed<Detail | null>(() => {
    const payload = this.payload.value;
    const row = this.traits.selected.value;
    const detail = this.view.detail.value;
    if (!payload) return null;
    if (row !== null && row >= 0 && row < payload.compared) return { kind: "row", row };
    if (detail?.kind === "row") return detail.row < payload.rows ? detail : null;
    return detail && detail.node < payload.trees[detail.tree].nodes ? detail : null;
  });

  /** The selected row, gap row or not, -1 for none. */
  readonly row = computed(() => (this.detail.value?.kind === "row" ? this.detail.value.row : -1));

  /** The selected node of the tree that is shown, -1 for none. */
  readonly node = computed(() => {
    const tree = this.nodes.tree.value;
    const detail = this.detail.value;
    if (!tree || !detail) return -1;
    if (detail.kind === "row") return tree.rowNode[detail.row] ?? -1;
    return detail.tree === tree.name ? detail.node : -1;
  });

  constructor(
    private readonly traits: Traits,
    private readonly view: ViewState,
    private readonly payload: Read<Payload | null>,
    private readonly rows: Rows,
    private readonly nodes: Nodes,
  ) {}

  readonly selectRow = (row: number): void => {
    const compared = this.payload.peek()?.compared ?? 0;
    if (row < compared) this.#select(row, null);
    else this.#select(null, { kind: "row", row });
  };

  /** Select the worst row of a node, or the node itself if it has none. */
  selectNode(tree: Tree, node: number): void {
    const rows = tree.rowsOf(node);
    if (rows.length === 0) return this.#select(null, { kind: "node", tree: tree.name, node });
    const payload = this.payload.peek();
    if (!payload || rows.includes(this.row.peek())) return;
    const worst = worstOf(payload, rows, this.rows.gaugeColumn.peek()?.name ?? "");
    this.selectRow(worst < 0 ? rows[0] : worst);
  }

  #select(row: number | null, detail: Detail | null): void {
    batch(() => {
      this.traits.selected.value = row;
      this.view.detail.value = detail;
    });
  }
}
