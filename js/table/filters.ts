// What the filter bar needs to know: choices with counts, and whether anything is filtered at all.
import { batch } from "@preact/signals";
import type { App } from "../state/app";
import type { Column } from "../state/columns";
import { STATUSES, type StatusChoice } from "../state/filter";
import type { Payload } from "../state/payload";
import { DEFAULT_STATUSES } from "../state/view";

export interface Choice {
  name: string;
  count: number;
}

/** Distinct texts of a column with the number of rows of each. */
export function choicesOf(column: Column | undefined, rows: number): Choice[] {
  if (!column || column.kind !== "text") return [];
  const counts = new Int32Array(column.dictionary.length);
  for (let row = 0; row < rows; row++) if (column.codes[row] >= 0) counts[column.codes[row]]++;
  return column.dictionary
    .map((name, code) => ({ name, count: counts[code] }))
    .filter((choice) => choice.count > 0);
}

export function statusCounts(payload: Payload): Record<StatusChoice, number> {
  const counts = { compared: 0, grouped: 0, "not compared": 0 };
  for (const code of payload.status) counts[STATUSES[code]]++;
  return counts;
}

export function clearFilters(app: App): void {
  const { view, store } = app;
  batch(() => {
    store.traits.filter.value = "";
    view.backend.value = null;
    view.kind.value = null;
    view.threshold.value = null;
    view.statuses.value = DEFAULT_STATUSES;
  });
}

export function hasFilters(app: App): boolean {
  const { view, store } = app;
  return (
    store.traits.filter.value.trim() !== "" ||
    view.backend.value !== null ||
    view.kind.value !== null ||
    view.threshold.value !== null ||
    view.statuses.value !== DEFAULT_STATUSES
  );
}
