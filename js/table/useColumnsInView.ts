// Which columns are drawn: those in view, and the sticky first one.
import { useCallback, useMemo, useState } from "preact/hooks";
import type { Column } from "../state/columns";
import { useScrollAndSize } from "../ui/useScrollAndSize";
import { type ColumnRange, columnsInView } from "./layout";

export interface PlacedColumn {
  column: Column;
  index: number;
}

export function useColumnsInView(
  element: () => HTMLElement | null,
  columns: readonly Column[],
  widths: readonly number[],
): readonly PlacedColumn[] {
  const [range, setRange] = useState<ColumnRange>({ first: 0, end: columns.length });
  const update = useCallback(() => {
    const grid = element();
    if (!grid) return;
    const next = columnsInView(widths, grid.scrollLeft, grid.clientWidth);
    setRange((old) => (old.first === next.first && old.end === next.end ? old : next));
  }, [widths.join()]);
  useScrollAndSize(element, update, () => {});

  return useMemo(() => {
    const placed = columns.map((column, index) => ({ column, index }));
    return placed.filter(({ index }) => index === 0 || (index >= range.first && index < range.end));
  }, [columns, range]);
}
