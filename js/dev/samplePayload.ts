// A made-up payload in the form of the contract, for the harness and the tests.
import {
  type Summary,
  TEXT_FIELDS,
  type TextField,
  type Values,
  type WireColumn,
  type WirePayload,
  type WireTree,
} from "../kernel/contract";
import type { Answer } from "../kernel/source";
import { Pool } from "./pool";
import { type TokenOptions, sampleTokens } from "./sampleTokens";
import {
  type SampleNode,
  type SampleProgram,
  type SampleRow,
  addInnerRows,
  random,
  sampleProgram,
} from "./program";

export interface SampleOptions {
  layers?: number;
  inside?: number;
  /** Label of the first delegate, to show that texts stay texts. */
  label?: string;
  /** How many rows at the end were not compared. */
  uncompared?: number;
  empty?: boolean;
  /** Rows of delegate calls that were zoomed into. */
  zoomed?: readonly number[];
  version?: number;
  /** The row of the finding, 9 unless given. */
  found?: number;
  /** Nothing to know first: no row is selected. */
  unfound?: boolean;
  /** The label of a program beside, in which every tenth row is ten times worse. */
  beside?: string;
  /** How many executions were timed, and whether values were logged meanwhile. */
  timed?: number;
  distorted?: boolean;
  /** The methods of the program, the one that is shown first. */
  methods?: readonly string[];
  /** Tokens of a language model above the rows. */
  tokens?: TokenOptions;
  /** How often the program ran. */
  runs?: number;
  /** What the kernel explains, and notes on rows. */
  explanations?: string[];
  notes?: Record<string, string>;
  /** The output whose error was attributed. */
  attributed?: number;
}

function summary(empty: boolean, compared: number, total: number): Summary {
  if (empty) {
    return {
      level: "unknown",
      verdict: "Nothing was compared: latency and delegation only.",
      facts: [{ label: "Delegated", value: "7 of 12 operators", level: "unknown", row: null, hint: "" }],
      notes: ["No ETRecord was given: there is no reference, so there are no gaps."],
    };
  }
  return {
    level: "bad",
    verdict: "The final output differs from the reference (rmse 0.031, SQNR 21.4 dB, 12 % of its elements within tolerance).",
    facts: [
      {
        label: "Compared",
        value: `${compared} of ${total} instructions`,
        level: "ok",
        row: null,
        hint: "Every instruction that has a value was paired with its own reference value.",
      },
      {
        label: "Delegated",
        value: "83 % of operators, 26 delegates",
        level: "ok",
        row: null,
        hint: "XnnpackBackend",
      },
      {
        label: "Worst introduced",
        value: "executorch_call_delegate, severity 412",
        level: "bad",
        row: 41,
        hint: "The instruction that adds most error of its own",
      },
      {
        label: "Non-finite",
        value: "1 row",
        level: "warn",
        row: MISMATCH_ROW,
        hint: "NaN in the runtime only",
      },
      {
        label: "First divergence",
        value: "#17 executorch_call_delegate",
        level: "warn",
        row: 17,
        hint: "The earliest instruction whose introduced error passes the threshold of its dtype",
      },
      { label: "Latency", value: "118 ms", level: "unknown", row: null, hint: "" },
    ],
    notes: [],
    finding: {
      row: 9,
      text: "#9 encoder_layer_1 · layer_norm (vision_transformer.py:113) introduced it: channel 5 of 16 is ×0.25.",
      level: "bad",
      fingerprint: "scale factor",
    },
  };
}

const STACK = [
  'File "vision_transformer.py", line 113, in forward',
  "    x = self.ln_1(input)",
  'File "normalization.py", line 229, in forward',
  "    return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)",
].join("\n");

function flatten(root: SampleNode, rows: number) {
  const nodes: SampleNode[] = [];
  const depth: number[] = [];
  const size: number[] = [];
  const inside: number[] = [];
  const rowNode = new Int32Array(rows).fill(-1);
  const walk = (node: SampleNode, level: number): void => {
    const id = nodes.push(node) - 1;
    depth.push(level);
    size.push(1);
    inside.push(0);
    if (node.row >= 0 && node.row < rows) rowNode[node.row] = id;
    for (const child of node.children) walk(child, level + 1);
    size[id] = nodes.length - id;
    inside[id] = nodes.slice(id + 1).filter((one) => one.children.length === 0).length;
  };
  walk(root, 0);
  return { nodes, depth, size, inside, rowNode };
}

function wireTree(pool: Pool, root: SampleNode, rows: number): WireTree {
  const { nodes, depth, size, inside, rowNode } = flatten(root, rows);
  const text = (field: TextField, { kind, ...node }: SampleNode): string | null => {
    if (field === "kind") return kind;
    if (field === "number") return kind === "kernel" || kind === "delegate" ? `#${node.instruction}` : null;
    if (field === "source") return kind === "module" ? null : "vision_transformer.py:113";
    if (field === "stack") return kind === "kernel" || kind === "inner" ? STACK : null;
    return node[field];
  };
  const texts = TEXT_FIELDS.flatMap((field) => {
    const { values, dictionary } = pool.texts(nodes.map((node) => text(field, node)));
    return [
      [field, values],
      [`${field}s`, dictionary],
    ];
  });
  return {
    ...(Object.fromEntries(texts) as WireTree),
    nodes: nodes.length,
    depth: pool.add(Uint16Array.from(depth)),
    size: pool.ints(size),
    instruction: pool.ints(nodes.map((node) => node.instruction)),
    latency: pool.floats(nodes.map((node) => node.latency)),
    operators: pool.ints(inside),
    row_node: pool.add(rowNode),
  };
}

/** Each node of a level reads the one before it; the first inside of a delegate reads what the delegate reads. */
function sampleEdges(root: SampleNode): number[] {
  const pairs: number[] = [];
  let id = -1;
  const walk = (node: SampleNode, before: number): number => {
    const own = ++id;
    const instruction = node.kind !== "program" && node.kind !== "method";
    if (instruction && before >= 0) pairs.push(before, own);
    let last = instruction ? before : -1;
    for (const child of node.children) last = walk(child, last);
    if (node.kind === "delegate" && node.children.length > 0) pairs.push(last, own);
    return own;
  };
  walk(root, -1);
  return pairs;
}

const OUTPUTS = ["0: [1, 1000] float32", "1: [1, 197, 768] float32"];

const CULPRITS: [number, number][] = [
  [41, 0.58],
  [17, 0.17],
  [48, 0.09],
  [79, 0.06],
  [10, -0.05],
  [2, 0.04],
];

/** A few large shares, one below zero, and many small ones. */
function sampleShares(rows: readonly SampleRow[], known: number): number[] {
  const large = new Map(CULPRITS.map(([row, share]) => [row % known, share]));
  return rows.map((row, k) => {
    if (k >= known || row.kind === "inner") return NaN;
    return large.get(k) ?? 0.13 / known;
  });
}

type More = Partial<WireColumn>;

const ABOUT = "How far the runtime value is from the reference value: sqrt(mean((runtime − reference)²)).";
const HIDDEN: More = { visible: false };
const CODE: More = { format: "code" };
const RATED: More = { thresholds: [10, 100] };
const DECIBELS: More = { format: "db", better: "high" };

/** Name, value for a severity, and how the column differs from an ordinary metric. */
const METRICS: [string, (severity: number) => number, More][] = [
  ["severity", (value) => value, RATED],
  ["rmse", (value) => value * 1.2e-7, {}],
  ["mse", (value) => (value * 1.2e-7) ** 2, HIDDEN],
  ["mean_abs", (value) => value * 0.9e-7, HIDDEN],
  ["max_abs", (value) => value * 8e-7, {}],
  ["l1", (value) => value * 0.013, HIDDEN],
  ["rel_l2", (value) => value * 1.1e-7, { ...HIDDEN, thresholds: [1e-4, 1e-2] }],
  [
    "sqnr_db",
    (value) => 138 - 20 * Math.log10(value),
    { ...DECIBELS, label: "SQNR (dB)", thresholds: [60, 30] },
  ],
  ["psnr_db", (value) => 150 - 20 * Math.log10(value), { ...DECIBELS, ...HIDDEN, label: "PSNR (dB)" }],
  ["cosine", (value) => 1 - value * 1e-9, { ...HIDDEN, better: "high" }],
  [
    "allclose",
    (value) => (value > 100 ? 0.93 : value * 0 + 1),
    { ...HIDDEN, format: "percent", better: "high" },
  ],
  ["max_ulp", (value) => Math.round(value * 3), { ...HIDDEN, format: "int" }],
];

const QUANTIZATION: [string, (severity: number) => number, More][] = [
  ["quantization_rmse", (value) => value * 0 + 2.3e-3, {}],
  ["quantization_sqnr_db", (value) => value * 0 + 38.2, DECIBELS],
  ["backend_rmse", (value) => value * 1.2e-7, {}],
  ["backend_sqnr_db", (value) => 138 - 20 * Math.log10(value), DECIBELS],
  ["error_steps", (value) => 0.289 + value * 1e-4, { thresholds: [0.4, 0.7] }],
  ["saturated", (value) => Math.min(1, value * 1e-5), { format: "percent" }],
];

const OPERATOR: [string, (row: SampleRow) => string | null, More][] = [
  ["kind", (row) => row.kind, {}],
  ["row", (row) => `#${row.instruction}${row.run ? `@${row.run}` : ""}`, { ...HIDDEN, ...CODE }],
  ["op", (row) => row.op, CODE],
  ["backend", (row) => row.backend, {}],
  ["output", (row) => `out_${row.instruction}`, { ...HIDDEN, ...CODE }],
  ["shape", (row) => row.shape, CODE],
  ["dtype", () => "float32", CODE],
  ["reference_ops", (row) => row.referenceOps, { ...HIDDEN, ...CODE }],
  ["module", (row) => row.module, CODE],
  ["source", (row) => row.source, CODE],
  ["stack", () => STACK, { ...HIDDEN, ...CODE }],
  ["pairing", () => "exact", HIDDEN],
];

class Columns {
  readonly all: WireColumn[] = [];

  constructor(readonly pool: Pool) {}

  number(name: string, values: number[], more: More = {}): void {
    const { thresholds } = more;
    this.all.push({
      name,
      label: name.replaceAll("_", " "),
      kind: "number",
      values: this.pool.floats(values),
      format: "metric",
      better: "low",
      group: "metric",
      description: ABOUT,
      thresholds: null,
      visible: true,
      ...more,
      ...(thresholds && name.endsWith("severity") ? { limits: this.limits(thresholds, values.length) } : {}),
    });
  }

  /** Every row has the column's own thresholds, but for one, whose noise seems to have been measured. */
  limits(ends: readonly number[], rows: number): [Values, Values] {
    const measured = 4;
    const [look, fault] = ends.map((end) =>
      this.pool.floats(Array.from({ length: rows }, (_, row) => (row === measured ? end / 40 : end))),
    );
    return [look, fault];
  }

  text(name: string, values: (string | null)[], more: More = {}): void {
    const label = name.replaceAll("_", " ");
    this.all.push({
      name,
      label,
      kind: "text",
      ...this.pool.texts(values),
      format: "text",
      better: null,
      group: "operator",
      description: `The ${label} of the instruction.`,
      thresholds: null,
      visible: true,
      ...more,
    });
  }
}

/** Mostly harmless, drifting upwards, with a few culprits and a few exact rows. */
function severities(count: number, known: number): number[] {
  const next = random(11);
  let drift = 1;
  return Array.from({ length: count }, (_, row) => {
    drift *= 1 + next() * 0.02;
    const bump = row % 97 === 41 ? 400 : row % 31 === 17 ? 25 : 1;
    const value = row % 53 === 7 ? 0 : Math.min(9e4, drift * bump * (0.3 + next()));
    return row < known ? value : NaN;
  });
}

function isCulprit(row: number): boolean {
  return row % 31 === 17 || row % 97 === 41;
}

/** The row with NaN in the runtime only. */
const MISMATCH_ROW = 60;

function sampleColumns(
  pool: Pool,
  { rows }: SampleProgram,
  known: number,
  label: string | undefined,
  attributed: boolean,
  beside?: string,
): WireColumn[] {
  const columns = new Columns(pool);
  const severity = severities(rows.length, known);
  const introduced = severity.map(
    (value, row) => value * (isCulprit(row) ? 0.9 : 0.05 + ((row * 7) % 10) / 14),
  );
  const mismatch = (row: number): boolean => row === MISMATCH_ROW && row < known;
  const nans = severity.map((value, row) => (Number.isNaN(value) ? NaN : mismatch(row) ? 12 : 0));
  const status = (row: number): string =>
    mismatch(row) ? "non-finite mismatch" : row < known ? "compared" : "not compared";
  const reason = "The value is not in the debug buffer: it was overwritten in place.";

  const instructions = rows.map((row) => row.instruction);
  columns.number("instruction", instructions, { format: "int", better: null, group: "operator" });
  if (rows[0]?.run !== undefined) columns.number("run", rows.map(({ run }) => run ?? NaN), { ...HIDDEN, format: "int", better: null, group: "operator" });
  for (const [name, read, more] of OPERATOR) {
    columns.text(
      name,
      rows.map((row, k) => (name === "op" && k === 1 && label ? label : read(row))),
      more,
    );
  }
  for (const [name, read, more] of METRICS) columns.number(name, severity.map(read), more);
  columns.number("introduced_severity", introduced, { ...RATED, group: "introduced" });
  if (beside) {
    const worse = (row: number): number => (row % 10 === 5 ? 10 : 1);
    columns.number("change", severity.map((_, row) => (row < known ? worse(row) : NaN)), { thresholds: [2, 10], group: "ratio" });
    for (const [name, values] of [["severity_2", severity], ["introduced_severity_2", introduced]] as const) {
      columns.number(name, values.map((value, row) => value * worse(row)), { ...RATED, label: `${beside}: ${name}`, group: "beside" });
    }
  }
  columns.number(
    "introduced_rmse",
    introduced.map((value) => value * 1.2e-7),
    { ...HIDDEN, group: "introduced" },
  );
  columns.number(
    "introduced_part",
    severity.map((value, row) => Math.min(1, introduced[row] / value)),
    { ...HIDDEN, format: "percent", better: null, group: "introduced" },
  );
  for (const [name, read, more] of QUANTIZATION) {
    columns.number(name, severity.map(read), { ...HIDDEN, group: "quantization", ...more });
  }
  if (attributed) {
    columns.number("attribution", sampleShares(rows, known), {
      format: "percent",
      group: "attribution",
      description: "The row's share of the final output's error.",
    });
  }
  columns.number("runtime_nan", nans, { ...HIDDEN, format: "int", group: "non-finite" });
  const latencies = rows.map((row) => row.latency);
  columns.number("latency_ms", latencies, { format: "ms", group: "latency", label: "latency (ms)" });
  columns.text(
    "status",
    rows.map((_, row) => status(row)),
    { ...HIDDEN, group: "status" },
  );
  columns.text(
    "reason",
    rows.map((_, row) => (row < known ? null : reason)),
    { ...HIDDEN, group: "status" },
  );
  return columns.all;
}

type Explained = Pick<WirePayload, "attribution" | "zoomable" | "zooms">;

function explanations(
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

/** A payload in the form of the contract; the same options give the same. */
export function samplePayload(options: SampleOptions = {}): Answer<WirePayload> {
  const { layers = 50, inside = 12, label, uncompared = 5, empty = false } = options;
  const program = sampleProgram(layers, inside);
  const calls = program.rows.length;
  const zoomed = (options.zoomed ?? []).filter((row) => row < calls);
  addInnerRows(program, zoomed);
  const { runs = 1 } = options;
  if (runs > 1) program.rows = Array.from({ length: runs }, (_, run) => program.rows.map((row) => ({ ...row, run }))).flat();
  const pool = new Pool();
  const count = program.rows.length;
  const missing = empty ? count : zoomed.length > 0 ? 0 : uncompared;
  const first = program.program.children[0].children[0];
  if (label) first.label = label;
  const about = summary(empty, count - missing, count);
  if (about.finding) about.finding.row = options.found ?? about.finding.row;
  const result: WirePayload = {
    version: options.version ?? 1,
    title: "vit_b_16 (forward)",
    summary: { ...about, ...(options.unfound ? { finding: null } : {}) },
    rows: count,
    compared: count - missing,
    columns: sampleColumns(pool, program, count - missing, label, options.attributed !== undefined, options.beside),
    trees: {
      program: wireTree(pool, program.program, count),
      modules: wireTree(pool, program.modules, count),
    },
    edges: pool.ints(sampleEdges(program.program)),
    ...(options.beside ? { label: "first", beside: [{ label: options.beside, tree: wireTree(pool, program.program, count) }] } : {}),
    ...(options.methods ? { method: options.methods[0], methods: [...options.methods].sort() } : {}),
    timeline: options.timed
      ? { runs: options.timed, typical: Math.floor((options.timed - 1) / 2), note: "About these times.", distorted: options.distorted ?? false }
      : null,
    explanations: options.explanations ?? [],
    row_notes: options.notes ?? {},
    ...explanations(pool, program.rows, empty ? null : options, zoomed),
    ...(options.tokens ? { tokens: sampleTokens(pool, options.tokens) } : {}),
  };
  return { result, buffers: pool.buffers };
}
