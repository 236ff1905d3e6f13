// The windowed list: which rows of a scroll container are drawn, and scrolling a row into view.
import { useCallback, useRef, useState } from "preact/hooks";
import { type Window, scrollToShow, windowOf } from "../state/window";
import { useScrollAndSize } from "./useScrollAndSize";

const UNMEASURED_HEIGHT = 400;

export interface WindowedList {
  ref: (element: HTMLElement | null) => void;
  element: () => HTMLElement | null;
  window: Window;
  /** Whole rows that fit, for page up and page down. */
  page: () => number;
  show: (position: number) => void;
  toTop: () => void;
}

/** `above` is the height of a sticky head inside the scroll container. */
export function useWindow(count: number, rowHeight: number, above = 0): WindowedList {
  const held = useRef<HTMLElement | null>(null);
  const wanted = useRef(-1);
  const [drawn, setDrawn] = useState<Window>(() => windowOf(0, UNMEASURED_HEIGHT, rowHeight, count));

  const viewHeight = (): number => Math.max(0, (held.current?.clientHeight ?? 0) - above);
  const update = useCallback(() => {
    const element = held.current;
    if (!element) return;
    const next = windowOf(element.scrollTop, viewHeight() || UNMEASURED_HEIGHT, rowHeight, count);
    setDrawn((old) => (old.start === next.start && old.end === next.end ? old : next));
  }, [count, rowHeight]);

  const show = useCallback((position: number) => {
    const element = held.current;
    if (!element || position < 0) return;
    wanted.current = viewHeight() === 0 ? position : -1;
    if (wanted.current >= 0) return;
    const top = scrollToShow(position, element.scrollTop, viewHeight(), rowHeight);
    if (top !== element.scrollTop) element.scrollTop = top;
  }, []);

  useScrollAndSize(
    () => held.current,
    update,
    () => {
      if (wanted.current >= 0) show(wanted.current);
    },
  );

  return {
    ref: (element) => (held.current = element),
    element: () => held.current,
    window: { start: Math.min(drawn.start, count), end: Math.min(drawn.end, count) },
    page: () => Math.max(1, Math.floor(viewHeight() / rowHeight) - 1),
    show,
    toTop: () => {
      if (held.current) held.current.scrollTop = 0;
    },
  };
}
