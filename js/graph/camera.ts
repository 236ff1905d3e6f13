// What part of the picture is seen: a box that the wheel makes smaller or larger and dragging moves.
import type { RefObject } from "preact";
import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks";
import { followPointer } from "../ui/drag";
import type { Picture } from "./picture";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

const WIDEST = 420;
const HIGHEST = 460;
const SMALLEST = 80;
const LARGEST = 20000;

/** The box to begin with: everything, or, where that is too small to be read, what is around (x, y). */
export function startBox(width: number, height: number, x: number, y: number): Box {
  const box = { width: Math.min(width, WIDEST), height: Math.min(height, HIGHEST) };
  const within = (at: number, size: number, whole: number): number =>
    Math.max(0, Math.min(at - size / 2, whole - size));
  return { ...box, x: within(x, box.width, width), y: within(y, box.height, height) };
}

/** Zoom by a factor (below 1: nearer), so that the point (x, y) stays where it is. */
export function zoomed(box: Box, factor: number, x: number, y: number): Box {
  const by = Math.min(Math.max(factor, SMALLEST / box.width), LARGEST / box.width);
  return {
    x: x - (x - box.x) * by,
    y: y - (y - box.y) * by,
    width: box.width * by,
    height: box.height * by,
  };
}

export function viewBox({ x, y, width, height }: Box): string {
  return `${x} ${y} ${Math.max(1, width)} ${Math.max(1, height)}`;
}

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

/** Wheel and drag move the box that is seen of an SVG. */
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
    const move = (dx: number, dy: number): void => {
      if (now.current === from && Math.hypot(dx, dy) < SHORTEST_DRAG) return;
      set({ ...from, x: from.x - dx * unit, y: from.y - dy * unit });
    };
    followPointer(event, window, move, () => {
      if (now.current !== from) swallowClick(svg);
    });
  };
  return {
    box,
    ref,
    zoom: (factor) => set(zoomed(box, factor, box.x + box.width / 2, box.y + box.height / 2)),
    fit: () => set({ x: 0, y: 0, width: picture.width, height: picture.height }),
    onPointerDown,
  };
}
