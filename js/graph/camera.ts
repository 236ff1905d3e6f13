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

/** Letters are drawn at most so many times as large as elsewhere. */
const MAGNIFIED = 1.15;

export interface Size {
  width: number;
  height: number;
}

/** A box of which a pane of some size makes nothing larger than it should be; the picture is in its middle. */
function readable({ width, height }: Size, pane: Size): Size {
  const by = Math.max(1, Math.min(pane.width / width, pane.height / height) / MAGNIFIED);
  return { width: width * by, height: height * by };
}

function within(at: number, size: number, whole: number): number {
  return size >= whole ? (whole - size) / 2 : Math.max(0, Math.min(at - size / 2, whole - size));
}

const NO_PANE: Size = { width: 0, height: 0 };

/** The box to begin with: everything, or, where that is too small to be read, what is around (x, y). */
export function startBox(width: number, height: number, x: number, y: number, pane = NO_PANE): Box {
  const box = readable({ width: Math.min(width, WIDEST), height: Math.min(height, HIGHEST) }, pane);
  return { ...box, x: within(x, box.width, width), y: within(y, box.height, height) };
}

/** The box that shows everything. */
export function wholeBox(width: number, height: number, pane = NO_PANE): Box {
  const box = readable({ width, height }, pane);
  return { ...box, x: within(0, box.width, width), y: within(0, box.height, height) };
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
  const [pane, setPane] = useState(NO_PANE);
  const [moved, setMoved] = useState<{ picture: Picture; box: Box } | null>(null);
  const box = moved?.picture === picture ? moved.box : startBox(picture.width, picture.height, middle.x, middle.y, pane);
  const now = useRef(box);
  now.current = box;
  const set = useCallback((next: Box) => setMoved({ picture, box: next }), [picture]);

  useLayoutEffect(() => {
    const svg = ref.current;
    if (!svg) return;
    const measure = (): void => {
      const { width, height } = svg.getBoundingClientRect();
      setPane((known) => (known.width === width && known.height === height ? known : { width, height }));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(svg);
    measure();
    return () => observer.disconnect();
  }, []);

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
    fit: () => set(wholeBox(picture.width, picture.height, pane)),
    onPointerDown,
  };
}
