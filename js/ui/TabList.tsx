// A row of tabs; the arrow keys move between them.
import type { JSX } from "preact";
import { arrowOf } from "./keys";
import type { Choice } from "./Switches";

interface Props<T extends string> {
  label: string;
  class: string;
  tabs: readonly Choice<T>[];
  value: T;
  onChange: (name: T) => void;
}

export function TabList<T extends string>(props: Props<T>): JSX.Element {
  const { tabs, value, onChange } = props;
  const onKeyDown = (event: KeyboardEvent): void => {
    const by = arrowOf(event)?.across;
    if (!by) return;
    event.preventDefault();
    const next = (tabs.findIndex(({ name }) => name === value) + by + tabs.length) % tabs.length;
    onChange(tabs[next].name);
    (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("button")[next].focus();
  };
  return (
    <div class={props.class} role="tablist" aria-label={props.label} onKeyDown={onKeyDown}>
      {tabs.map(({ name, text, tip }) => (
        <button
          key={name}
          type="button"
          role="tab"
          class="etv-tab"
          aria-selected={value === name}
          tabIndex={value === name ? 0 : -1}
          data-tip={tip}
          onClick={() => onChange(name)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}
