// One cell of the gap table: text, number, or number over a severity bar.
import type { JSX } from "preact";
import { type Column, isMetric, numberAt, textAt } from "../state/columns";
import { formatExact, formatNumber } from "../state/format";
import { type Gauge, type GaugeOf, gaugeOf } from "../state/gauge";
import { Icon } from "../ui/Icon";
import { GaugeBar } from "../ui/Gauge";

const gauges = new WeakMap<Column, GaugeOf>();

function gaugeIn(column: Column, row: number, mismatch: boolean): Gauge | null {
  if (column.kind !== "number") return null;
  let gauge = gauges.get(column);
  if (!gauge) gauges.set(column, (gauge = gaugeOf(column)));
  return gauge(column.values[row], mismatch);
}

interface Props {
  column: Column;
  row: number;
  index: number;
  mismatch: boolean;
  /** Draw a bar behind the number. */
  bar: boolean;
}

const MISMATCH_TIP =
  "Some elements are non-finite in only one of reference and runtime: worst under every metric";

function MismatchMark(): JSX.Element {
  return (
    <span class="etv-mark" role="img" aria-label="non-finite mismatch" data-tip={MISMATCH_TIP}>
      <Icon name="warn" />
    </span>
  );
}

function NumberCell({ column, row, index, mismatch, bar }: Props): JSX.Element {
  const value = numberAt(column, row);
  const metric = isMetric(column);
  const rated = metric && (bar || column.thresholds !== null);
  const gauge = rated && (bar || !mismatch) ? gaugeIn(column, row, mismatch) : null;
  const unknown = Number.isNaN(value);
  const text = unknown ? (metric && mismatch ? "non-finite" : "–") : formatNumber(value, column.format);
  return (
    <span
      class={index === 0 ? "etv-cell etv-number etv-first" : "etv-cell etv-number"}
      role="gridcell"
      aria-colindex={index + 1}
      style={{ gridColumn: index + 1 }}
      data-step={mismatch ? undefined : gauge?.step}
      data-unknown={unknown && !mismatch ? true : undefined}
      data-tip={unknown ? undefined : formatExact(value)}
    >
      {bar && <GaugeBar gauge={gauge} />}
      {text}
    </span>
  );
}

export function Cell(props: Props): JSX.Element {
  const { column, row, index } = props;
  if (column.kind === "number") return <NumberCell {...props} />;
  const text = textAt(column, row);
  const first = index === 0 ? " etv-first" : "";
  return (
    <span
      class={`etv-cell etv-text etv-format-${column.format}${first}`}
      role="gridcell"
      aria-colindex={index + 1}
      style={{ gridColumn: index + 1 }}
      data-unknown={text === null ? true : undefined}
      data-tip={text ?? undefined}
      data-tip-clipped
    >
      {text ?? "–"}
      {props.mismatch && column.name === "op" && <MismatchMark />}
    </span>
  );
}
