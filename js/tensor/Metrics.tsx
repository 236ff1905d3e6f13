// Every metric of the selected row: the gap, and the part that this operator introduced.
import type { JSX } from "preact";
import { type Column, introducedName, isMetric, numberAt } from "../state/columns";
import { formatExact, formatNumber } from "../state/format";
import { gaugeOf } from "../state/gauge";
import type { Payload } from "../state/payload";
import { Section } from "./Section";

function MetricValue({
  column,
  row,
  mismatch,
}: {
  column: Column | undefined;
  row: number;
  mismatch: boolean;
}): JSX.Element {
  const value = numberAt(column, row);
  if (!isMetric(column) || Number.isNaN(value)) return <td class="etv-unknown">–</td>;
  const step = column.thresholds && !mismatch ? gaugeOf(column)(value, false)?.step : undefined;
  const unit = column.format === "db" ? " dB" : "";
  return (
    <td data-step={step} data-tip={formatExact(value)}>
      {formatNumber(value, column.format) + unit}
    </td>
  );
}

export function Metrics({ payload, row }: { payload: Payload; row: number }): JSX.Element | null {
  const metrics = payload.columns.filter((column) => column.group === "metric" && isMetric(column));
  if (metrics.length === 0) return null;
  const mismatch = payload.mismatch[row] === 1;
  const introduced = metrics.some((metric) => payload.column(introducedName(metric.name)));
  return (
    <Section title="Metrics" {...(mismatch ? { hint: "over the elements that are finite in both" } : {})}>
      <table class="etv-figures">
        <thead>
          <tr>
            <th scope="col">
              <span class="etv-hidden">metric</span>
            </th>
            <th scope="col">gap</th>
            {introduced && (
              <th scope="col" data-tip="What this operator adds when it gets the runtime's own inputs">
                introduced
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {metrics.map((metric) => (
            <tr key={metric.name}>
              <th scope="row" data-tip={metric.description}>
                <span class="etv-explained">{metric.label}</span>
              </th>
              <MetricValue column={metric} row={row} mismatch={mismatch} />
              {introduced && (
                <MetricValue
                  column={payload.column(introducedName(metric.name))}
                  row={row}
                  mismatch={mismatch}
                />
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}
