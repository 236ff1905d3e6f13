// What the table shows: sort keys, columns, rows that pass the filters in order, and the bars.
import { computed } from "@preact/signals";
import { type Column, type NumberColumn, hasGauge, isMetric } from "./columns";
import { filterRows } from "./filter";
import { type GaugeOf, gaugeOf } from "./gauge";
import type { Payload } from "./payload";
import { type SortKey, sortRows } from "./sort";
import type { Traits } from "./traits";
import type { Read, ViewState } from "./view";

export interface RowsState {
  keys: Read<readonly SortKey[]>;
  columns: Read<readonly Column[]>;
  /** Row ids that the table shows, in order. */
  order: Read<Uint32Array>;
  /** Position of each row in `order`, -1 if it is filtered out. */
  positions: Read<Int32Array>;
  gaugeColumn: Read<NumberColumn | null>;
  gauge: Read<GaugeOf | null>;
}

const SEVERITY = "severity";

/** The column that bars stand for: the one sorted by if bars can show it, else severity. */
function gaugeColumnOf(payload: Payload | null, sortedBy: string): NumberColumn | null {
  const sorted = payload?.column(sortedBy);
  if (hasGauge(sorted)) return sorted;
  const severity = payload?.column(SEVERITY);
  return isMetric(severity) ? severity : (payload?.columns.find(isMetric) ?? null);
}

function sortKeys(traits: Traits, view: ViewState): readonly SortKey[] {
  const first = { column: traits.sortBy.value, descending: traits.descending.value };
  const second = view.secondKey.value;
  return second && second.column !== first.column ? [first, second] : [first];
}

function passingRows(payload: Payload | null, traits: Traits, view: ViewState): Uint32Array {
  if (!payload) return new Uint32Array(0);
  return filterRows(payload, {
    text: traits.filter.value,
    backend: view.backend.value,
    kind: view.kind.value,
    statuses: view.statuses.value,
    threshold: view.threshold.value,
  });
}

function positionsIn(order: Uint32Array, rows: number): Int32Array {
  const positions = new Int32Array(rows).fill(-1);
  for (let position = 0; position < order.length; position++) positions[order[position]] = position;
  return positions;
}

export function rowsState(traits: Traits, view: ViewState, payload: Read<Payload | null>): RowsState {
  const keys = computed(() => sortKeys(traits, view));
  const kept = computed(() => passingRows(payload.value, traits, view));
  const order = computed(() =>
    sortRows(kept.value, keys.value, (name) => payload.value?.ranks(name) ?? null),
  );
  const gaugeColumn = computed(() => gaugeColumnOf(payload.value, traits.sortBy.value));
  return {
    keys,
    order,
    gaugeColumn,
    columns: computed(() => {
      const chosen = view.columnChoice.value;
      return payload.value?.columns.filter((c) => chosen.get(c.name) ?? c.visible) ?? [];
    }),
    positions: computed(() => positionsIn(order.value, payload.value?.rows ?? 0)),
    gauge: computed(() => (gaugeColumn.value ? gaugeOf(gaugeColumn.value) : null)),
  };
}
