// Names and values in two columns; long ones can be copied.
import type { JSX } from "preact";
import { CopyButton } from "../ui/CopyButton";

export interface FactLine {
  name: string;
  value: string | null;
  copy?: boolean;
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
      {lines.map(({ name, value, copy, mono }) =>
        value === null || value === "" ? null : (
          <div key={name} class="etv-line">
            <dt>{name}</dt>
            <dd class={mono ? "etv-mono" : undefined}>
              {value}
              {copy && <CopyButton text={value} what={name} />}
            </dd>
          </div>
        ),
      )}
    </dl>
  );
}

export function StackTrace({ stack }: { stack: string | null }): JSX.Element | null {
  if (!stack) return null;
  return (
    <details class="etv-stack">
      <summary>
        Stack trace
        <CopyButton text={stack} what="stack trace" />
      </summary>
      <pre tabIndex={0}>{stack}</pre>
    </details>
  );
}
