// One view's state put together: kernel state, its own state, and everything computed from both.
import { batch, computed, signal } from "@preact/signals";
import { csvOf, markdownOf, pandasOf } from "../data/export";
import { filterRows } from "../data/filter";
import { linkOf } from "../data/link";
import { sliceAt } from "../data/tensor";
import type { TreeName, WireExplained, WireWhatIf } from "../kernel/contract";
import type { Payload } from "../data/payload";
import { type Profile, profileOf } from "../data/profile";
import { withRun } from "../data/runs";
import { Nodes } from "./nodes";
import type { Placement } from "./placement";
import { Rows } from "./rows";
import { Selection } from "./selection";
import type { Store } from "./store";
import { TokenState } from "./tokens";
import { type Mask, type Read, createViewState } from "./view";

export class App {
  readonly view = createViewState();
  readonly payload: Read<Payload | null>;
  readonly rows: Rows;
  readonly nodes: Nodes;
  readonly selection: Selection;
  readonly tokens: TokenState;
  readonly #beside = new Map<TreeName, Nodes>();
  /** The compared rows in program order; null where there are too few for a picture. */
  readonly profile: Read<Profile | null>;

  /** `placement` moves the view to a side panel; only a view in a cell has it. */
  constructor(
    readonly store: Store,
    readonly placement: Placement | null = null,
  ) {
    const { view } = this;
    const { traits, payload: asked } = store;
    const payload = computed(() => (asked.value.status === "ready" ? asked.value.value : null));
    this.payload = payload;
    this.tokens = new TokenState(store, payload);
    this.rows = new Rows(traits, view, payload);
    this.profile = computed(() => {
      const { value } = payload;
      if (!value || value.compared === 0) return null;
      if (!value.runs) return profileOf(value);
      const run = this.rows.run.value;
      return profileOf(value, filterRows(value, run), run === "");
    });
    this.nodes = new Nodes(traits, view, payload, this.rows, view.treeName);
    this.selection = new Selection(traits, view, payload, this.rows, this.nodes);
  }

  /** What the tree of a program beside shows. */
  nodesBeside(name: TreeName): Nodes {
    let nodes = this.#beside.get(name);
    if (!nodes) {
      nodes = new Nodes(this.store.traits, this.view, this.payload, this.rows, signal(name));
      this.#beside.set(name, nodes);
    }
    return nodes;
  }

  /** What was about the rows and nodes of another method is about nothing. */
  forget(): void {
    const { closedCalls, detail, element, explained, mask, pins, slice, timeSpan, timedRun, unfolded, whatIf } = this.view;
    batch(() => {
      for (const one of [detail, element, explained, mask, slice, timeSpan, timedRun, whatIf]) one.value = null;
      pins.value = [];
      closedCalls.value = new Set();
      unfolded.value = new Map();
      this.selection.forget();
    });
  }

  /** Go to the next or previous row whose own error is more than its precision explains. */
  worse(by: -1 | 1): void {
    const profile = this.profile.peek();
    if (profile) this.selection.worse(profile, by);
  }

  goFirst(): void {
    const first = this.payload.peek()?.first ?? -1;
    if (first >= 0) this.selection.selectRow(first);
  }

  togglePin(): void {
    const row = this.selection.row.peek();
    const { pins } = this.view;
    if (row < 0) return;
    pins.value = pins.peek().includes(row) ? pins.peek().filter((one) => one !== row) : [...pins.peek(), row];
  }

  /** Show the runs of a term, or the worst of all; the selected value stays selected. */
  chooseRun(run: string): void {
    const { filter } = this.store.traits;
    filter.value = withRun(filter.peek(), run);
    const values = this.payload.peek()?.runs?.values;
    const passes = this.rows.passes.peek();
    const row = this.selection.row.peek();
    const same = values?.findIndex((value, at) => value === values[row] && passes[at] === 1) ?? -1;
    if (same >= 0 && !passes[row]) this.selection.selectRow(same);
  }

  /** Show an element of the selected row in the map. */
  lookAt(index: readonly number[]): void {
    const row = this.selection.row.peek();
    batch(() => {
      this.view.element.value = row < 0 ? null : { row, index };
      this.view.slice.value = { row, axes: null, index };
      this.view.chart.value = "map";
    });
  }

  /** Show, in the map, the elements of a span alone; of values those of the runtime, unless the reference's are shown. */
  showMask(mask: Mask): void {
    const { view } = this;
    batch(() => {
      view.mask.value = mask;
      if (mask.of === "error") view.mapOf.value = "error";
      else if (view.mapOf.peek() === "error") view.mapOf.value = "runtime";
      view.chart.value = "map";
    });
  }

  /** Show the slice of a row at an index along one axis. */
  lookAtSlice(row: number, shape: readonly number[], axis: number, at: number): void {
    batch(() => {
      this.view.element.value = null;
      this.view.slice.value = { row, ...sliceAt(shape, axis, at) };
      this.view.chart.value = "map";
    });
  }

  /** Put the rows of the table, or a link to what is shown, on the clipboard. */
  copy(as: "pandas" | "csv" | "markdown" | "link"): void {
    const payload = this.payload.peek();
    if (!payload) return;
    const rows = [...this.rows.order.peek()];
    const columns = this.rows.columns.peek();
    const text = {
      pandas: () => pandasOf(payload, rows, this.store.traits.filter.peek(), this.rows.keys.peek()),
      csv: () => csvOf(rows, payload.columns),
      markdown: () => markdownOf(payload, rows, columns),
      link: () => this.#link(),
    }[as]();
    const said = as === "link" ? "Link copied" : `${rows.length} rows copied`;
    const { said: tell } = this.view;
    const { clipboard } = navigator;
    if (!clipboard) return void (tell.value = "Copying is not allowed here");
    clipboard.writeText(text).then(
      () => void (tell.value = said),
      () => void (tell.value = "Copying is not allowed here"),
    );
  }

  /** An address that shows the same; in a notebook, only what comes behind the report's own. */
  #link(): string {
    const { selection, store, view } = this;
    const row = selection.row.peek();
    const element = view.element.peek();
    const link = linkOf({
      row,
      tab: view.chart.peek(),
      at: element?.row === row ? element.index : null,
      filter: store.traits.filter.peek(),
      graph: view.treeMode.peek() === "graph",
    });
    return store.source.kernel ? link : location.href.split("#")[0] + link;
  }

  /** What would become of the outputs if a row, or all that are pinned, were exact. */
  whatIf(row: number): void {
    const { pins, whatIf } = this.view;
    const compared = this.payload.peek()?.compared ?? 0;
    const rows = [...new Set([row, ...pins.peek()])].filter((one) => one < compared);
    this.store.jobs.start("what_if", { rows }, (result) => void (whatIf.value = result as WireWhatIf));
  }

  /** Ask for a table about a row, or about the program. */
  explain(what: string, row: number): void {
    const { explained } = this.view;
    this.store.jobs.start("explain", { what, row }, (result) => {
      explained.value = { ...(result as WireExplained), what, row };
    });
  }

  /** Look into the delegate call of a row, and open its node when that is done. */
  zoom(row: number): void {
    this.store.jobs.start("zoom", { row }, () =>
      this.nodes.reveal([this.nodes.tree.peek()?.rowNode[row] ?? -1]),
    );
  }
}
