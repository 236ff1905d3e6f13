// Made-up explanations of the gaps in the form of the contract: attribution, and zooms into delegates.
import type { WirePayload } from "../state/contract";
import type { Pool } from "./pool";
import type { SampleRow } from "./program";
import type { SampleOptions } from "./sample";

export const OUTPUTS = ["0: [1, 1000] float32", "1: [1, 197, 768] float32"];

const CULPRITS: [number, number][] = [
  [41, 0.58],
  [17, 0.17],
  [48, 0.09],
  [79, 0.06],
  [10, -0.05],
  [2, 0.04],
];

/** A few large shares, one below zero, and many small ones. */
export function sampleShares(rows: readonly SampleRow[], known: number): number[] {
  const large = new Map(CULPRITS.map(([row, share]) => [row % known, share]));
  return rows.map((row, k) => {
    if (k >= known || row.kind === "inner") return NaN;
    return large.get(k) ?? 0.13 / known;
  });
}

type Explained = Pick<WirePayload, "attribution" | "zoomable" | "zooms">;

export function explanations(
  pool: Pool,
  rows: readonly SampleRow[],
  options: SampleOptions | null,
  zoomed: readonly number[],
): Explained {
  if (!options) return {};
  const flags = rows.map(({ kind }, row) => (kind === "delegate" && !zoomed.includes(row) ? 1 : 0));
  const { attributed } = options;
  return {
    attribution:
      attributed === undefined
        ? null
        : {
            output: attributed,
            outputs: OUTPUTS,
            sum: 1.02,
            note: "First order: one backward pass through the reference in float64.",
            methods: { gradient: 380, patch: 2, unknown: 3 },
          },
    zoomable: pool.add(Uint8Array.from(flags)),
    zooms: zoomed.map((row, k) => ({
      row,
      instruction: rows[row].instruction,
      faithful: k % 2 === 0,
      ...(k % 2 === 0 ? {} : { deviation: 1.2e-6 }),
      message:
        k % 2 === 0
          ? "The zoomed program gives the fused program's output bit for bit."
          : "The zoomed program's output differs from the fused program's by at most 1.2e-6.",
    })),
  };
}
