// "severity ≥ 10": keeps the rows that are at least as bad as a value of one metric.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type NumberColumn, isMetric } from "../data/columns";
import type { Threshold } from "../data/filter";
import type { Payload } from "../data/payload";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";
import { Popover } from "../ui/Popover";
import { Select } from "../ui/Select";

function defaultThreshold(column: NumberColumn): Threshold {
  return { column: column.name, value: column.thresholds?.[0] ?? 0, below: column.better === "high" };
}

interface FieldsProps {
  metrics: NumberColumn[];
  current: Threshold;
  onChange: (threshold: Threshold) => void;
}

function isNumber(text: string): boolean {
  return text.trim() !== "" && !Number.isNaN(Number(text));
}

/** The number is kept as typed: "1e-" is not a number yet, but must not be erased. */
function NumberField({ value, onChange }: { value: number; onChange: (value: number) => void }): JSX.Element {
  const [typed, setTyped] = useState(String(value));
  useEffect(() => {
    if (Number(typed) !== value) setTyped(String(value));
  }, [value]);
  const onInput = (text: string): void => {
    setTyped(text);
    if (isNumber(text)) onChange(Number(text));
  };
  return (
    <input
      class="etv-input"
      type="text"
      inputMode="decimal"
      aria-label="Threshold"
      aria-invalid={!isNumber(typed)}
      value={typed}
      onInput={(event) => onInput(event.currentTarget.value)}
    />
  );
}

function ThresholdFields({ metrics, current, onChange }: FieldsProps): JSX.Element {
  return (
    <div class="etv-threshold">
      <Select
        label="Metric"
        choices={metrics.map(({ name, label }) => ({ name, text: label }))}
        value={current.column}
        onChange={(name) => {
          const column = metrics.find((metric) => metric.name === name);
          if (column) onChange(defaultThreshold(column));
        }}
      />
      <Button
        class="etv-sign"
        aria-label={current.below ? "at most (press for at least)" : "at least (press for at most)"}
        onClick={() => onChange({ ...current, below: !current.below })}
      >
        {current.below ? "≤" : "≥"}
      </Button>
      <NumberField value={current.value} onChange={(value) => onChange({ ...current, value })} />
    </div>
  );
}

export function ThresholdFilter({ payload }: { payload: Payload }): JSX.Element | null {
  const { rows, view } = useApp();
  const { threshold } = view;
  const metrics = payload.columns.filter(isMetric);
  const gauge = rows.gaugeColumn.value;
  if (metrics.length === 0 || !gauge) return null;
  const held = threshold.value;
  const label = held && (payload.column(held.column)?.label ?? held.column);
  return (
    <Popover
      label="Threshold"
      tip="Keep only rows that are at least this bad"
      active={held !== null}
      button={
        <>
          <Icon name="filter" />
          {held ? ` ${label} ${held.below ? "≤" : "≥"} ${held.value}` : " Threshold"}
        </>
      }
    >
      <ThresholdFields
        metrics={metrics}
        current={held ?? defaultThreshold(gauge)}
        onChange={(next) => (threshold.value = next)}
      />
      <p class="etv-panel-note">Rows with a non-finite mismatch always pass on the bad side.</p>
      <div class="etv-panel-actions">
        <Button onClick={() => (threshold.value = held ? null : defaultThreshold(gauge))}>
          {held ? "Remove" : "Apply"}
        </Button>
      </div>
    </Popover>
  );
}
