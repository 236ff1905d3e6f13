// The gap to the float model, split: what quantization itself costs, and what the backend adds.
import type { JSX } from "preact";
import { type Column, numberAt } from "../state/columns";
import { formatExact, formatNumber } from "../state/format";
import type { Payload } from "../state/payload";
import { Section } from "./Section";

const PARTS: [string, string][] = [
  ["quantization", "float eager against quantized eager"],
  ["backend", "quantized eager against runtime"],
];
const METRICS: [string, string][] = [
  ["rmse", "RMSE"],
  ["sqnr_db", "SQNR"],
];

function Figure({ column, row }: { column: Column | undefined; row: number }): JSX.Element {
  const value = numberAt(column, row);
  if (!column || Number.isNaN(value)) return <td class="etv-unknown">–</td>;
  return (
    <td data-tip={formatExact(value)}>
      {formatNumber(value, column.format)}
      {column.format === "db" && " dB"}
    </td>
  );
}

export function Quantized({ payload, row }: { payload: Payload; row: number }): JSX.Element | null {
  const known = PARTS.some(([part]) =>
    METRICS.some(([metric]) => !Number.isNaN(numberAt(payload.column(`${part}_${metric}`), row))),
  );
  if (!known) return null;
  return (
    <Section title="Against the float model">
      <table class="etv-figures">
        <thead>
          <tr>
            <th scope="col">
              <span class="etv-hidden">metric</span>
            </th>
            {PARTS.map(([part, about]) => (
              <th key={part} scope="col" data-tip={about}>
                <span class="etv-explained">{part}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {METRICS.map(([metric, text]) => (
            <tr key={metric}>
              <th scope="row">{text}</th>
              {PARTS.map(([part]) => (
                <Figure key={part} column={payload.column(`${part}_${metric}`)} row={row} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}
