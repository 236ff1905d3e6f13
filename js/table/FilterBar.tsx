// The bar above the panes: text, backend, kind, status, threshold, columns, and how many rows are left.
import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { formatCount } from "../state/format";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";
import { ColumnChooser } from "./ColumnChooser";
import { StatusFilter } from "./StatusFilter";
import { ThresholdFilter } from "./ThresholdFilter";
import { type Choice, choicesOf, clearFilters, hasFilters } from "./filters";

const TEXT_HELP =
  "Words must all match op, module, source, reference ops or backend.\n" +
  'Quotes keep spaces: "layer norm". A minus excludes: -linear.';

function TextFilter(): JSX.Element {
  const { filter } = useApp().store.traits;
  return (
    <label class="etv-search" data-tip={TEXT_HELP}>
      <Icon name="search" />
      <input
        type="search"
        aria-label="Filter rows by text"
        placeholder="Filter: op, module, source…"
        spellcheck={false}
        value={filter.value}
        onInput={(event) => (filter.value = event.currentTarget.value)}
      />
    </label>
  );
}

interface SelectProps {
  name: string;
  choices: Choice[];
  value: Signal<string | null>;
}

function ChoiceFilter({ name, choices, value }: SelectProps): JSX.Element | null {
  if (choices.length < 2 && value.value === null) return null;
  return (
    <select
      class="etv-select"
      aria-label={`Filter by ${name}`}
      data-active={value.value !== null}
      value={value.value ?? ""}
      onChange={(event) => (value.value = event.currentTarget.value || null)}
    >
      <option value="">Any {name}</option>
      {choices.map((choice) => (
        <option key={choice.name} value={choice.name}>
          {choice.name} ({formatCount(choice.count)})
        </option>
      ))}
    </select>
  );
}

function RowCount(): JSX.Element {
  const app = useApp();
  const rows = app.payload.value?.rows ?? 0;
  const hidden = app.focusRow.value >= 0 && app.positions.value[app.focusRow.value] === -1;
  return (
    <span class="etv-count" role="status">
      {hidden && <span class="etv-count-hidden">selected row is filtered out · </span>}
      {formatCount(app.order.value.length)} of {formatCount(rows)} rows
    </span>
  );
}

export function FilterBar(): JSX.Element | null {
  const app = useApp();
  const payload = app.payload.value;
  if (!payload) return null;
  return (
    <div class="etv-bar" role="search" aria-label="Filters" data-tab={app.view.tab.value}>
      <TextFilter />
      {(["backend", "kind"] as const).map((name) => (
        <ChoiceFilter
          key={name}
          name={name}
          choices={choicesOf(payload.column(name), payload.rows)}
          value={app.view[name]}
        />
      ))}
      <ThresholdFilter payload={payload} />
      <StatusFilter payload={payload} />
      {hasFilters(app) && (
        <button type="button" class="etv-button etv-quiet" onClick={() => clearFilters(app)}>
          <Icon name="close" /> Clear
        </button>
      )}
      <span class="etv-bar-end">
        <RowCount />
        <ColumnChooser payload={payload} />
      </span>
    </div>
  );
}
