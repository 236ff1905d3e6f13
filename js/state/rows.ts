// What the table shows: sort keys, columns, the rows that pass the filters in order, and what bars stand for.
import { batch, computed } from "@preact/signals";
import type { Traits } from "../kernel/traits";
import { type Column, type NumberColumn, hasGauge, hasValues, isMetric, worstFirst } from "../data/columns";
import { filterRows, readQuery } from "../data/filter";
import type { Payload } from "../data/payload";
import { runTerms } from "../data/runs";
import { type SortKey, nextKeys, sortRows } from "../data/sort";
import type { Tree } from "../data/tree";
import { nested } from "../data/zooms";
import type { Read, ViewState } from "./view";

export class Rows {
  /** The column that sorts: severity where the one that was asked for is not there. */
  readonly #sortBy = computed(() => {
    const name = this.traits.sortBy.value;
    const payload = this.payload.value;
    return payload && !hasValues(payload.column(name)) ? "severity" : name;
  });

  readonly keys = computed<readonly SortKey[]>(() => {
    const first = { column: this.#sortBy.value, descending: this.traits.descending.value };
    const second = this.view.secondKey.value;
    return second && second.column !== first.column ? [first, second] : [first];
  });

  readonly columns = computed(() => {
    const chosen = this.view.columnChoice.value;
    return this.payload.value?.columns.filter((column) => chosen.get(column.name) ?? (column.visible && hasValues(column))) ?? [];
  });

  readonly #passing = computed(() => {
    const payload = this.payload.value;
    return payload ? filterRows(payload, this.traits.filter.value) : new Uint32Array(0);
  });

  /** What the filter says of the runs that are looked at; "" for the worst of each value. */
  readonly run = computed(() => {
    const payload = this.payload.value;
    return payload?.runs ? runTerms(readQuery(payload, this.traits.filter.value).terms) : "";
  });

  /** A flag for each row that passes the filter; sorting leaves it as it is. */
  readonly passes = computed(() => {
    const flags = new Uint8Array(this.payload.value?.rows ?? 0);
    for (const row of this.#passing.value) flags[row] = 1;
    return flags;
  });

  /** Row ids that the table shows, in order: pinned rows first, whatever the filter; insides below their delegates. */
  readonly order = computed(() => {
    const payload = this.payload.value;
    if (!payload) return this.#passing.value;
    const ranked = sortRows(this.#passing.value, this.keys.value, payload.ranks);
    const sorted = nested(ranked, payload.zooms, (call) => !this.isOpen(call));
    const pins = this.view.pins.value.filter((row) => row < payload.rows);
    if (pins.length === 0) return sorted;
    const pinned = new Set(pins);
    return Uint32Array.from([...pins, ...sorted.filter((row) => !pinned.has(row))]);
  });

  /** Position of each row in `order`, -1 if it is filtered out. */
  readonly positions = computed(() => {
    const positions = new Int32Array(this.payload.value?.rows ?? 0).fill(-1);
    const order = this.order.value;
    for (let position = 0; position < order.length; position++) positions[order[position]] = position;
    return positions;
  });

  /** The column that bars stand for: the one sorted by if bars can show it, else severity. */
  readonly gaugeColumn = computed<NumberColumn | null>(() => {
    const payload = this.payload.value;
    const sorted = payload?.column(this.#sortBy.value);
    if (hasGauge(sorted)) return sorted;
    const severity = payload?.column("severity");
    return isMetric(severity) ? severity : (payload?.columns.find(isMetric) ?? null);
  });

  /** True if other rows are shown than at first. */
  readonly filtered = computed(() => this.traits.filter.value.trim() !== "");

  /** A flag for each node of a tree: whether the filter leaves it. A node without rows goes with what it is in. */
  nodesLeft({ nodes, parents, rowNode }: Tree): Uint8Array {
    const passes = this.passes.value;
    const HAS = 1;
    const PASSES = 2;
    const flags = new Uint8Array(nodes);
    for (let row = 0; row < rowNode.length; row++) {
      if (rowNode[row] >= 0) flags[rowNode[row]] |= passes[row] ? HAS | PASSES : HAS;
    }
    for (let node = nodes - 1; node > 0; node--) if (parents[node] >= 0) flags[parents[node]] |= flags[node];
    for (let node = 0; node < nodes; node++) {
      const parent = parents[node];
      flags[node] = flags[node] === 0 ? (parent < 0 ? 1 : flags[parent]) : Number((flags[node] & PASSES) > 0);
    }
    return flags;
  }

  constructor(
    private readonly traits: Traits,
    private readonly view: ViewState,
    private readonly payload: Read<Payload | null>,
  ) {}

  /** Whether the inside of a delegate call is shown; a search shows what it finds. */
  isOpen(call: number): boolean {
    return this.filtered.value || !this.view.closedCalls.value.has(call);
  }

  /** Show the inside of a delegate call, or leave it out. */
  setOpen(call: number, open: boolean): void {
    const closed = new Set(this.view.closedCalls.peek());
    if (open) closed.delete(call);
    else closed.add(call);
    if (closed.size !== this.view.closedCalls.peek().size) this.view.closedCalls.value = closed;
  }

  clearFilters(): void {
    this.traits.filter.value = "";
  }

  /** Sort by a column; `add` makes it the second key. */
  sortOn(column: Column, add: boolean): void {
    this.#sort(nextKeys(this.keys.peek(), column.name, worstFirst(column), add));
  }

  /** Sort by a column, worst first, and let the tree's bars show it. */
  rankBy(name: string): void {
    const column = this.payload.peek()?.column(name);
    if (!column) return;
    const { columnChoice } = this.view;
    batch(() => {
      if (!column.visible) columnChoice.value = new Map(columnChoice.peek()).set(name, true);
      this.#sort([{ column: name, descending: worstFirst(column) }]);
    });
  }

  #sort([first, second]: readonly SortKey[]): void {
    batch(() => {
      this.traits.sortBy.value = first.column;
      this.traits.descending.value = first.descending;
      this.view.secondKey.value = second ?? null;
    });
  }
}
