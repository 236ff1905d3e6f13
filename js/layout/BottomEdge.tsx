// The bottom edge of the cell: dragging it, or the arrow keys on it, changes the height.
import type { JSX } from "preact";
import { useApp } from "../ui/context";
import { startDrag } from "../ui/drag";

const MIN_HEIGHT = 260;
const MAX_HEIGHT = 2400;
const KEY_STEP = 20;

export function BottomEdge(): JSX.Element {
  const { height } = useApp().store.traits;
  const set = (value: number): void => {
    height.value = Math.round(Math.min(MAX_HEIGHT, Math.max(MIN_HEIGHT, value)));
  };
  const onPointerDown = (event: PointerEvent): void => {
    const start = height.peek();
    startDrag(event, { onMove: (_, dy) => set(start + dy) });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    set(height.peek() + (event.key === "ArrowDown" ? KEY_STEP : -KEY_STEP));
  };
  return (
    <div
      class="etv-edge"
      role="separator"
      tabIndex={0}
      aria-orientation="horizontal"
      aria-label="Height"
      aria-valuenow={height.value}
      aria-valuemin={MIN_HEIGHT}
      aria-valuemax={MAX_HEIGHT}
      onPointerDown={onPointerDown}
      onKeyDown={onKeyDown}
    />
  );
}
