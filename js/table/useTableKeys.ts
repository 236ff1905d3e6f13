// Keys of the gap table: arrows, page, Home and End move the selection; up from the first row goes
// to the column heads, where left and right move and Enter sorts. Z looks into a delegate call.
import type { Signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Column } from "../state/columns";
import type { App } from "../state/app";
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

/** Where the focus goes from a column head; null if the key means nothing there. */
function headMove(key: string, column: number, columns: number): GridFocus | null {
  switch (key) {
    case "ArrowDown":
      return { part: "rows", column };
    case "ArrowRight":
      return { part: "head", column: Math.min(columns - 1, column + 1) };
    case "ArrowLeft":
      return { part: "head", column: Math.max(0, column - 1) };
    default:
      return null;
  }
}

/** The row that a key selects; null if the key means nothing in the rows. */
function rowMove(app: App, key: string, page: number): number | null {
  const order = app.order.peek();
  const at = app.positions.peek()[app.focusRow.peek()] ?? -1;
  const first = at < 0 && (key === "Enter" || key === " ");
  const to = first ? 0 : movedTo(key, at, order.length - 1, page);
  return to === null ? null : (order[to] ?? null);
}

function atFirstRow(app: App): boolean {
  return (app.positions.peek()[app.focusRow.peek()] ?? -1) <= 0;
}

export function useTableKeys(
  list: WindowedList,
  columns: readonly Column[],
  focus: Signal<GridFocus>,
): (event: KeyboardEvent) => void {
  const app = useApp();
  const go = useRefocus(list, focus);

  const onHead = ({ key, shiftKey }: KeyboardEvent): boolean => {
    const { column } = focus.peek();
    const next = headMove(key, column, columns.length);
    if (next) go(next);
    else if (key === "Enter" || key === " ") app.sortOn(columns[column], shiftKey);
    else return false;
    return true;
  };
  const onRows = ({ key }: KeyboardEvent): boolean => {
    const focused = app.focusRow.peek();
    if (key.toLowerCase() === "z" && app.payload.peek()?.zooms.canZoom(focused)) {
      app.zoom(focused);
      return true;
    }
    if (key === "ArrowUp" && atFirstRow(app)) {
      go({ part: "head", column: focus.peek().column });
      return true;
    }
    if (key === "ArrowLeft" || key === "ArrowRight") {
      list.element()?.scrollBy({ left: key === "ArrowRight" ? SCROLL_STEP : -SCROLL_STEP });
      return true;
    }
    const row = rowMove(app, key, list.page());
    if (row === null) return false;
    go(focus.peek());
    app.selectRow(row);
    return true;
  };

  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!(focus.peek().part === "head" ? onHead(event) : onRows(event))) return;
    event.preventDefault();
    event.stopPropagation();
  };
}

/** Sets the focus, and gives it to the element once that is drawn. */
function useRefocus(list: WindowedList, focus: Signal<GridFocus>): (next: GridFocus) => void {
  const wanted = useRef(false);
  useLayoutEffect(() => {
    if (!wanted.current) return;
    wanted.current = false;
    const inRows = focus.peek().part === "rows";
    list.element()?.querySelector<HTMLElement>('[tabindex="0"]')?.focus({ preventScroll: inRows });
  });
  return (next) => {
    wanted.current = true;
    focus.value = next;
  };
}
