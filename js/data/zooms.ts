// Which delegate calls were zoomed into, which can be, and which rows are operators inside of one.
import { decodeInts, decodeNumber } from "../kernel/codec";
import type { WirePayload } from "../kernel/contract";
import { type Column, numberAt, textAt } from "./columns";

export interface Zoom {
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
  /** The first row of each delegate call that was looked into. */
  readonly calls: readonly number[];
}

/**
 * Rows with what is inside of a delegate under its row, in the order that they have; what a closed one holds is left out.
 * An operator whose delegate is not among the rows stays where it is.
 */
export function nested(rows: Uint32Array, zooms: Zooms, isClosed: (call: number) => boolean): Uint32Array {
  if (zooms.calls.length === 0) return rows;
  const inside = new Map<number, number[]>(zooms.calls.map((call) => [call, []]));
  const there = new Set<number>();
  for (const row of rows) if (inside.has(row)) there.add(row);
  const outer: number[] = [];
  for (const row of rows) {
    const call = zooms.around(row);
    if (there.has(call)) inside.get(call)?.push(row);
    else outer.push(row);
  }
  const result = new Uint32Array(rows.length);
  let count = 0;
  for (const row of outer) {
    result[count++] = row;
    if (there.has(row) && !isClosed(row)) for (const inner of inside.get(row) ?? []) result[count++] = inner;
  }
  return result.slice(0, count);
}

export function decodeZooms(
  wire: WirePayload,
  buffers: readonly DataView[],
  column: (name: string) => Column | undefined,
): Zooms {
  const flags = wire.zoomable ? decodeInts(wire.zoomable, buffers) : null;
  const [kinds, blocks, instructions] = ["kind", "run", "instruction"].map(column);
  /** A delegate call is named by its run and its instruction. */
  const callOf = (row: number): string => `${numberAt(blocks, row)} ${numberAt(instructions, row)}`;
  const rowsByCall = (kind: string): Map<string, number[]> => {
    const calls = new Map<string, number[]>();
    for (let row = 0; row < wire.rows; row++) {
      if (textAt(kinds, row) !== kind) continue;
      const call = callOf(row);
      const rows = calls.get(call);
      if (rows) rows.push(row);
      else calls.set(call, [row]);
    }
    return calls;
  };
  const looked = (wire.zooms ?? []).length > 0;
  const inner = looked ? rowsByCall("inner") : new Map<string, number[]>();
  const outputs = looked ? rowsByCall("delegate") : inner;
  const zooms = new Map<number, Zoom>();
  const around = new Map<number, number>();
  for (const { row, faithful, deviation, message } of wire.zooms ?? []) {
    const zoom = { faithful, deviation: decodeNumber(deviation ?? null), message };
    const call = callOf(row);
    for (const output of [row, ...(outputs.get(call) ?? [])]) zooms.set(output, zoom);
    for (const inside of inner.get(call) ?? []) around.set(inside, row);
  }
  return {
    canZoom: (row) => flags?.[row] === 1,
    of: (row) => zooms.get(row),
    inside: (row) => (zooms.has(row) ? (inner.get(callOf(row)) ?? []) : []),
    around: (row) => around.get(row) ?? -1,
    isInner: (row) => textAt(kinds, row) === "inner",
    calls: (wire.zooms ?? []).map(({ row }) => row),
  };
}
