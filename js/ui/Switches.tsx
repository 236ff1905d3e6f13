// A segmented control: one of a few choices.
import type { JSX } from "preact";

/** One of a few things to choose from. */
export interface Choice<T extends string> {
  name: T;
  text: string;
  tip?: string | undefined;
  disabled?: boolean;
}

interface Props<T extends string> {
  label: string;
  choices: readonly Choice<T>[];
  /** null: none of them. */
  value: T | null;
  onChange: (name: T) => void;
}

export function Switches<T extends string>({ label, choices, value, onChange }: Props<T>): JSX.Element {
  return (
    <div class="etv-switches" role="group" aria-label={label}>
      {choices.map(({ name, text, tip, disabled }) => (
        <button
          key={name}
          type="button"
          class="etv-switch"
          aria-pressed={value === name}
          disabled={disabled}
          data-tip={tip}
          onClick={() => onChange(name)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}
