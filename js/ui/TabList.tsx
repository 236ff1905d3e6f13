// A row of tabs; the arrow keys move between them.
import type { JSX } from "preact";

export interface TabChoice<T extends string> {
  name: T;
  text: string;
  tip?: string;
}

interface Props<T extends string> {
  label: string;
  class: string;
  tabs: readonly TabChoice<T>[];
  value: T;
  /** Id of the panel that the tabs switch. */
  controls?: string;
  onChange: (name: T) => void;
}

export function TabList<T extends string>(props: Props<T>): JSX.Element {
  const { tabs, value, onChange } = props;
  const onKeyDown = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
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
          aria-controls={props.controls}
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
