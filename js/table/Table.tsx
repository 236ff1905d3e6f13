// The gap table: a windowed grid with a sticky head and a sticky first column.
import { useComputed, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useCallback, useEffect } from "preact/hooks";
import { useApp } from "../ui/context";
import { useWindow } from "../ui/useWindow";
import { HeadCell } from "./HeadCell";
import { NoRows } from "./NoRows";
import { Row } from "./Row";
import { HEAD_HEIGHT, ROW_HEIGHT, columnWidths, tableOrder } from "./layout";
import { useColumnsInView } from "./useColumnsInView";
import { type GridFocus, useTableKeys } from "./useTableKeys";

export function Table(): JSX.Element {
  const app = useApp();
  const order = app.order.value;
  const columns = useComputed(() => tableOrder(app.columns.value)).value;
  const keys = app.keys.value;
  const focusRow = app.focusRow.value;
  const payload = app.payload.value;
  const list = useWindow(order.length, ROW_HEIGHT, HEAD_HEIGHT);
  const head = useSignal<GridFocus>({ part: "rows", column: 0 });
  const widths = columnWidths(columns, app.view.columnWidths.value);
  const width = widths.reduce((sum, one) => sum + one, 0);
  const select = useCallback((row: number) => app.selectRow(row), [app]);
  const inView = useColumnsInView(list.element, columns, widths);
  const onKeyDown = useTableKeys(list, columns, head);

  useEffect(() => list.toTop(), [keys]);
  useEffect(() => {
    const position = focusRow < 0 ? -1 : (app.positions.peek()[focusRow] ?? -1);
    if (position >= 0) list.show(position);
  }, [focusRow, app.payload.value]);

  if (!payload) return <div class="etv-table" />;
  const { start, end } = list.window;
  const focused = focusRow < 0 ? -1 : (app.positions.value[focusRow] ?? -1);
  const reachable = focused >= 0 ? focused : 0;
  const drawn: number[] = [];
  if (reachable < start && order.length > 0) drawn.push(reachable);
  for (let position = start; position < end; position++) drawn.push(position);
  if (reachable >= end && order.length > 0) drawn.push(reachable);

  return (
    <div
      class="etv-table"
      role="grid"
      aria-label="Gap table"
      aria-rowcount={order.length + 1}
      aria-colcount={columns.length}
      ref={list.ref}
      onKeyDown={onKeyDown}
      style={{ "--etv-columns": widths.map((one) => `${one}px`).join(" ") }}
    >
      <div class="etv-head" role="row" aria-rowindex={1} style={{ width: `${width}px` }}>
        {columns.map((column, index) => (
          <HeadCell
            key={column.name}
            column={column}
            index={index}
            width={widths[index]}
            keys={keys}
            reachable={head.value.part === "head" && head.value.column === index}
          />
        ))}
      </div>
      <div
        class="etv-rows"
        role="rowgroup"
        style={{ height: `${order.length * ROW_HEIGHT}px`, width: `${width}px` }}
      >
        {drawn.map((position) => {
          const row = order[position];
          return (
            <Row
              key={row}
              row={row}
              position={position}
              columns={inView}
              selected={row === focusRow}
              reachable={position === reachable && head.value.part === "rows"}
              mismatch={payload.mismatch[row] === 1}
              compared={row < payload.compared}
              barColumn={app.gaugeColumn.value?.name ?? ""}
              onSelect={select}
            />
          );
        })}
      </div>
      {order.length === 0 && <NoRows />}
    </div>
  );
}
