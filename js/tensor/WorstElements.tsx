// The elements with the largest error, with their index in the tensor.
import type { JSX } from "preact";
import { formatMetric } from "../state/format";
import type { WorstElement } from "../state/tensor";
import { Section } from "./Section";

function text(value: number | null): string {
  if (value === null) return "–";
  return Number.isNaN(value) ? "nan" : formatMetric(value, 5);
}

function difference({ reference, runtime }: WorstElement): string {
  if (reference === null || runtime === null) return "–";
  return text(runtime - reference);
}

export function WorstElements({ worst }: { worst: WorstElement[] | null }): JSX.Element | null {
  if (worst === null) {
    return (
      <Section title="Worst elements">
        <p class="etv-section-hint">
          Not in this report: one written with tensors="worst" lists them for the worst rows.
        </p>
      </Section>
    );
  }
  if (worst.length === 0) return null;
  return (
    <Section title="Worst elements">
      <table class="etv-figures">
        <thead>
          <tr>
            <th scope="col">index</th>
            <th scope="col" class="etv-tone-reference">
              reference
            </th>
            <th scope="col" class="etv-tone-runtime">
              runtime
            </th>
            <th scope="col" class="etv-tone-error">
              error
            </th>
          </tr>
        </thead>
        <tbody>
          {worst.map((element) => (
            <tr key={element.index.join()}>
              <th scope="row">[{element.index.join(", ")}]</th>
              <td>{text(element.reference)}</td>
              <td>{text(element.runtime)}</td>
              <td>{difference(element)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}
