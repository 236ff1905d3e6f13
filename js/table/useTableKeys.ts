// Keys of the gap table: arrows, page, Home and End move the selection; up from the first row goes
// to the column heads, where left and right move and Enter sorts. Z looks into a delegate call, right
// and left open and close what was found inside of it.
import type { Signal } from "@preact/signals";
import type { Column } from "../data/columns";
import type { Payload } from "../data/payload";
import { useApp } from "../ui/context";
import { arrowOf, keysOf, movedTo, useRefocus } from "../ui/keys";
import type { WindowedList } from "../ui/window";

export interface GridFocus {
  part: "head" | "rows";
  column: number;
}

const SCROLL_STEP = 80;

export function useTableKeys(
  payload: Payload,
  list: WindowedList,
  columns: readonly Column[],
  focus: Signal<GridFocus>,
): (event: KeyboardEvent) => void {
  const app = useApp();
  const { rows, selection } = app;
  const refocus = useRefocus(list);
  const go = (next: GridFocus): void => {
    refocus({ preventScroll: next.part === "rows" });
    focus.value = next;
  };

  const onHead = (event: KeyboardEvent): boolean => {
    const { column } = focus.peek();
    const { across = 0, down = 0 } = arrowOf(event) ?? {};
    if (down > 0) go({ part: "rows", column });
    else if (across) go({ part: "head", column: Math.min(columns.length - 1, Math.max(0, column + across)) });
    else if (event.key === "Enter" || event.key === " ") rows.sortOn(columns[column], event.shiftKey);
    else return false;
    return true;
  };

  /** Right opens the inside of a delegate call, left closes it or leaves it; false if there is nothing of that kind to do. */
  const alongInside = (across: number, row: number): boolean => {
    const { zooms } = payload;
    if (rows.filtered.peek()) return false;
    const around = zooms.around(row);
    if (across < 0 && around >= 0) selection.selectRow(around);
    else if (zooms.calls.includes(row) && zooms.inside(row).length > 0 && rows.isOpen(row) === across < 0) selection.toggleInside(row);
    else return false;
    return true;
  };

  const onRows = (event: KeyboardEvent): boolean => {
    const { key } = event;
    const selected = selection.row.peek();
    const order = rows.order.peek();
    const at = rows.positions.peek()[selected] ?? -1;
    const { across = 0, down = 0 } = arrowOf(event) ?? {};
    if (key.toLowerCase() === "z" && payload.zooms.canZoom(selected)) {
      app.zoom(selected);
    } else if (down < 0 && at <= 0) {
      go({ part: "head", column: focus.peek().column });
    } else if (across && alongInside(across, selected)) {
      go(focus.peek());
    } else if (across) {
      list.element()?.scrollBy({ left: across * SCROLL_STEP });
    } else {
      const first = at < 0 && (key === "Enter" || key === " ");
      const to = first ? 0 : movedTo(key, at, order.length - 1, list.page());
      const row = to === null ? undefined : order[to];
      if (row === undefined) return false;
      go(focus.peek());
      selection.selectRow(row);
    }
    return true;
  };

  return keysOf((event) => (focus.peek().part === "head" ? onHead(event) : onRows(event)));
}
