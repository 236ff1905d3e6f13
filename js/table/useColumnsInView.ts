// Which columns are drawn: those in view, and the sticky first one.
import { useLayoutEffect, useMemo, useState } from "preact/hooks";
import type { Column } from "../state/columns";
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
  useLayoutEffect(() => {
    const grid = element();
    if (!grid) return;
    const update = (): void => {
      const next = columnsInView(widths, grid.scrollLeft, grid.clientWidth);
      setRange((old) => (old.first === next.first && old.end === next.end ? old : next));
    };
    const observer = new ResizeObserver(update);
    observer.observe(grid);
    grid.addEventListener("scroll", update, { passive: true });
    update();
    return () => {
      observer.disconnect();
      grid.removeEventListener("scroll", update);
    };
  }, [widths.join()]);

  return useMemo(() => {
    const placed = columns.map((column, index) => ({ column, index }));
    return placed.filter(({ index }) => index === 0 || (index >= range.first && index < range.end));
  }, [columns, range]);
}
