// A pane border that can be dragged, or moved with the arrow keys.
import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { startDrag } from "../ui/drag";

interface Props {
  size: Signal<number>;
  /** "x" moves left and right. */
  axis: "x" | "y";
  /** 1 if dragging right or down makes the pane larger, -1 if smaller. */
  direction: 1 | -1;
  label: string;
  class: string;
  min?: number;
  max?: number;
}

const KEY_STEP = 16;

export function Splitter({ size, axis, direction, label, class: name, min = 160, max = 900 }: Props): JSX.Element {
  const set = (value: number): void => {
    size.value = Math.round(Math.min(max, Math.max(min, value)));
  };
  const onPointerDown = (event: PointerEvent): void => {
    const start = size.peek();
    startDrag(event, {
      onMove: (dx, dy) => set(start + direction * (axis === "x" ? dx : dy)),
    });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const forward = axis === "x" ? "ArrowRight" : "ArrowDown";
    const back = axis === "x" ? "ArrowLeft" : "ArrowUp";
    if (event.key !== forward && event.key !== back) return;
    event.preventDefault();
    set(size.peek() + direction * (event.key === forward ? KEY_STEP : -KEY_STEP));
  };
  return (
    <div
      class={`etv-splitter ${name}`}
      role="separator"
      tabIndex={0}
      aria-label={label}
      aria-orientation={axis === "x" ? "vertical" : "horizontal"}
      aria-valuenow={size.value}
      aria-valuemin={min}
      aria-valuemax={max}
      data-axis={axis}
      onPointerDown={onPointerDown}
      onKeyDown={onKeyDown}
    />
  );
}
