// One column head: sorts on click (shift-click: second key), resizes at its right edge.
import type { JSX } from "preact";
import type { Column } from "../data/columns";
import type { SortKey } from "../data/sort";
import { useApp } from "../ui/context";
import { startDrag } from "../ui/drag";
import { clampWidth } from "./gridColumns";

interface Props {
  column: Column;
  index: number;
  width: number;
  keys: readonly SortKey[];
  reachable: boolean;
}

type AriaSort = "ascending" | "descending" | "none";

function sortMark(keys: readonly SortKey[], name: string): { aria: AriaSort; mark: string } {
  const at = keys.findIndex((key) => key.column === name);
  if (at < 0) return { aria: "none", mark: "" };
  const arrow = keys[at].descending ? "▼" : "▲";
  const number = keys.length > 1 ? String(at + 1) : "";
  return { aria: keys[at].descending ? "descending" : "ascending", mark: arrow + number };
}

export function HeadCell({ column, index, width, keys, reachable }: Props): JSX.Element {
  const { rows, view } = useApp();
  const { aria, mark } = sortMark(keys, column.name);
  const resize = (event: PointerEvent): void => {
    event.stopPropagation();
    const { columnWidths } = view;
    startDrag(event, (dx) => {
      columnWidths.value = new Map(columnWidths.peek()).set(column.name, clampWidth(width + dx));
    });
  };
  const tip = `${column.description}\n\nClick to sort, shift-click for a second key.`.trim();
  return (
    <span
      class={index === 0 ? "etv-cell etv-head-cell etv-first" : "etv-cell etv-head-cell"}
      role="columnheader"
      aria-colindex={index + 1}
      aria-sort={aria}
      tabIndex={reachable ? 0 : -1}
      data-kind={column.kind}
      data-column={column.name}
      data-tip={tip}
      onClick={(event) => rows.sortOn(column, event.shiftKey)}
    >
      <span class="etv-head-label">{column.label}</span>
      <span class="etv-sort-mark" aria-hidden="true">
        {mark}
      </span>
      <span
        class="etv-resize"
        aria-hidden="true"
        onPointerDown={resize}
        onClick={(event) => event.stopPropagation()}
      />
    </span>
  );
}
