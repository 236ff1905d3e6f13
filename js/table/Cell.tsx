// One cell of the gap table: text, number, or number over a bar.
import type { JSX } from "preact";
import {
  type Column,
  INTRODUCED_PART,
  type NumberColumn,
  type TextColumn,
  isMetric,
  largestOf,
  textAt,
} from "../data/columns";
import { formatBeside, formatCount, formatExact, formatNumber } from "../data/format";
import { type Gauge, gaugeOf } from "../data/gauge";
import { wholeName } from "../data/name";
import { useApp } from "../ui/context";
import { GaugeBar } from "../ui/Gauge";
import { Icon } from "../ui/Icon";
import { Name } from "../ui/Name";
import { ShareBar } from "../ui/ShareBar";
import { ZoomButton } from "../ui/ZoomButton";

/** What belongs to a row whatever the column. */
export interface RowFacts {
  row: number;
  /** The first part of its name; empty where it has none. */
  at: string;
  mismatch: boolean;
  /** Somebody's note; empty without one. */
  note: string;
  /** The share of the error that the row introduced; NaN where it is not known. */
  part: number;
  /** An operator inside of a delegate that was zoomed. */
  inner: boolean;
  /** A delegate call that can be zoomed into. */
  zoomable: boolean;
  /** The whole path of the module that called it; empty where it is not known. */
  module: string;
  /** How many rows are inside of a delegate call that was. */
  inside: number;
  /** Whether they are shown below it. */
  open: boolean;
}

interface Props<C extends Column> {
  column: C;
  index: number;
  facts: RowFacts;
  /** Draw a bar behind the number. */
  bar: boolean;
}

const MISMATCH_TIP =
  "NaN, Inf, shape or dtype is not the reference's: worst under every metric";

function MismatchMark(): JSX.Element {
  return (
    <span class="etv-mark" role="img" aria-label="mismatch" data-tip={MISMATCH_TIP}>
      <Icon name="warn" />
    </span>
  );
}

interface BarProps {
  column: NumberColumn;
  facts: RowFacts;
  gauge: Gauge | null;
}

function Bar({ column, facts, gauge }: BarProps): JSX.Element {
  if (column.name === "attribution") return <ShareBar column={column} row={facts.row} />;
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

function NumberCell({ column, facts, index, bar }: Props<NumberColumn>): JSX.Element {
  const { row } = facts;
  const value = column.values[row];
  const mismatch = facts.mismatch && isMetric(column);
  const rated = bar || (column.thresholds !== null && !facts.mismatch);
  const gauge = rated ? gaugeOf(column)(value, mismatch, row) : null;
  const unknown = Number.isNaN(value);
  const text = unknown ? (mismatch ? "non-finite" : "–") : formatBeside(value, column.format, largestOf(column));
  return (
    <span
      class={index === 0 ? "etv-cell etv-number etv-first" : "etv-cell etv-number"}
      role="gridcell"
      aria-colindex={index + 1}
      style={{ gridColumn: index + 1 }}
      data-step={mismatch ? undefined : gauge?.step}
      data-nonfinite={unknown && mismatch ? true : undefined}
      data-unknown={unknown && !mismatch ? true : undefined}
      data-tip={tipOf(column, value, facts)}
    >
      {bar && <Bar column={column} facts={facts} gauge={gauge} />}
      {text}
    </span>
  );
}

/** Shows what is inside of a delegate call, or leaves it out; arrow keys on its row do the same. */
function InsideButton({ row, inside, open }: RowFacts): JSX.Element {
  const { selection } = useApp();
  const onClick = (event: Event): void => {
    event.stopPropagation();
    selection.toggleInside(row);
  };
  return (
    <button
      type="button"
      class="etv-inside"
      tabIndex={-1}
      aria-expanded={open}
      aria-label={`${formatCount(inside)} inside`}
      data-tip={`${formatCount(inside)} values inside this delegate (arrow keys: right opens, left closes)`}
      onClick={onClick}
    >
      {formatCount(inside)}
      <span class="etv-twisty" data-open={open}>
        <Icon name="chevron" />
      </span>
    </button>
  );
}

function TextCell({ column, facts, index }: Props<TextColumn>): JSX.Element {
  const text = textAt(column, facts.row);
  const first = index === 0 ? " etv-first" : "";
  const op = column.name === "op";
  const at = op && facts.at ? `${facts.at} ` : "";
  return (
    <span
      class={`etv-cell etv-text etv-format-${column.format}${first}`}
      role="gridcell"
      aria-colindex={index + 1}
      style={{ gridColumn: index + 1 }}
      data-unknown={text === null ? true : undefined}
      data-tip={text === null ? undefined : op ? wholeName(text, facts.module) : text}
      data-tip-clipped
    >
      {op && facts.inner && <Icon name="inside" />}
      {at && <span class="etv-at">{at}</span>}
      {text !== null && (op || column.name === "source") ? (
        <Name text={text} beside={at.length} />
      ) : (
        (text ?? "–")
      )}
      {op && facts.note && (
        <span class="etv-noted" role="img" aria-label={`Note: ${facts.note}`} data-tip={facts.note}>
          <Icon name="note" />
        </span>
      )}
      {op && facts.mismatch && <MismatchMark />}
      {op && facts.zoomable && <ZoomButton row={facts.row} />}
      {op && facts.inside > 0 && <InsideButton {...facts} />}
    </span>
  );
}

/** Columns that have a bar whatever the table is sorted by. */
export function hasBar(column: Column, sortedBy: string): boolean {
  if (column.name === INTRODUCED_PART) return false;
  return column.name === sortedBy || column.name === "attribution" || /severity(_\d+)?$/.test(column.name);
}

export function Cell({ column, ...rest }: Props<Column>): JSX.Element {
  return column.kind === "number" ? (
    <NumberCell column={column} {...rest} />
  ) : (
    <TextCell column={column} {...rest} />
  );
}
