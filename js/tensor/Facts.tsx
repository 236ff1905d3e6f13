// What is known about a row or a node: names and values in two columns.
import type { JSX } from "preact";

export interface FactLine {
  name: string;
  value: string | null;
  mono?: boolean;
}

interface Props {
  lines: FactLine[];
  /** Beside each other instead of one below the other. */
  flow?: boolean;
}

export function Facts({ lines, flow }: Props): JSX.Element {
  return (
    <dl class="etv-lines" data-flow={flow}>
      {lines.map(({ name, value, mono }) =>
        value === null || value === "" ? null : (
          <div key={name} class="etv-line">
            <dt>{name}</dt>
            <dd class={mono ? "etv-mono" : undefined}>
              {value}
            </dd>
          </div>
        ),
      )}
    </dl>
  );
}
