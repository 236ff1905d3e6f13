// The payload, decoded: columns by name, trees with parents and rows, ranks computed once a column.
import { decodeFloats, decodeInts } from "../kernel/codec";
import type { Attribution, Summary, TimedRuns, TreeName, WireBeside, WireColumn, WirePayload } from "../kernel/contract";
import type { Answer } from "../kernel/source";
import { type Column, hasValues, mismatchRows, numberAt, textAt } from "./columns";
import { type Edges, decodeEdges } from "./edges";
import { type FilterTable, statusOf } from "./filter";
import { runsOf } from "./runs";
import { type Ranks, rankColumn } from "./sort";
import { type Tokens, decodeTokens } from "./tokens";
import { type Tree, decodeTree } from "./tree";
import { type Zooms, decodeZooms } from "./zooms";

/** Another program beside the one that is shown: what it is called, and its tree. */
export interface Beside {
  label: string;
  /** What the names of its columns end in. */
  suffix: string;
  tree: TreeName;
}

export interface Payload extends FilterTable {
  title: string;
  summary: Summary;
  columns: Column[];
  trees: Record<TreeName, Tree>;
  /** The programs beside this one, and what this one is called among them. */
  beside: readonly Beside[];
  label: string;
  /** Of which output's error the column "attribution" tells the shares; null before it was computed. */
  attribution: Attribution | null;
  zooms: Zooms;
  /** The method that this is of, and all that can be chosen. */
  method: string;
  methods: readonly string[];
  /** null: nothing was timed. */
  timed: TimedRuns | null;
  /** Of a language model; else null. */
  tokens: Tokens | null;
  /** What the kernel explains on request; nothing in a report. */
  explanations: readonly string[];
  /** Notes on rows. */
  notes: Readonly<Record<number, string>>;
  /** Who reads whose values, in the program tree. */
  edges: Edges;
  /** Ascending ranks of a column (see sort.ts); null if there is no such column. */
  ranks(name: string): Ranks | null;
  /** Ranks that grow with badness, -1 where the value is not known; null for a text column. */
  badness(name: string): Int32Array | null;
  /** What a text column says of a row; null where it says nothing. */
  text(name: string, row: number): string | null;
  /** What a number column says of a row; NaN where it is not known. */
  number(name: string, row: number): number;
  /** The first part of a row's name, which Python takes as a row: "#1", "#1[2]", "#4.3" inside a delegate. */
  addressOf(row: number): string;
  /** The name of a row, here and in Python: "#1 norm1 · layer_norm". */
  nameOf(row: number): string;
  /** The compared rows that are worst by a column, the worst first. */
  worst(name: string, most: number): number[];
}

const NEWEST = 2;

function decodeColumn(wire: WireColumn, buffers: readonly DataView[]): Column {
  const { values, dictionary, limits, ...info } = wire;
  if (info.kind === "number") {
    const [look, fault] = limits?.map((ends) => decodeFloats(ends, buffers)) ?? [];
    const each = look && fault ? ([look, fault] as const) : null;
    return { ...info, kind: "number", values: decodeFloats(values, buffers), limits: each };
  }
  return { ...info, kind: "text", codes: decodeInts(values, buffers), dictionary: dictionary ?? [] };
}

function badnessOf(column: Column | undefined, ranks: Ranks | null): Int32Array | null {
  if (!ranks || column?.kind !== "number") return null;
  if (column.better !== "high") return ranks.rank;
  const badness = new Int32Array(ranks.rank.length).fill(-1);
  for (let row = 0; row < badness.length; row++) if (ranks.rank[row] >= 0) badness[row] = ranks.count - 1 - ranks.rank[row];
  return badness;
}

/** The value of `compute` for a key, computed when first asked for. */
function memoized<T>(compute: (key: string) => T): (key: string) => T {
  const known = new Map<string, T>();
  return (key) => {
    const found = known.get(key);
    if (found !== undefined) return found;
    const value = compute(key);
    known.set(key, value);
    return value;
  };
}

/** How bad each row's own error is for its precision: 0, 1 (look), 2 (fault). */
function levelsOf(rows: number, own: Column | undefined, mismatch: Uint8Array): Uint8Array {
  const levels = new Uint8Array(rows);
  const limits = own?.kind === "number" ? own.limits : null;
  for (let row = 0; row < rows; row++) {
    const value = own?.kind === "number" ? own.values[row] : NaN;
    if (mismatch[row] || (limits && value >= limits[1][row])) levels[row] = 2;
    else if (limits && value >= limits[0][row]) levels[row] = 1;
  }
  return levels;
}

/** A flag for each row that nobody has to see: its value is not read, and nothing is wrong with it. */
function unusedOf({ unused, rows }: WirePayload, buffers: readonly DataView[], levels: Uint8Array): Uint8Array {
  const flags = unused ? decodeInts(unused, buffers) : new Int32Array(rows);
  const unread = new Uint8Array(rows);
  for (let row = 0; row < rows; row++) if (levels[row] === 0) unread[row] = flags[row];
  return unread;
}

function decodeTrees({ trees, beside = [] }: WirePayload, buffers: readonly DataView[]): Record<TreeName, Tree> {
  const decoded: Record<TreeName, Tree> = {
    program: decodeTree("program", trees.program, buffers),
    modules: decodeTree("modules", trees.modules, buffers),
  };
  beside.forEach(({ tree }: WireBeside, k) => {
    decoded[`beside_${k + 2}`] = decodeTree(`beside_${k + 2}`, tree, buffers);
  });
  return decoded;
}

/** Decode the answer to `payload`; an error names the buffer that is missing or short. */
export function decodePayload({ result: wire, buffers }: Answer<WirePayload>): Payload {
  if (wire.version > NEWEST) {
    throw new Error(
      `this view reads payload versions up to ${NEWEST}, the kernel sent ${wire.version}: restart it`,
    );
  }
  const columns = wire.columns.map((column) => decodeColumn(column, buffers));
  const byName = new Map(columns.map((column) => [column.name, column]));
  const column = (name: string): Column | undefined => byName.get(name);
  const status = column("status");
  const mismatch = mismatchRows(status, wire.rows);
  const ranks = memoized((name) => {
    const ranked = column(name);
    return ranked ? rankColumn(ranked, mismatch) : null;
  });
  const text = (name: string, row: number): string | null => textAt(column(name), row);
  const badness = memoized((name) => badnessOf(column(name), ranks(name)));
  const own = ["introduced_severity", "severity"].map(column).find(hasValues);
  const levels = levelsOf(wire.rows, own, mismatch);
  return {
    title: wire.title,
    summary: wire.summary,
    rows: wire.rows,
    compared: wire.compared,
    columns,
    column,
    mismatch,
    status: statusOf(status, wire.rows, wire.compared),
    levels,
    unused: unusedOf(wire, buffers, levels),
    first: wire.summary.finding?.row ?? -1,
    runs: runsOf(wire.rows, column),
    ownBadness: () => (own ? badness(own.name) : null),
    trees: decodeTrees(wire, buffers),
    beside: (wire.beside ?? []).map(({ label }, k) => ({ label, suffix: `_${k + 2}`, tree: `beside_${k + 2}` as const })),
    label: wire.label ?? wire.title,
    attribution: wire.attribution ?? null,
    method: wire.method ?? "",
    methods: wire.methods ?? [],
    timed: wire.timeline ?? null,
    tokens: wire.tokens ? decodeTokens(wire.tokens, buffers) : null,
    zooms: decodeZooms(wire, buffers, column),
    explanations: wire.explanations ?? [],
    notes: wire.row_notes ?? {},
    edges: decodeEdges(wire, buffers),
    ranks,
    badness,
    text,
    number: (name, row) => numberAt(column(name), row),
    addressOf: (row) => text("row", row) ?? "",
    nameOf: (row) => [text("row", row), text("op", row) ?? `row ${row}`].filter(Boolean).join(" "),
    worst(name, most) {
      const known = badness(name);
      const found: number[] = [];
      for (let row = 0; known && row < wire.compared; row++) {
        if (this.unused[row]) continue;
        if (known[row] < 0 || (found.length === most && known[row] <= known[found[most - 1]])) continue;
        const at = found.findIndex((other) => known[other] < known[row]);
        found.splice(at < 0 ? found.length : at, 0, row);
        if (found.length > most) found.pop();
      }
      return found;
    },
  };
}
