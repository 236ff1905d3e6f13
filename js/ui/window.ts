// The windowed list: which rows of one height are drawn of a long list, and bringing a row into view.
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface DrawnRange {
  start: number;
  end: number;
}

/** Before the style sheet is there, a list is as high as its content: never draw all of it. */
const MOST = 300;

/** A window moves by so many rows, so that small scrolls draw nothing. */
const STEP = 4;

/** Rows that are drawn on each side of those in view. */
const AROUND = 6;

/** Rows in view plus those `around` them. */
export function windowOf(
  scrollTop: number,
  viewHeight: number,
  rowHeight: number,
  count: number,
  around = AROUND,
): DrawnRange {
  const first = Math.floor(Math.max(0, scrollTop) / rowHeight / STEP) * STEP;
  const inView = Math.min(MOST, Math.ceil(viewHeight / rowHeight) + STEP);
  const start = Math.max(0, Math.min(first - around, count - inView));
  return { start, end: Math.min(count, first + inView + around) };
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
export function drawnPositions({ start, end }: DrawnRange, focused: number, count: number): number[] {
  const positions: number[] = [];
  if (focused < start && focused < count) positions.push(focused);
  for (let position = start; position < end; position++) positions.push(position);
  if (focused >= end && focused < count) positions.push(focused);
  return positions;
}

/** What of a list's element decides what is drawn: a change of `count` alone asks nothing of the page, which would lay it out. */
interface Measured {
  top: number;
  height: number;
  /** The first row in view and the height of the scrollbar, of a list in pages. */
  first: number;
  bar: number;
}

/** Calls `changed` when an element is scrolled or resized, and at first; `resized` when it is resized. */
function useScrollAndSize(
  element: () => HTMLElement | null,
  changed: () => void,
  resized: () => void = () => {},
): void {
  useLayoutEffect(() => {
    const target = element();
    if (!target) return;
    const observer = new ResizeObserver(() => {
      changed();
      resized();
    });
    observer.observe(target);
    target.addEventListener("scroll", changed, { passive: true });
    changed();
    return () => {
      observer.disconnect();
      target.removeEventListener("scroll", changed);
    };
  }, [changed]);
}

const UNMEASURED_HEIGHT = 400;

/** Rows on a page of a list that has pages instead of a scrollbar. */
export const PAGE_ROWS = 10;

export interface WindowedList {
  ref: (element: HTMLElement | null) => void;
  element: () => HTMLElement | null;
  window: DrawnRange;
  /** Whole rows that fit, for page up and page down. */
  page: () => number;
  show: (position: number) => void;
  toTop: () => void;
  /** Only of a list in pages: its height, the first row in view, and the way to another page. */
  paged: { height: string; first: number; turn: (pages: number) => void } | null;
}

/** False for one frame where all rows may be other ones: of another list, or far away. Then it draws again. */
function useSettled(list: unknown, place: Measured | null): boolean {
  const seen = useRef<{ list: unknown; top: number } | null>(null);
  const [, drawAgain] = useState<unknown>(null);
  const here = { list, top: place?.top ?? 0 };
  const near = Math.abs(here.top - (seen.current?.top ?? 0)) <= (place?.height ?? 0);
  const settled = seen.current?.list === list && near;
  useEffect(() => {
    if (settled) {
      seen.current = here;
      return;
    }
    const timer = setTimeout(() => drawAgain((seen.current = here))); // effects run after the frame
    return () => clearTimeout(timer);
  }, [list, here.top, settled]);
  return settled;
}

/**
 * `items` are what the list shows. `above` is the height of a sticky head inside the scroll container. In `pages`, the
 * list has no scrollbar and its height is that of its rows: what is around it scrolls.
 */
export function useWindow(items: ArrayLike<unknown>, rowHeight: number, above = 0, pages = false): WindowedList {
  const count = items.length;
  const held = useRef<HTMLElement | null>(null);
  const wanted = useRef(-1);
  const scrolled = useRef(0);
  const [measured, setMeasured] = useState<Measured | null>(null); // nothing is drawn before it is measured
  const element = (): HTMLElement | null => held.current;

  const viewHeight = (): number => Math.max(0, (held.current?.clientHeight ?? 0) - above);
  const update = useCallback(() => {
    if (!held.current) return;
    const first = pages ? Math.round(held.current.scrollTop / rowHeight) : 0;
    if (pages) held.current.scrollTop = first * rowHeight;
    const { scrollTop, offsetHeight, clientHeight } = held.current;
    scrolled.current = scrollTop;
    const next = {
      top: Math.floor(scrollTop / rowHeight / STEP) * STEP * rowHeight,
      height: viewHeight() || UNMEASURED_HEIGHT,
      first,
      bar: pages ? offsetHeight - clientHeight : 0,
    };
    setMeasured((old) => (old && (Object.keys(next) as (keyof Measured)[]).every((key) => old[key] === next[key]) ? old : next));
  }, [rowHeight, pages]);

  const show = useCallback((position: number) => {
    if (!held.current || position < 0) return;
    wanted.current = viewHeight() === 0 ? position : -1;
    if (wanted.current >= 0) return;
    const { scrollTop } = held.current;
    const top = scrollToShow(position, scrollTop, viewHeight(), rowHeight);
    if (top === scrollTop) return;
    scrolled.current = pages ? (position - (position % PAGE_ROWS)) * rowHeight : top;
    held.current.scrollTop = scrolled.current;
  }, [pages]);

  useScrollAndSize(element, update, () => show(wanted.current));
  const around = useSettled(items, measured) ? AROUND : 0;

  return {
    ref: (drawnElement) => (held.current = drawnElement),
    element,
    window: measured ? windowOf(measured.top, measured.height, rowHeight, count, around) : { start: 0, end: 0 },
    page: () => (pages ? PAGE_ROWS : Math.max(1, Math.floor(viewHeight() / rowHeight) - 1)),
    show,
    toTop: () => {
      if (held.current && scrolled.current > 0) held.current.scrollTop = 0; // which lays the page out even at 0
    },
    paged: pages
      ? {
          height: `${above + Math.min(PAGE_ROWS, Math.max(1, count)) * rowHeight + (measured?.bar ?? 0)}px`,
          first: measured?.first ?? 0,
          turn: (by) => void (held.current && (held.current.scrollTop += by * PAGE_ROWS * rowHeight)),
        }
      : null,
  };
}
