// The button in a cell's header that moves the view to the side panel; only where there is one.
import type { JSX } from "preact";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";

export function PanelButton({ title }: { title: string }): JSX.Element | null {
  const { placement } = useApp();
  if (!placement?.available.value) return null;
  return (
    <button
      type="button"
      class="etv-button etv-quiet etv-square etv-to-panel"
      aria-label="Move to the side panel"
      data-tip="Move to the side panel; with Shift to the left one"
      onClick={(event) => placement.moveTo(event.shiftKey ? "left" : "right", title)}
    >
      <Icon name="panel" />
    </button>
  );
}
