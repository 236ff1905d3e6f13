// Wheel and drag move the box that is seen of an SVG.
import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";
import { type Box, startBox, zoomed } from "./camera";
import type { Picture } from "./layout";

const WHEEL = 0.0015;
/** Less is a click. */
const SHORTEST_DRAG = 4;

export interface Camera {
  box: Box;
  ref: RefObject<SVGSVGElement | null>;
  zoom: (factor: number) => void;
  fit: () => void;
  onPointerDown: (event: PointerEvent) => void;
}

/** The point under the pointer, in the picture's own measure, and how many units a pixel is. */
function pointAt(svg: SVGSVGElement, box: Box, event: MouseEvent): { x: number; y: number; unit: number } {
  const { left, top, width, height } = svg.getBoundingClientRect();
  const unit = Math.max(box.width / (width || 1), box.height / (height || 1));
  const x = box.x + box.width / 2 + (event.clientX - left - width / 2) * unit;
  const y = box.y + box.height / 2 + (event.clientY - top - height / 2) * unit;
  return { x, y, unit };
}

/** What ends a drag is no click on the node below. */
function swallowClick(svg: SVGSVGElement): void {
  const swallow = (event: Event): void => event.stopPropagation();
  svg.addEventListener("click", swallow, { capture: true });
  setTimeout(() => svg.removeEventListener("click", swallow, { capture: true }));
}

export function useCamera(picture: Picture, center: number): Camera {
  const ref = useRef<SVGSVGElement>(null);
  const middle = picture.nodes.find(({ node }) => node === center) ?? { x: 0, y: 0 };
  const start = startBox(picture.width, picture.height, middle.x, middle.y);
  const [seen, setSeen] = useState({ picture, box: start });
  const box = seen.picture === picture ? seen.box : start;
  const now = useRef(box);
  now.current = box;
  const set = useCallback((next: Box) => setSeen({ picture, box: next }), [picture]);

  useLayoutEffect(() => {
    const svg = ref.current;
    if (!svg) return;
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      const { x, y } = pointAt(svg, now.current, event);
      set(zoomed(now.current, Math.exp(event.deltaY * WHEEL), x, y));
    };
    svg.addEventListener("wheel", wheel, { passive: false });
    return () => svg.removeEventListener("wheel", wheel);
  }, [set]);

  const onPointerDown = (event: PointerEvent): void => {
    const svg = ref.current;
    if (!svg || event.button !== 0) return;
    const from = now.current;
    const { unit } = pointAt(svg, from, event);
    const move = (at: PointerEvent): void => {
      const [dx, dy] = [at.clientX - event.clientX, at.clientY - event.clientY];
      if (now.current === from && Math.hypot(dx, dy) < SHORTEST_DRAG) return;
      set({ ...from, x: from.x - dx * unit, y: from.y - dy * unit });
    };
    const end = (): void => {
      if (now.current !== from) swallowClick(svg);
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", end);
      window.removeEventListener("pointercancel", end);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", end);
    window.addEventListener("pointercancel", end);
  };
  return {
    box,
    ref,
    zoom: (factor) => set(zoomed(box, factor, box.x + box.width / 2, box.y + box.height / 2)),
    fit: () => set({ x: 0, y: 0, width: picture.width, height: picture.height }),
    onPointerDown,
  };
}
