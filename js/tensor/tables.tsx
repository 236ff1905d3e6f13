// The tables of figures about a row: metrics, the split of a quantized gap, statistics, worst elements,
// non-finite values.
import type { ComponentChildren, JSX } from "preact";
import type { Nonfinite, Statistic, WorstElement } from "../kernel/contract";
import { type NumberColumn, introducedName, isMetric } from "../data/columns";
import { formatCount, formatExact, formatMetric, formatNumber } from "../data/format";
import { gaugeOf } from "../data/gauge";
import type { Payload } from "../data/payload";
import { useApp } from "../ui/context";
import { Section } from "./Section";

interface Head {
  text: ComponentChildren;
  class?: string;
  "data-tip"?: string;
}

interface FigureTableProps {
  corner: Head;
  heads: readonly Head[];
  children: ComponentChildren;
}

export function FigureTable({ corner, heads, children }: FigureTableProps): JSX.Element {
  return (
    <table class="etv-figures">
      <thead>
        <tr>
          {[corner, ...heads].map(({ text, ...rest }, at) => (
            <th key={at} scope="col" {...rest}>
              {text}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}

/** A head that is only said. */
function hidden(text: string): Head {
  return { text: <span class="etv-hidden">{text}</span> };
}

function toned(side: string): Head {
  return { text: side, class: `etv-tone-${side}` };
}

function Unknown(): JSX.Element {
  return <td class="etv-unknown">–</td>;
}

interface ColumnCellProps {
  payload: Payload;
  name: string;
  row: number;
  /** Coloured by how bad it is. */
  rated?: boolean;
}

function ColumnCell({ payload, name, row, rated = false }: ColumnCellProps): JSX.Element {
  const column = payload.column(name);
  const value = payload.number(name, row);
  if (column?.kind !== "number" || Number.isNaN(value)) return <Unknown />;
  const judged = column.thresholds || column.limits;
  const step = rated && judged ? gaugeOf(column)(value, false, row)?.step : undefined;
  return (
    <td data-step={step} data-tip={formatExact(value)}>
      {formatNumber(value, column.format) + (column.format === "db" ? " dB" : "")}
    </td>
  );
}

interface ValueCellProps {
  value: number | null;
  digits: number;
  tip?: string | undefined;
}

function ValueCell({ value, digits, tip }: ValueCellProps): JSX.Element {
  if (value === null) return <Unknown />;
  return <td data-tip={tip}>{Number.isNaN(value) ? "nan" : formatMetric(value, digits)}</td>;
}

interface RowProps {
  payload: Payload;
  row: number;
}

/** Every metric: the gap, and the part that this operator introduced. */
export function Metrics({ payload, row }: RowProps): JSX.Element | null {
  const metrics = payload.columns.filter(
    (column): column is NumberColumn => column.group === "metric" && isMetric(column),
  );
  if (metrics.length === 0) return null;
  const mismatch = payload.mismatch[row] === 1;
  const introduced = metrics.some(({ name }) => payload.column(introducedName(name)));
  const tip = "The error that this operator adds when it gets the runtime's own inputs";
  const heads = [{ text: "gap" }, { text: "introduced", "data-tip": tip }];
  return (
    <Section title="Metrics" hint={mismatch ? "over the elements that are finite in both" : undefined}>
      <FigureTable corner={hidden("metric")} heads={introduced ? heads : heads.slice(0, 1)}>
        {metrics.map(({ name, label, description }) => (
          <tr key={name}>
            <th scope="row" data-tip={description}>
              <span class="etv-explained">{label}</span>
            </th>
            <ColumnCell payload={payload} name={name} row={row} rated={!mismatch} />
            {introduced && (
              <ColumnCell payload={payload} name={introducedName(name)} row={row} rated={!mismatch} />
            )}
          </tr>
        ))}
      </FigureTable>
    </Section>
  );
}

const PARTS = [
  { part: "quantization", about: "float eager against quantized eager" },
  { part: "backend", about: "quantized eager against runtime" },
];
const SPLIT_METRICS = [
  { metric: "rmse", text: "RMSE" },
  { metric: "sqnr_db", text: "SQNR" },
];

/** The gap to the float model, split: what quantization itself costs, and what the backend adds. */
export function QuantizationSplit({ payload, row }: RowProps): JSX.Element | null {
  const known = PARTS.some(({ part }) =>
    SPLIT_METRICS.some(({ metric }) => !Number.isNaN(payload.number(`${part}_${metric}`, row))),
  );
  if (!known) return null;
  const heads = PARTS.map(({ part, about }) => ({
    text: <span class="etv-explained">{part}</span>,
    "data-tip": about,
  }));
  return (
    <Section title="Against the float model">
      <FigureTable corner={hidden("metric")} heads={heads}>
        {SPLIT_METRICS.map(({ metric, text }) => (
          <tr key={metric}>
            <th scope="row">{text}</th>
            {PARTS.map(({ part }) => (
              <ColumnCell key={part} payload={payload} name={`${part}_${metric}`} row={row} />
            ))}
          </tr>
        ))}
      </FigureTable>
    </Section>
  );
}

const SIDES = ["reference", "runtime", "error"] as const;

export function Statistics({ statistics, label }: { statistics: Statistic[]; label: string }): JSX.Element | null {
  if (statistics.length === 0) return null;
  return (
    <Section title="Statistics">
      <FigureTable
        corner={hidden("statistic")}
        heads={SIDES.map((side) => (side === "runtime" ? { ...toned(side), text: label } : toned(side)))}
      >
        {statistics.map((statistic) => (
          <tr key={statistic.name}>
            <th scope="row">{statistic.name}</th>
            {SIDES.map((side) => {
              const value = statistic[side];
              return (
                <ValueCell key={side} value={value} digits={4} tip={formatExact(value ?? NaN) || undefined} />
              );
            })}
          </tr>
        ))}
      </FigureTable>
    </Section>
  );
}

/** The elements with the largest error, with their index in the tensor. */
export function WorstElements({ worst }: { worst: WorstElement[] | null }): JSX.Element | null {
  const app = useApp();
  if (worst?.length === 0) return null;
  return (
    <Section title="Worst elements">
      {worst ? (
        <FigureTable corner={{ text: "index" }} heads={SIDES.map(toned)}>
          {worst.map(({ index, reference, runtime }) => {
            const error = reference === null || runtime === null ? null : runtime - reference;
            return (
              <tr key={index.join()}>
                <th scope="row">
                  <button
                    type="button"
                    class="etv-link"
                    data-tip="Show it in the map"
                    onClick={() => app.lookAt(index)}
                  >
                    [{index.join(", ")}]
                  </button>
                </th>
                <ValueCell value={reference} digits={5} />
                <ValueCell value={runtime} digits={5} />
                <ValueCell value={error} digits={5} />
              </tr>
            );
          })}
        </FigureTable>
      ) : (
        <p class="etv-section-hint">
          Not in this report: one written with tensors="worst" lists them for the worst rows.
        </p>
      )}
    </Section>
  );
}

/** How many elements are finite, infinite or NaN in reference (down) and runtime (across). */
export function NonfiniteMatrix({ nonfinite }: { nonfinite: Nonfinite }): JSX.Element {
  const { classes, counts } = nonfinite;
  const heads = classes.map((text) => ({ text, class: "etv-tone-runtime" }));
  return (
    <Section title="Non-finite values" hint="elements, reference ↓ runtime →">
      <FigureTable corner={toned("reference")} heads={heads}>
        {classes.map((name, down) => (
          <tr key={name}>
            <th scope="row" class="etv-tone-reference">
              {name}
            </th>
            {counts[down].map((count, across) => (
              <td
                key={classes[across]}
                class={count === 0 ? "etv-unknown" : undefined}
                data-differs={count > 0 && down !== across ? true : undefined}
              >
                {formatCount(count)}
              </td>
            ))}
          </tr>
        ))}
      </FigureTable>
    </Section>
  );
}
