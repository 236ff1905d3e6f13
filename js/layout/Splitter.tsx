// A pane border that can be dragged, or moved with the arrow keys.
import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { startDrag } from "../ui/drag";

interface Props {
  /** Size of the pane in px; null until it is moved by hand. */
  size: Signal<number | null>;
  /** "x" moves left and right. */
  axis: "x" | "y";
  /** Which neighbour has the size. */
  pane: "before" | "after";
  label: string;
  class: string;
  min: number;
}

const KEY_STEP = 16;
const MAX = 1600;

function neighbourPane(handle: Element, pane: Props["pane"]): Element | null {
  let at: Element | null = handle;
  do {
    at = pane === "before" ? at.previousElementSibling : at.nextElementSibling;
  } while (at?.classList.contains("etv-splitter"));
  return at;
}

export function Splitter({ size, axis, pane, label, class: name, min }: Props): JSX.Element {
  const direction = pane === "before" ? 1 : -1;
  const set = (value: number): void => {
    size.value = Math.round(Math.min(MAX, Math.max(min, value)));
  };
  const measured = (handle: EventTarget | null): number => {
    const box = neighbourPane(handle as Element, pane)?.getBoundingClientRect();
    return (axis === "x" ? box?.width : box?.height) ?? min;
  };
  const onPointerDown = (event: PointerEvent): void => {
    const start = measured(event.currentTarget);
    startDrag(event, {
      onMove: (dx, dy) => set(start + direction * (axis === "x" ? dx : dy)),
    });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const forward = axis === "x" ? "ArrowRight" : "ArrowDown";
    const back = axis === "x" ? "ArrowLeft" : "ArrowUp";
    if (event.key !== forward && event.key !== back) return;
    event.preventDefault();
    set(measured(event.currentTarget) + direction * (event.key === forward ? KEY_STEP : -KEY_STEP));
  };
  return (
    <div
      class={`etv-splitter ${name}`}
      role="separator"
      tabIndex={0}
      aria-label={label}
      aria-orientation={axis === "x" ? "vertical" : "horizontal"}
      aria-valuenow={size.value ?? undefined}
      data-axis={axis}
      onPointerDown={onPointerDown}
      onKeyDown={onKeyDown}
    />
  );
}
