// The gap table: a windowed grid with a sticky head and a sticky first column.
import { type Signal, useComputed, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useCallback, useEffect } from "preact/hooks";
import { type Column, INTRODUCED_PART, numberAt } from "../state/columns";
import type { Payload } from "../state/payload";
import { drawnPositions } from "../state/window";
import { useApp } from "../ui/context";
import { type WindowedList, useWindow } from "../ui/useWindow";
import { HeadCell } from "./HeadCell";
import { NoRows } from "./NoRows";
import { Row } from "./Row";
import { HEAD_HEIGHT, ROW_HEIGHT, columnWidths, tableOrder } from "./layout";
import { type PlacedColumn, useColumnsInView } from "./useColumnsInView";
import { type GridFocus, useTableKeys } from "./useTableKeys";

function Head({
  columns,
  widths,
  focus,
}: {
  columns: Column[];
  widths: number[];
  focus: GridFocus;
}): JSX.Element {
  const keys = useApp().keys.value;
  const width = widths.reduce((sum, one) => sum + one, 0);
  return (
    <div class="etv-head" role="row" aria-rowindex={1} style={{ width: `${width}px` }}>
      {columns.map((column, index) => (
        <HeadCell
          key={column.name}
          column={column}
          index={index}
          width={widths[index]}
          keys={keys}
          reachable={focus.part === "head" && focus.column === index}
        />
      ))}
    </div>
  );
}

interface BodyProps {
  payload: Payload;
  list: WindowedList;
  columns: readonly PlacedColumn[];
  width: number;
  focus: GridFocus;
}

function Body({ payload, list, columns, width, focus }: BodyProps): JSX.Element {
  const app = useApp();
  const order = app.order.value;
  const focusRow = app.focusRow.value;
  const select = useCallback((row: number) => app.selectRow(row), [app]);
  const part = payload.column(INTRODUCED_PART);
  const { kernel } = app.store.source;
  const reachable = Math.max(0, app.positions.value[focusRow] ?? 0);
  return (
    <div
      class="etv-rows"
      role="rowgroup"
      style={{ height: `${order.length * ROW_HEIGHT}px`, width: `${width}px` }}
    >
      {drawnPositions(list.window, reachable, order.length).map((position) => {
        const row = order[position];
        return (
          <Row
            key={row}
            row={row}
            position={position}
            columns={columns}
            selected={row === focusRow}
            reachable={position === reachable && focus.part === "rows"}
            mismatch={payload.mismatch[row] === 1}
            part={numberAt(part, row)}
            inner={payload.zooms.isInner(row)}
            zoomable={kernel && payload.zooms.canZoom(row)}
            compared={row < payload.compared}
            barColumn={app.gaugeColumn.value?.name ?? ""}
            onSelect={select}
          />
        );
      })}
    </div>
  );
}

/** Scrolls sideways until the column that sorts is beside the first one, or in view already. */
function showColumn(
  element: HTMLElement | null,
  columns: readonly Column[],
  widths: readonly number[],
  name: string,
): void {
  const at = columns.findIndex((column) => column.name === name);
  if (!element || at < 1) return;
  const left = widths.slice(0, at).reduce((sum, one) => sum + one, 0);
  const right = left + widths[at];
  const from = element.scrollLeft + widths[0];
  if (left < from) element.scrollLeft = left - widths[0];
  else if (right > element.scrollLeft + element.clientWidth) {
    element.scrollLeft = Math.min(left - widths[0], right - element.clientWidth);
  }
}

/**
 * Scrolls to the selected row when it changes; when the order changes, to the top and to the column
 * that sorts.
 */
function useReveal(list: WindowedList, columns: readonly Column[], widths: readonly number[]): void {
  const app = useApp();
  const focusRow = app.focusRow.value;
  const keys = app.keys.value;
  useEffect(() => {
    list.toTop();
    showColumn(list.element(), columns, widths, keys[0].column);
  }, [keys]);
  useEffect(() => {
    list.show(app.positions.peek()[focusRow] ?? -1);
  }, [focusRow, app.payload.value]);
}

export function Table(): JSX.Element {
  const app = useApp();
  const payload = app.payload.value;
  const rows = app.order.value.length;
  const columns = useComputed(() => tableOrder(app.columns.value)).value;
  const widths = columnWidths(columns, app.view.columnWidths.value);
  const list = useWindow(rows, ROW_HEIGHT, HEAD_HEIGHT);
  const inView = useColumnsInView(list.element, columns, widths);
  const focus: Signal<GridFocus> = useSignal<GridFocus>({ part: "rows", column: 0 });
  const onKeyDown = useTableKeys(list, columns, focus);
  useReveal(list, columns, widths);
  return (
    <div
      class="etv-table"
      role="grid"
      aria-label="Gap table"
      aria-rowcount={rows + 1}
      aria-colcount={columns.length}
      ref={list.ref}
      onKeyDown={onKeyDown}
      style={{ "--etv-columns": widths.map((one) => `${one}px`).join(" ") }}
    >
      <Head columns={columns} widths={widths} focus={focus.value} />
      {payload && (
        <Body
          payload={payload}
          list={list}
          columns={inView}
          width={widths.reduce((sum, one) => sum + one, 0)}
          focus={focus.value}
        />
      )}
      {rows === 0 && <NoRows />}
    </div>
  );
}
