// A border that can be dragged, or moved with the arrow keys, to give what is beside it another size.
import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { startDrag } from "../ui/drag";
import { arrowOf } from "../ui/keys";

interface Props {
  /** Size in px; null until it is moved by hand. */
  size: { value: number | null };
  /** "x" moves left and right. */
  axis: "x" | "y";
  /** What has the size: a neighbour of the border, or what the border is in. */
  of: "before" | "after" | "around";
  label: string;
  class: string;
  min: number;
  max?: number;
  /** Of an arrow key. */
  step?: number;
}

function sized(handle: Element, of: Props["of"]): Element | null {
  if (of === "around") return handle.parentElement;
  let at: Element | null = handle;
  do {
    at = of === "before" ? at.previousElementSibling : at.nextElementSibling;
  } while (at?.classList.contains("etv-splitter"));
  return at;
}

export function Splitter(props: Props): JSX.Element {
  const { size, axis, of, min, max = 1600, step = 16 } = props;
  const direction = of === "after" ? -1 : 1;
  const moveFrom = (start: number, by: number): void => {
    size.value = Math.round(Math.min(max, Math.max(min, start + direction * by)));
  };
  const measure = (handle: EventTarget | null): number => {
    const box = handle && sized(handle as Element, of)?.getBoundingClientRect();
    return (axis === "x" ? box?.width : box?.height) ?? min;
  };
  const onPointerDown = (event: PointerEvent): void => {
    const start = measure(event.currentTarget);
    startDrag(event, (dx, dy) => moveFrom(start, axis === "x" ? dx : dy));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const arrow = arrowOf(event);
    const by = axis === "x" ? arrow?.across : arrow?.down;
    if (!by) return;
    event.preventDefault();
    moveFrom(measure(event.currentTarget), step * by);
  };
  const handle = useRef<HTMLDivElement>(null);
  const [now, setNow] = useState(min);
  const tell = (): void => setNow(Math.round(measure(handle.current)));
  useLayoutEffect(tell, []);
  return (
    <div
      class={props.class}
      ref={handle}
      onFocus={tell}
      role="separator"
      tabIndex={0}
      aria-label={props.label}
      aria-orientation={axis === "x" ? "vertical" : "horizontal"}
      aria-valuenow={Math.min(max, Math.max(min, size.value ?? now))}
      aria-valuemin={min}
      aria-valuemax={max}
      data-axis={axis}
      onPointerDown={onPointerDown}
      onKeyDown={onKeyDown}
    />
  );
}
