// What is known about a row or a node: names and values in two columns, and where it comes from.
import type { JSX } from "preact";
import { CopyButton } from "../ui/CopyButton";
import { Section } from "./Section";

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

/** Source line, module and stack trace; nothing if none of it is known. */
export function Origin({ lines, stack }: { lines: FactLine[]; stack: string | null }): JSX.Element | null {
  if (lines.every(({ value }) => !value) && !stack) return null;
  return (
    <Section title="Where it comes from">
      <Facts lines={lines} />
      {stack && (
        <details class="etv-stack">
          <summary>
            Stack trace
            <CopyButton text={stack} what="stack trace" />
          </summary>
          <pre tabIndex={0}>{stack}</pre>
        </details>
      )}
    </Section>
  );
}
