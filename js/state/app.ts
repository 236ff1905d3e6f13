// One view's state put together: kernel state, its own state, and everything computed from both.
import { computed } from "@preact/signals";
import type { Payload } from "../data/payload";
import { Nodes } from "./nodes";
import type { Placement } from "./placement";
import { Rows } from "./rows";
import { Selection } from "./selection";
import type { Store } from "./store";
import { type Read, createViewState } from "./view";

export class App {
  readonly view = createViewState();
  readonly payload: Read<Payload | null>;
  readonly rows: Rows;
  readonly nodes: Nodes;
  readonly selection: Selection;

  /** `placement` moves the view to a side panel; only a view in a cell has it. */
  constructor(
    readonly store: Store,
    readonly placement: Placement | null = null,
  ) {
    const { view } = this;
    const { traits, payload: asked } = store;
    const payload = computed(() => (asked.value.status === "ready" ? asked.value.value : null));
    this.payload = payload;
    this.rows = new Rows(traits, view, payload);
    this.nodes = new Nodes(traits, view, payload, this.rows);
    this.selection = new Selection(traits, view, payload, this.rows, this.nodes);
  }

  /** Look into the delegate call of a row, and open its node when that is done. */
  zoom(row: number): void {
    this.store.jobs.start("zoom", { row }, () =>
      this.nodes.reveal([this.nodes.tree.peek()?.rowNode[row] ?? -1]),
    );
  }
}
