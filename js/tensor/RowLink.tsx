// A button that selects another row, with its value.
import type { JSX } from "preact";
import type { NumberColumn } from "../data/columns";
import { formatNumber } from "../data/format";
import type { Payload } from "../data/payload";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";

interface Props {
  payload: Payload;
  row: number;
  /** What the row is to the one that is selected. */
  text?: string;
  column?: NumberColumn | null;
}

function valueOf(payload: Payload, row: number, column: NumberColumn): string {
  if (payload.mismatch[row] === 1) return "mismatch";
  const value = formatNumber(column.values[row], column.format);
  return value && `${column.label} ${value}`;
}

export function RowLink({ payload, row, text, column }: Props): JSX.Element {
  const { selection } = useApp();
  const value = column && valueOf(payload, row, column);
  return (
    <Button class="etv-row-link" onClick={() => selection.selectRow(row)}>
      {text && <span>{text}</span>} <span class="etv-mono">{payload.nameOf(row)}</span>
      {value && <span class="etv-row-link-value">{value}</span>}
    </Button>
  );
}
