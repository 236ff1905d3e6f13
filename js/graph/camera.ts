// What part of the picture is seen: a box that the wheel makes smaller or larger and dragging moves.

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
