// Which delegate calls were zoomed into, which can be, and which rows are operators inside of one.
import { decodeInts, decodeNumber } from "./codec";
import { type Column, numberAt, textAt } from "./columns";
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
const DELEGATE = "delegate";

type GetColumn = (name: string) => Column | undefined;

/** What names a delegate call: the run and the instruction. */
function callsOf(column: GetColumn): (row: number) => string {
  const block = column("event_block");
  const instruction = column("instruction");
  return (row) => `${numberAt(block, row)} ${numberAt(instruction, row)}`;
}

/** Rows of a kind by the delegate call that they belong to. */
function rowsByCall(
  column: GetColumn,
  kind: string,
  rows: number,
  callOf: (row: number) => string,
): Map<string, number[]> {
  const found = new Map<string, number[]>();
  const kinds = column("kind");
  if (kinds?.kind !== "text") return found;
  const code = kinds.dictionary.indexOf(kind);
  for (let row = 0; code >= 0 && row < rows; row++) {
    if (kinds.codes[row] !== code) continue;
    const call = callOf(row);
    const known = found.get(call);
    if (known) known.push(row);
    else found.set(call, [row]);
  }
  return found;
}

export function decodeZooms(wire: WirePayload, buffers: readonly DataView[], column: GetColumn): Zooms {
  const flags = wire.zoomable ? decodeInts(wire.zoomable, buffers) : null;
  const callOf = callsOf(column);
  const inner = rowsByCall(column, INNER, wire.rows, callOf);
  const calls = rowsByCall(column, DELEGATE, wire.rows, callOf);
  const zooms = new Map<number, Zoom>();
  const around = new Map<number, number>();
  for (const { row, faithful, deviation, message } of wire.zooms ?? []) {
    const zoom = { row, faithful, deviation: decodeNumber(deviation ?? null), message };
    const call = callOf(row);
    for (const output of [row, ...(calls.get(call) ?? [])]) zooms.set(output, zoom);
    for (const inside of inner.get(call) ?? []) around.set(inside, row);
  }
  const kinds = column("kind");
  return {
    canZoom: (row) => flags?.[row] === 1,
    of: (row) => zooms.get(row),
    inside: (row) => (zooms.has(row) ? (inner.get(callOf(row)) ?? []) : []),
    around: (row) => around.get(row) ?? -1,
    isInner: (row) => textAt(kinds, row) === INNER,
  };
}
