// One row of the gap table.
import { memo } from "../ui/memo";
import { Cell, type RowFacts, hasBar } from "./Cell";
import { type PlacedColumn, ROW_HEIGHT } from "./gridColumns";

interface Props extends RowFacts {
  position: number;
  columns: readonly PlacedColumn[];
  selected: boolean;
  pinned: boolean;
  /** The row that Tab reaches. */
  reachable: boolean;
  compared: boolean;
  barColumn: string;
  onSelect: (row: number) => void;
}

export const Row = memo<Props>((props) => {
  const { row, at, position, columns, selected, mismatch, note, inner, part, module, zoomable, inside, open } =
    props;
  const facts = { row, at, mismatch, note, inner, part, module, zoomable, inside, open };
  return (
    <div
      class="etv-row"
      role="row"
      aria-rowindex={position + 2}
      aria-selected={selected}
      aria-keyshortcuts={zoomable ? "Z" : undefined}
      tabIndex={props.reachable ? 0 : -1}
      data-row={row}
      data-mismatch={mismatch ? true : undefined}
      data-inner={inner ? true : undefined}
      data-pinned={props.pinned ? true : undefined}
      data-zoomable={zoomable || inside > 0 ? true : undefined}
      data-muted={props.compared ? undefined : true}
      style={{ transform: `translateY(${position * ROW_HEIGHT}px)` }}
      onClick={() => props.onSelect(row)}
    >
      {columns.map(({ column, index }) => (
        <Cell
          key={column.name}
          column={column}
          index={index}
          facts={facts}
          bar={hasBar(column, props.barColumn)}
        />
      ))}
    </div>
  );
});
