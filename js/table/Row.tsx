// One row of the gap table.
import type { Column } from "../state/columns";
import { memo } from "../ui/memo";
import { Cell } from "./Cell";
import type { PlacedColumn } from "./useColumnsInView";
import { ROW_HEIGHT } from "./layout";

interface Props {
  row: number;
  position: number;
  columns: readonly PlacedColumn[];
  selected: boolean;
  /** The row that Tab reaches. */
  reachable: boolean;
  mismatch: boolean;
  compared: boolean;
  barColumn: string;
  onSelect: (row: number) => void;
}

function hasBar(column: Column, barColumn: string): boolean {
  return column.name === barColumn || column.name.endsWith("severity");
}

export const Row = memo<Props>((props) => {
  const { row, position, columns, selected, mismatch } = props;
  return (
    <div
      class="etv-row"
      role="row"
      aria-rowindex={position + 2}
      aria-selected={selected}
      tabIndex={props.reachable ? 0 : -1}
      data-row={row}
      data-mismatch={mismatch ? true : undefined}
      data-muted={props.compared ? undefined : true}
      style={{ transform: `translateY(${position * ROW_HEIGHT}px)` }}
      onClick={() => props.onSelect(row)}
    >
      {columns.map(({ column, index }) => (
        <Cell
          key={column.name}
          column={column}
          row={row}
          index={index}
          mismatch={mismatch}
          bar={hasBar(column, props.barColumn)}
        />
      ))}
    </div>
  );
});
