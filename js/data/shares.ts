// The shares of an output's error as the segments of one bar: the largest by themselves, the rest
// together, shares below zero (they took error away) apart at the end.
export interface Segment {
  /** -1: all others together. */
  row: number;
  /** How many rows the segment stands for. */
  rows: number;
  share: number;
  /** 0, 1, ... for the segments with a colour of their own. */
  rank: number;
}

export const COLORED = 6;

/** What is too small to be seen is not given a colour of its own. */
const SEEN = 0.01;

function rest(rows: readonly number[], shares: Float64Array): Segment[] {
  const parts = [rows.filter((row) => shares[row] > 0), rows.filter((row) => shares[row] < 0)];
  return parts.flatMap((part) =>
    part.length === 0
      ? []
      : [{ row: -1, rows: part.length, share: part.reduce((sum, row) => sum + shares[row], 0), rank: -1 }],
  );
}

/** Segments in the order in which they are drawn: positive ones falling, then those below zero. */
export function segmentsOf(shares: Float64Array): Segment[] {
  const known: number[] = [];
  for (let row = 0; row < shares.length; row++) {
    if (Number.isFinite(shares[row]) && shares[row] !== 0) known.push(row);
  }
  known.sort((a, b) => Math.abs(shares[b]) - Math.abs(shares[a]));
  const total = known.reduce((sum, row) => sum + Math.abs(shares[row]), 0);
  const own = known.filter((row, k) => k < COLORED && Math.abs(shares[row]) >= SEEN * total);
  const named = own.map((row, rank) => ({ row, rows: 1, share: shares[row], rank }));
  const others = rest(known.slice(own.length), shares);
  const all = [...named, ...others];
  return [...all.filter((one) => one.share > 0), ...all.filter((one) => one.share < 0)];
}
