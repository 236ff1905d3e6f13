// By what rows are ranked: one choice that sorts the table and says what the tree's bars stand for.
import type { Column } from "./columns";
import type { Payload } from "./payload";

export interface RankChoice {
  column: string;
  text: string;
  tip: string;
}

export const RANKS: readonly RankChoice[] = [
  {
    column: "severity",
    text: "total",
    tip: "How far the value is off, whoever caused it",
  },
  {
    column: "introduced_severity",
    text: "introduced",
    tip: "What the operator adds itself, on the runtime's own inputs",
  },
  {
    column: "attribution",
    text: "attribution",
    tip: "The operator's share of the final output's error",
  },
  { column: "latency_ms", text: "latency", tip: "Time of the instruction" },
];

function hasNumbers(column: Column | undefined): boolean {
  return column?.kind === "number" && column.values.some((value) => !Number.isNaN(value));
}

/** The choices that this payload has numbers for. */
export function ranksIn(payload: Payload): RankChoice[] {
  return RANKS.filter(({ column }) => hasNumbers(payload.column(column)));
}
