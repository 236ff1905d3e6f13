// Which delegate calls were zoomed into, which can be, and which rows are operators inside of one.
import { decodeInts, decodeNumber } from "./codec";
import { type Column, textAt } from "./columns";
import type { WirePayload } from "./contract";

export interface Zoom {
  row: number;
  faithful: boolean | null;
  deviation: number | null;
  message: string;
}

export interface Zooms {
  /** True for the row of a delegate call that can be zoomed and is not yet. */
  canZoom(row: number): boolean;
  of(row: number): Zoom | undefined;
  /** Rows of operators inside of the delegate call of `row`, in program order. */
  inside(row: number): readonly number[];
  /** The delegate call around the operator of `row`; -1 for a row that is not inside of one. */
  around(row: number): number;
  isInner(row: number): boolean;
}

export const INNER = "inner";

/** Rows of kind "inner" by instruction. */
function innerRows(
  kind: Column | undefined,
  instruction: Column | undefined,
  rows: number,
): Map<number, number[]> {
  const found = new Map<number, number[]>();
  if (kind?.kind !== "text" || instruction?.kind !== "number") return found;
  if (!kind.dictionary.includes(INNER)) return found;
  for (let row = 0; row < rows; row++) {
    if (textAt(kind, row) !== INNER) continue;
    const id = instruction.values[row];
    found.set(id, [...(found.get(id) ?? []), row]);
  }
  return found;
}

export function decodeZooms(
  wire: WirePayload,
  buffers: readonly DataView[],
  column: (name: string) => Column | undefined,
): Zooms {
  const flags = wire.zoomable ? decodeInts(wire.zoomable, buffers) : null;
  const zooms = new Map<number, Zoom>();
  const delegates = new Map<number, number>();
  for (const { row, instruction, faithful, deviation, message } of wire.zooms ?? []) {
    zooms.set(row, { row, faithful, deviation: decodeNumber(deviation ?? null), message });
    delegates.set(instruction, row);
  }
  const inner = innerRows(column("kind"), column("instruction"), wire.rows);
  const aroundRow = new Map<number, number>();
  for (const [instruction, rows] of inner) {
    for (const row of rows) aroundRow.set(row, delegates.get(instruction) ?? -1);
  }
  const instructionOf = (row: number): number => {
    const found = column("instruction");
    return found?.kind === "number" ? found.values[row] : NaN;
  };
  return {
    canZoom: (row) => flags?.[row] === 1,
    of: (row) => zooms.get(row),
    inside: (row) => (zooms.has(row) ? (inner.get(instructionOf(row)) ?? []) : []),
    around: (row) => aroundRow.get(row) ?? -1,
    isInner: (row) => aroundRow.has(row),
  };
}
