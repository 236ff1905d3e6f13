// Statistics of reference, runtime and error side by side.
import type { JSX } from "preact";
import { formatExact, formatMetric } from "../state/format";
import type { Statistic } from "../state/tensor";
import { Section } from "./Section";

const SIDES = ["reference", "runtime", "error"] as const;

function Value({ value }: { value: number | null }): JSX.Element {
  if (value === null) return <td class="etv-unknown">–</td>;
  const text = Number.isNaN(value) ? "nan" : formatMetric(value, 4);
  return <td data-tip={Number.isNaN(value) ? undefined : formatExact(value)}>{text}</td>;
}

export function Statistics({ statistics }: { statistics: Statistic[] }): JSX.Element | null {
  if (statistics.length === 0) return null;
  return (
    <Section title="Statistics">
      <table class="etv-figures">
        <thead>
          <tr>
            <th scope="col">
              <span class="etv-hidden">statistic</span>
            </th>
            {SIDES.map((side) => (
              <th key={side} scope="col" class={`etv-tone-${side}`}>
                {side}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {statistics.map((statistic) => (
            <tr key={statistic.name}>
              <th scope="row">{statistic.name}</th>
              {SIDES.map((side) => (
                <Value key={side} value={statistic[side]} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}
