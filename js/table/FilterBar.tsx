// The bar above the panes: text, backend, kind, status, threshold, columns, and how many rows are left.
import type { JSX } from "preact";
import { DEFAULT_STATUSES, STATUSES, type StatusChoice, statusCounts, textCounts } from "../data/filter";
import { formatCount } from "../data/format";
import type { Payload } from "../data/payload";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";
import { Select } from "../ui/Select";
import { ColumnChooser } from "./ColumnChooser";
import { ThresholdFilter } from "./ThresholdFilter";

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

function ChoiceFilter({ payload, name }: { payload: Payload; name: "backend" | "kind" }): JSX.Element | null {
  const chosen = useApp().view[name];
  const counts = textCounts(payload.column(name));
  if (counts.length < 2 && chosen.value === null) return null;
  return (
    <Select
      label={`Filter by ${name}`}
      data-active={chosen.value !== null}
      choices={[
        { name: "", text: `Any ${name}` },
        ...counts.map(({ text, count }) => ({ name: text, text: `${text} (${formatCount(count)})` })),
      ]}
      value={chosen.value ?? ""}
      onChange={(text) => (chosen.value = text || null)}
    />
  );
}

const STATUS_HELP: Record<StatusChoice, string> = {
  compared: "Instructions whose value was compared with its own reference value",
  grouped: "Instructions that were compared together, as one value",
  "not compared": "Instructions without a gap; the column “reason” says why",
};

function toggled(chosen: ReadonlySet<StatusChoice>, name: StatusChoice): ReadonlySet<StatusChoice> {
  const next = new Set(chosen);
  if (!next.delete(name)) next.add(name);
  const same = next.size === DEFAULT_STATUSES.size && [...next].every((one) => DEFAULT_STATUSES.has(one));
  return same ? DEFAULT_STATUSES : next;
}

/** Switches for compared, grouped and not compared instructions, each with its count. */
function StatusFilter({ payload }: { payload: Payload }): JSX.Element {
  const { statuses } = useApp().view;
  const counts = statusCounts(payload);
  return (
    <div class="etv-switches" role="group" aria-label="Filter by status">
      {STATUSES.filter((name) => counts[name] > 0).map((name) => (
        <button
          key={name}
          type="button"
          class="etv-switch"
          aria-pressed={statuses.value.has(name)}
          data-tip={STATUS_HELP[name]}
          onClick={() => (statuses.value = toggled(statuses.peek(), name))}
        >
          {name} <span class="etv-switch-count">{formatCount(counts[name])}</span>
        </button>
      ))}
    </div>
  );
}

function RowCount({ payload }: { payload: Payload }): JSX.Element {
  const { rows, selection } = useApp();
  const hidden = rows.positions.value[selection.row.value] === -1;
  return (
    <span class="etv-count" role="status">
      {hidden && <span class="etv-count-hidden">selected row is filtered out · </span>}
      {formatCount(rows.order.value.length)} of {formatCount(payload.rows)} rows
    </span>
  );
}

export function FilterBar({ payload }: { payload: Payload }): JSX.Element {
  const { rows, view } = useApp();
  return (
    <div class="etv-bar" role="search" aria-label="Filters" data-tab={view.tab.value}>
      <TextFilter />
      <ChoiceFilter payload={payload} name="backend" />
      <ChoiceFilter payload={payload} name="kind" />
      <ThresholdFilter payload={payload} />
      <StatusFilter payload={payload} />
      {rows.filtered.value && (
        <Button class="etv-quiet" onClick={() => rows.clearFilters()}>
          <Icon name="close" /> Clear
        </Button>
      )}
      <span class="etv-bar-end">
        <RowCount payload={payload} />
        <ColumnChooser payload={payload} />
      </span>
    </div>
  );
}
