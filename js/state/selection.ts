// What is selected, in every pane: a gap row (a trait), or a row or node without numbers (view only).
import { batch, computed } from "@preact/signals";
import type { Traits } from "../kernel/traits";
import type { Payload } from "../data/payload";
import type { Profile } from "../data/profile";
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
    return detail && detail.node < (payload.trees[detail.tree]?.nodes ?? 0) ? detail : null;
  });

  /** The selected row, gap row or not, -1 for none. */
  readonly row = computed(() => (this.detail.value?.kind === "row" ? this.detail.value.row : -1));

  /** The selected node of the tree that is shown, -1 for none. */
  readonly node = computed(() => this.nodeIn(this.nodes.tree.value));

  /** The selected node of a tree, -1 for none. */
  nodeIn(tree: Tree | null): number {
    const detail = this.detail.value;
    if (!tree || !detail) return -1;
    if (detail.kind === "row") return tree.rowNode[detail.row] ?? -1;
    return detail.tree === tree.name ? detail.node : -1;
  }

  constructor(
    private readonly traits: Traits,
    private readonly view: ViewState,
    private readonly payload: Read<Payload | null>,
    private readonly rows: Rows,
    private readonly nodes: Nodes,
  ) {}

  /** Rows that were selected, and where in them we are. */
  readonly #path: number[] = [];
  #at = -1;

  /** Nothing was selected before. */
  forget(): void {
    this.#path.length = 0;
    this.#at = -1;
  }

  readonly selectRow = (row: number): void => {
    if (row !== this.#path[this.#at]) {
      const held = this.row.peek();
      if (this.#at < 0 && held >= 0 && held !== row) this.#path[++this.#at] = held;
      this.#path.splice(++this.#at, Infinity, row);
    }
    this.#show(row);
  };

  /** Go back (-1) or forward (1) through what was selected. */
  step(by: -1 | 1): void {
    const row = this.#path[this.#at + by];
    if (row === undefined || row >= (this.payload.peek()?.rows ?? 0)) return;
    this.#at += by;
    this.#show(row);
  }

  /** The next (1) or previous (-1) row, in program order, whose own error is more than its precision explains. */
  worse(profile: Profile, by: -1 | 1): void {
    const levels = this.payload.peek()?.levels;
    const passes = this.rows.passes.peek();
    const { rows, places } = profile;
    const from = places[this.row.peek()] ?? -1;
    let place = from < 0 && by < 0 ? rows.length : from;
    for (place += by; place >= 0 && place < rows.length; place += by) {
      const row = rows[place];
      if (levels?.[row] && passes[row]) return this.selectRow(row);
    }
  }

  /** Close the inside of a delegate call, or open it; what was selected in there gives way to the call. */
  readonly toggleInside = (call: number): void => {
    const open = this.rows.isOpen(call);
    if (open && this.payload.peek()?.zooms.around(this.row.peek()) === call) this.selectRow(call);
    this.rows.setOpen(call, !open);
  };

  #show(row: number): void {
    this.rows.setOpen(this.payload.peek()?.zooms.around(row) ?? -1, true);
    const compared = this.payload.peek()?.compared ?? 0;
    if (row < compared) this.#select(row, null);
    else this.#select(null, { kind: "row", row });
  }

  /** Select the worst row of a node, or the node itself if it has none. */
  selectNode(tree: Tree, node: number): void {
    const own = tree.rowsOf(node);
    if (own.length === 0) return this.#select(null, { kind: "node", tree: tree.name, node });
    const payload = this.payload.peek();
    if (!payload || own.includes(this.row.peek())) return;
    const read = own.filter((row) => payload.unused[row] === 0);
    const rows = read.length > 0 ? read : own;
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
