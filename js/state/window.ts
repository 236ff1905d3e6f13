// Which rows of a long list with rows of one height are drawn, and how far to scroll to show one.

export interface Window {
  start: number;
  end: number;
}

/** Before the style sheet is there, a list is as high as its content: never draw all of it. */
const MOST = 300;

/** Rows in view plus `overscan` on each side, in steps so that small scrolls draw nothing. */
export function windowOf(
  scrollTop: number,
  viewHeight: number,
  rowHeight: number,
  count: number,
  overscan = 6,
): Window {
  const step = 4;
  const first = Math.floor(Math.max(0, scrollTop) / rowHeight / step) * step;
  const inView = Math.min(MOST, Math.ceil(viewHeight / rowHeight) + step);
  const start = Math.max(0, Math.min(first - overscan, count - inView));
  return { start, end: Math.min(count, first + inView + overscan) };
}

/** Scroll position that shows `position` fully; the same position if it is in view already. */
export function scrollToShow(
  position: number,
  scrollTop: number,
  viewHeight: number,
  rowHeight: number,
): number {
  const top = position * rowHeight;
  if (top >= scrollTop && top + rowHeight <= scrollTop + viewHeight) return scrollTop;
  const nearAbove = top < scrollTop && scrollTop - top <= viewHeight / 2;
  if (nearAbove) return top;
  const nearBelow = top >= scrollTop && top + rowHeight - scrollTop - viewHeight <= viewHeight / 2;
  if (nearBelow) return top + rowHeight - viewHeight;
  return Math.max(0, top - (viewHeight - rowHeight) / 2);
}

/** Positions to draw: the window, and the row that holds the keyboard focus wherever it is. */
export function drawnPositions({ start, end }: Window, focused: number, count: number): number[] {
  const positions: number[] = [];
  if (focused < start && focused < count) positions.push(focused);
  for (let position = start; position < end; position++) positions.push(position);
  if (focused >= end && focused < count) positions.push(focused);
  return positions;
}
