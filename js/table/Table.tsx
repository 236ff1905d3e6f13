// The gap table: a windowed grid with a sticky head and a sticky first column.
import { useComputed, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { type Column, INTRODUCED_PART } from "../data/columns";
import type { Payload } from "../data/payload";
import { useApp } from "../ui/context";
import { Pages } from "../ui/Pages";
import { useWidth } from "../ui/useWidth";
import { type WindowedList, drawnPositions, useWindow } from "../ui/window";
import {
  HEAD_HEIGHT,
  type PlacedColumn,
  ROW_HEIGHT,
  columnWidths,
  tableOrder,
  useColumnsInView,
} from "./gridColumns";
import { HeadCell } from "./HeadCell";
import { NoRows } from "./NoRows";
import { Row } from "./Row";
import { type GridFocus, useTableKeys } from "./useTableKeys";

interface HeadProps {
  columns: readonly Column[];
  widths: readonly number[];
  width: number;
  focus: GridFocus;
}

function Head({ columns, widths, width, focus }: HeadProps): JSX.Element {
  const keys = useApp().rows.keys.value;
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
  const { rows, selection, store, view } = useApp();
  const order = rows.order.value;
  const selected = selection.row.value;
  const { kernel } = store.source;
  const pinned = new Set(view.pins.value);
  const calls = new Set(payload.zooms.calls);
  const reachable = Math.max(0, rows.positions.value[selected] ?? 0);
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
            at={payload.addressOf(row)}
            position={position}
            columns={columns}
            selected={row === selected}
            pinned={pinned.has(row)}
            reachable={position === reachable && focus.part === "rows"}
            mismatch={payload.mismatch[row] === 1}
            note={payload.notes[row] ?? ""}
            part={payload.number(INTRODUCED_PART, row)}
            module={payload.text("module", row) ?? ""}
            inner={payload.zooms.isInner(row)}
            zoomable={kernel && payload.zooms.canZoom(row)}
            inside={rows.filtered.value || !calls.has(row) ? 0 : payload.zooms.inside(row).length}
            open={rows.isOpen(row)}
            compared={row < payload.compared}
            barColumn={rows.gaugeColumn.value?.name ?? ""}
            onSelect={selection.selectRow}
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
function useReveal(
  payload: Payload,
  list: WindowedList,
  columns: readonly Column[],
  widths: readonly number[],
): void {
  const { rows, selection } = useApp();
  const selected = selection.row.value;
  const keys = rows.keys.value;
  useEffect(() => {
    list.toTop();
    showColumn(list.element(), columns, widths, keys[0].column);
  }, [keys]);
  useEffect(() => {
    list.show(rows.positions.peek()[selected] ?? -1);
  }, [selected, payload]);
}

export function Table({ payload, pages }: { payload: Payload; pages: boolean }): JSX.Element {
  const { rows, view } = useApp();
  const count = rows.order.value.length;
  const columns = useComputed(() => tableOrder(rows.columns.value)).value;
  const [frame, room] = useWidth<HTMLDivElement>(0);
  const widths = columnWidths(columns, view.columnWidths.value, room);
  const width = widths.reduce((sum, one) => sum + one, 0);
  const list = useWindow(rows.order.value, ROW_HEIGHT, HEAD_HEIGHT, pages);
  const inView = useColumnsInView(list.element, columns, widths, room);
  const focus = useSignal<GridFocus>({ part: "rows", column: 0 });
  const onKeyDown = useTableKeys(payload, list, columns, focus);
  useReveal(payload, list, columns, widths);
  return (
    <>
      <div
        class="etv-table"
        role="grid"
        aria-label="Gap table"
        aria-rowcount={count + 1}
        aria-colcount={columns.length}
        ref={(element) => {
          list.ref(element);
          frame.current = element;
        }}
        onKeyDown={onKeyDown}
        style={{ "--etv-columns": widths.map((one) => `${one}px`).join(" "), height: list.paged?.height }}
      >
        <Head columns={columns} widths={widths} width={width} focus={focus.value} />
        <Body payload={payload} list={list} columns={inView} width={width} focus={focus.value} />
        {count === 0 && <NoRows payload={payload} />}
      </div>
      <Pages list={list} count={count} />
    </>
  );
}
