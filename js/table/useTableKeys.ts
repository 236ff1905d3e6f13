// Keys of the gap table: arrows, page, Home and End move the selection; up from the first row goes
// to the column heads, where left and right move and Enter sorts.
import type { Signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Column } from "../state/columns";
import { useApp } from "../ui/context";
import type { WindowedList } from "../ui/useWindow";

export interface GridFocus {
  part: "head" | "rows";
  column: number;
}

const SCROLL_STEP = 80;

function movedTo(key: string, at: number, last: number, page: number): number | null {
  switch (key) {
    case "ArrowDown":
      return Math.min(last, at + 1);
    case "ArrowUp":
      return Math.max(0, at - 1);
    case "PageDown":
      return Math.min(last, at + page);
    case "PageUp":
      return Math.max(0, at - page);
    case "Home":
      return 0;
    case "End":
      return last;
    default:
      return null;
  }
}

export function useTableKeys(
  list: WindowedList,
  columns: readonly Column[],
  focus: Signal<GridFocus>,
): (event: KeyboardEvent) => void {
  const app = useApp();
  const refocus = useRef(false);

  useLayoutEffect(() => {
    if (!refocus.current) return;
    refocus.current = false;
    const inRows = focus.peek().part === "rows";
    list.element()?.querySelector<HTMLElement>('[tabindex="0"]')?.focus({ preventScroll: inRows });
  });

  const go = (next: GridFocus): void => {
    refocus.current = true;
    focus.value = next;
  };
  const onHead = (event: KeyboardEvent): boolean => {
    const { column } = focus.peek();
    if (event.key === "ArrowDown") go({ part: "rows", column });
    else if (event.key === "ArrowRight") go({ part: "head", column: Math.min(columns.length - 1, column + 1) });
    else if (event.key === "ArrowLeft") go({ part: "head", column: Math.max(0, column - 1) });
    else if (event.key === "Enter" || event.key === " ") app.sortOn(columns[column], event.shiftKey);
    else return false;
    return true;
  };
  const onRows = (event: KeyboardEvent): boolean => {
    const order = app.order.peek();
    const held = app.focusRow.peek();
    const at = held < 0 ? -1 : (app.positions.peek()[held] ?? -1);
    if (event.key === "ArrowUp" && at <= 0) {
      go({ part: "head", column: focus.peek().column });
      return true;
    }
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const by = event.key === "ArrowRight" ? SCROLL_STEP : -SCROLL_STEP;
      list.element()?.scrollBy({ left: by });
      return true;
    }
    const unselected = at < 0 && (event.key === "Enter" || event.key === " ");
    const to = unselected ? 0 : movedTo(event.key, at, order.length - 1, list.page());
    if (to === null || order.length === 0) return false;
    refocus.current = true;
    app.selectRow(order[to]);
    return true;
  };

  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const taken = focus.peek().part === "head" ? onHead(event) : onRows(event);
    if (taken) {
      event.preventDefault();
      event.stopPropagation();
    }
  };
}
