// One cell of the gap table: text, number, or number over a bar.
import type { JSX } from "preact";
import { type Column, INTRODUCED_PART, isMetric, numberAt, textAt } from "../state/columns";
import { formatExact, formatNumber } from "../state/format";
import { type Gauge, type GaugeOf, gaugeOf } from "../state/gauge";
import { Icon } from "../ui/Icon";
import { GaugeBar } from "../ui/Gauge";
import { ZoomButton } from "../zoom/ZoomButton";
import { ShareBar, type ShareScale, shareScale } from "../ui/ShareBar";

/** What belongs to a row whatever the column. */
export interface RowFacts {
  row: number;
  mismatch: boolean;
  /** The share of the error that the row introduced; NaN where it is not known. */
  part: number;
  /** An operator inside of a delegate that was zoomed. */
  inner: boolean;
  /** A delegate call that can be zoomed into. */
  zoomable: boolean;
}

interface Props {
  column: Column;
  index: number;
  facts: RowFacts;
  /** Draw a bar behind the number. */
  bar: boolean;
}

const gauges = new WeakMap<Column, GaugeOf>();
const scales = new WeakMap<Column, ShareScale>();

function gaugeIn(column: Column, row: number, mismatch: boolean): Gauge | null {
  if (column.kind !== "number") return null;
  let gauge = gauges.get(column);
  if (!gauge) gauges.set(column, (gauge = gaugeOf(column)));
  return gauge(column.values[row], mismatch);
}

function scaleOf(column: Column & { kind: "number" }): ShareScale {
  let scale = scales.get(column);
  if (!scale) scales.set(column, (scale = shareScale(column.values)));
  return scale;
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

function Bar({
  column,
  facts,
  gauge,
}: {
  column: Column;
  facts: RowFacts;
  gauge: Gauge | null;
}): JSX.Element {
  if (column.kind === "number" && column.name === "attribution") {
    return <ShareBar value={column.values[facts.row]} scale={scaleOf(column)} />;
  }
  const split = column.name === "severity" && !facts.mismatch;
  return <GaugeBar gauge={gauge} part={split ? facts.part : undefined} />;
}

function tipOf(column: Column, value: number, { part, mismatch }: RowFacts): string | undefined {
  if (Number.isNaN(value)) return undefined;
  if (column.name !== "severity" || Number.isNaN(part) || mismatch) return formatExact(value);
  return (
    `${column.label} ${formatExact(value)}\n` +
    `introduced here: ${formatNumber(part, "percent")} of the RMSE (strong), inherited: the rest (pale)`
  );
}

function NumberCell({ column, facts, index, bar }: Props): JSX.Element {
  const { row, mismatch } = facts;
  const value = numberAt(column, row);
  const metric = isMetric(column);
  const rated = bar || column.thresholds !== null;
  const gauge = rated && (bar || !mismatch) ? gaugeIn(column, row, mismatch && metric) : null;
  const unknown = Number.isNaN(value);
  const text = unknown ? (metric && mismatch ? "non-finite" : "–") : formatNumber(value, column.format);
  return (
    <span
      class={index === 0 ? "etv-cell etv-number etv-first" : "etv-cell etv-number"}
      role="gridcell"
      aria-colindex={index + 1}
      style={{ gridColumn: index + 1 }}
      data-step={mismatch && metric ? undefined : gauge?.step}
      data-unknown={unknown && !(mismatch && metric) ? true : undefined}
      data-tip={tipOf(column, value, facts)}
    >
      {bar && <Bar column={column} facts={facts} gauge={gauge} />}
      {text}
    </span>
  );
}

/** Columns that have a bar whatever the table is sorted by. */
export function hasBar(column: Column, sortedBy: string): boolean {
  if (column.name === INTRODUCED_PART) return false;
  return column.name === sortedBy || column.name === "attribution" || column.name.endsWith("severity");
}

export function Cell(props: Props): JSX.Element {
  const { column, index, facts } = props;
  if (column.kind === "number") return <NumberCell {...props} />;
  const text = textAt(column, facts.row);
  const first = index === 0 ? " etv-first" : "";
  const op = column.name === "op";
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
      {op && facts.inner && <Icon name="inside" />}
      {text ?? "–"}
      {op && facts.mismatch && <MismatchMark />}
      {op && facts.zoomable && <ZoomButton row={facts.row} />}
    </span>
  );
}
