// The panes as tabs; shown by the style sheet only where there is room for one pane.
import type { JSX } from "preact";
import type { Tab } from "../state/view";
import { useApp } from "../ui/context";

const TABS: [Tab, string][] = [
  ["tree", "Graph"],
  ["table", "Gaps"],
  ["tensor", "Selected value"],
];

export function Tabs(): JSX.Element {
  const { tab } = useApp().view;
  const onKeyDown = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    const at = TABS.findIndex(([name]) => name === tab.peek());
    const next = (at + by + TABS.length) % TABS.length;
    tab.value = TABS[next][0];
    (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("button")[next].focus();
  };
  return (
    <div class="etv-tabs" role="tablist" aria-label="Panes" onKeyDown={onKeyDown}>
      {TABS.map(([name, text]) => (
        <button
          key={name}
          type="button"
          role="tab"
          class="etv-tab"
          aria-selected={tab.value === name}
          tabIndex={tab.value === name ? 0 : -1}
          onClick={() => (tab.value = name)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}
