// By what rows are ranked: one choice that sorts the table and says what the tree's bars stand for.
import { type Column, type NumberColumn, hasValues } from "./columns";
import type { Payload } from "./payload";

/** A column to rank by: its name, and what it is called. */
interface Rank {
  name: string;
  text: string;
  tip: string;
}

const RANKS: readonly Rank[] = [
  {
    name: "change",
    text: "",
    tip: "",
  },
  {
    name: "severity",
    text: "total",
    tip: "How far the value is off, whoever caused it",
  },
  {
    name: "introduced_severity",
    text: "introduced",
    tip: "The error that the operator adds, on the runtime's own inputs",
  },
  {
    name: "attribution",
    text: "attribution",
    tip: "The operator's share of the final output's error",
  },
  { name: "latency_ms", text: "latency", tip: "Time of the instruction" },
];

/** The choices that this payload has numbers for; what programs beside each other differ by has the column's words. */
export function ranksIn(payload: Payload): Rank[] {
  const there = RANKS.filter(({ name }) => hasValues(payload.column(name)));
  const own = payload.column("change");
  return there.map((rank) => (rank.name === own?.name ? { ...rank, text: own.label, tip: own.description } : rank));
}

function isRated(column: Column | undefined): column is NumberColumn {
  return column?.kind === "number" && hasValues(column);
}

/** The error that operators introduce, or, where that is not known, their total error. */
export function ownError(payload: Payload): NumberColumn | null {
  return ["introduced_severity", "severity"].map(payload.column).find(isRated) ?? null;
}

/** The worst of some rows by a column; -1 if none of them has a value. */
export function worstOf(payload: Payload, rows: Iterable<number>, column: string): number {
  const badness = payload.badness(column);
  let worst = -1;
  for (const row of rows) if (badness && badness[row] > (worst < 0 ? -1 : badness[worst])) worst = row;
  return worst;
}
