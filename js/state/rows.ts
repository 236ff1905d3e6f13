// What the table shows: sort keys, columns, the rows that pass the filters in order, and what bars stand for.
import { batch, computed } from "@preact/signals";
import type { Traits } from "../kernel/traits";
import { type Column, type NumberColumn, hasGauge, hasValues, isMetric, worstFirst } from "../data/columns";
import { DEFAULT_STATUSES, filterRows } from "../data/filter";
import type { Payload } from "../data/payload";
import { type SortKey, nextKeys, sortRows } from "../data/sort";
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
    return this.payload.value?.columns.filter(({ name, visible }) => chosen.get(name) ?? visible) ?? [];
  });

  readonly #passing = computed(() => {
    const { backend, kind, statuses, threshold } = this.view;
    const payload = this.payload.value;
    if (!payload) return new Uint32Array(0);
    return filterRows(payload, {
      text: this.traits.filter.value,
      backend: backend.value,
      kind: kind.value,
      statuses: statuses.value,
      threshold: threshold.value,
    });
  });

  /** Row ids that the table shows, in order. */
  readonly order = computed(() =>
    sortRows(this.#passing.value, this.keys.value, (name) => this.payload.value?.ranks(name) ?? null),
  );

  /** Position of each row in `order`, -1 if it is filtered out. */
  readonly positions = computed(() => {
    const positions = new Int32Array(this.payload.value?.rows ?? 0).fill(-1);
    this.order.value.forEach((row, position) => (positions[row] = position));
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
  readonly filtered = computed(
    () =>
      this.traits.filter.value.trim() !== "" ||
      this.view.backend.value !== null ||
      this.view.kind.value !== null ||
      this.view.threshold.value !== null ||
      this.view.statuses.value !== DEFAULT_STATUSES,
  );

  constructor(
    private readonly traits: Traits,
    private readonly view: ViewState,
    private readonly payload: Read<Payload | null>,
  ) {}

  clearFilters(): void {
    batch(() => {
      this.traits.filter.value = "";
      this.view.backend.value = null;
      this.view.kind.value = null;
      this.view.threshold.value = null;
      this.view.statuses.value = DEFAULT_STATUSES;
    });
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
