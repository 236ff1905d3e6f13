// A list to choose one from.
import type { JSX } from "preact";
import type { Choice } from "./Switches";

interface Props {
  label: string;
  choices: readonly Choice<string>[];
  value: string;
  onChange: (name: string) => void;
  class?: string;
  disabled?: boolean;
  "data-tip"?: string;
  "data-active"?: boolean;
}

export function Select({ label, choices, onChange, class: more, ...rest }: Props): JSX.Element {
  return (
    <select
      class={more ? `etv-select ${more}` : "etv-select"}
      aria-label={label}
      onChange={(event) => onChange(event.currentTarget.value)}
      {...rest}
    >
      {choices.map(({ name, text }) => (
        <option key={name} value={name}>
          {text}
        </option>
      ))}
    </select>
  );
}
