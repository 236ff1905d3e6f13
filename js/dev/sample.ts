// A made-up payload and tensor answers in the form of the contract, for the harness and the tests.
import type { Summary, TreeName, Values, WireColumn, WirePayload, WireTensor, WireTree } from "../state/contract";
import { Pool } from "./pool";
import { type SampleNode, type SampleProgram, random, sampleProgram } from "./program";

export interface SampleOptions {
  layers?: number;
  inside?: number;
  /** Label of the first delegate, to show that texts stay texts. */
  label?: string;
  /** How many rows at the end were not compared. */
  uncompared?: number;
  empty?: boolean;
}

export interface Answer<T> {
  result: T;
  buffers: DataView[];
}

const TREE_KINDS = ["program", "method", "delegate", "kernel", "inner", "module", "value"];
const STACK = 'File "vision_transformer.py", line 113, in forward\n    x = self.ln_1(input)\nFile "normalization.py", line 229, in forward\n    return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)';

function wireTree(pool: Pool, root: SampleNode, rows: number): WireTree {
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
  const text = (read: (node: SampleNode) => string | null) => pool.texts(nodes.map(read));
  const label = text((node) => node.label);
  const backend = text((node) => node.backend);
  const op = text((node) => node.op);
  const shape = text((node) => node.shape);
  const module = text((node) => node.module);
  const source = text((node) => (node.kind === "module" ? null : "vision_transformer.py:113"));
  const stack = text((node) => (node.kind === "kernel" || node.kind === "inner" ? STACK : null));
  return {
    nodes: nodes.length,
    depth: pool.add(Uint16Array.from(depth)),
    size: pool.ints(size),
    kind: pool.add(Uint8Array.from(nodes.map((node) => TREE_KINDS.indexOf(node.kind)))),
    kinds: TREE_KINDS,
    label: label.values,
    labels: label.dictionary,
    backend: backend.values,
    backends: backend.dictionary,
    op: op.values,
    ops: op.dictionary,
    shape: shape.values,
    shapes: shape.dictionary,
    module: module.values,
    modules: module.dictionary,
    source: source.values,
    sources: source.dictionary,
    stack: stack.values,
    stacks: stack.dictionary,
    instruction: pool.ints(nodes.map((node) => node.instruction)),
    latency: pool.floats(nodes.map((node) => node.latency)),
    operators: pool.ints(inside),
    row_node: pool.add(rowNode),
  };
}

const about = "How far the runtime value is from the reference value: sqrt(mean((runtime − reference)²)).";

function number(pool: Pool, name: string, values: number[], more: Partial<WireColumn> = {}): WireColumn {
  return {
    name, label: name.replaceAll("_", " "), kind: "number", values: pool.floats(values), format: "metric",
    better: "low", group: "metric", description: about, thresholds: null, visible: true, ...more,
  };
}

function text(pool: Pool, name: string, values: (string | null)[], more: Partial<WireColumn> = {}): WireColumn {
  return {
    name, label: name.replaceAll("_", " "), kind: "text", ...pool.texts(values), format: "text", better: null,
    group: "operator", description: `The ${name.replaceAll("_", " ")} of the instruction.`, thresholds: null, visible: true, ...more,
  };
}

function severities(count: number): number[] {
  const next = random(11);
  let drift = 1;
  return Array.from({ length: count }, (_, row) => {
    drift *= 1 + next() * 0.02;
    const bump = row % 97 === 41 ? 400 : row % 31 === 17 ? 25 : 1;
    return row % 53 === 7 ? 0 : Math.min(9e4, drift * bump * (0.3 + next()));
  });
}

function columns(pool: Pool, { rows }: SampleProgram, uncompared: number, label: string | undefined): WireColumn[] {
  const count = rows.length;
  const known = (row: number): boolean => row < count - uncompared;
  const bad = severities(count).map((value, row) => (known(row) ? value : NaN));
  const mismatch = (row: number): boolean => known(row) && row === 60;
  const metric = (scale: (value: number) => number) => bad.map(scale);
  const introduced = bad.map((value, row) => (row % 31 === 17 || row % 97 === 41 ? value * 0.9 : value * 0.05));
  return [
    number(pool, "instruction", rows.map((row) => row.instruction), { format: "int", better: null, group: "operator" }),
    text(pool, "kind", rows.map((row) => row.kind)),
    text(pool, "op", rows.map((row, k) => (k === 1 && label ? label : row.op)), { format: "code" }),
    text(pool, "backend", rows.map((row) => row.backend)),
    text(pool, "output", rows.map((_, row) => `out_${row}`), { visible: false, format: "code" }),
    text(pool, "shape", rows.map((row) => row.shape), { format: "code" }),
    text(pool, "dtype", rows.map(() => "float32"), { format: "code" }),
    text(pool, "reference_ops", rows.map((row) => row.referenceOps), { visible: false, format: "code" }),
    text(pool, "module", rows.map((row) => row.module), { format: "code" }),
    text(pool, "source", rows.map((row) => row.source), { format: "code" }),
    text(pool, "stack", rows.map(() => STACK), { visible: false, format: "code" }),
    text(pool, "pairing", rows.map(() => "exact"), { visible: false }),
    number(pool, "severity", bad, { thresholds: [10, 100] }),
    number(pool, "introduced_severity", introduced, { thresholds: [10, 100], group: "introduced", label: "introduced severity" }),
    number(pool, "rmse", metric((value) => value * 1.2e-7)),
    number(pool, "mse", metric((value) => (value * 1.2e-7) ** 2), { visible: false }),
    number(pool, "mean_abs", metric((value) => value * 0.9e-7), { visible: false }),
    number(pool, "max_abs", metric((value) => value * 8e-7)),
    number(pool, "l1", metric((value) => value * 0.013), { visible: false }),
    number(pool, "rel_l2", metric((value) => value * 1.1e-7), { visible: false, thresholds: [1e-4, 1e-2] }),
    number(pool, "sqnr_db", metric((value) => (value === 0 ? Infinity : 138 - 20 * Math.log10(value))), { format: "db", better: "high", label: "SQNR (dB)", thresholds: [60, 30] }),
    number(pool, "psnr_db", metric((value) => (value === 0 ? Infinity : 150 - 20 * Math.log10(value))), { format: "db", better: "high", label: "PSNR (dB)", visible: false }),
    number(pool, "cosine", metric((value) => 1 - value * 1e-9), { better: "high", visible: false }),
    number(pool, "allclose", metric((value) => (Number.isNaN(value) ? NaN : value > 100 ? 0.93 : 1)), { format: "percent", better: "high", visible: false }),
    number(pool, "max_ulp", metric((value) => (Number.isNaN(value) ? NaN : Math.round(value * 3))), { format: "int", visible: false }),
    number(pool, "introduced_rmse", introduced.map((value) => value * 1.2e-7), { group: "introduced", visible: false }),
    number(pool, "reference_nan", rows.map((_, row) => (known(row) ? 0 : NaN)), { format: "int", group: "non-finite", visible: false }),
    number(pool, "runtime_nan", rows.map((_, row) => (mismatch(row) ? 12 : known(row) ? 0 : NaN)), { format: "int", group: "non-finite", visible: false }),
    number(pool, "latency_ms", rows.map((row) => row.latency), { format: "ms", group: "latency", label: "latency (ms)" }),
    text(pool, "status", rows.map((_, row) => (mismatch(row) ? "non-finite mismatch" : known(row) ? "compared" : "not compared")), { group: "status", visible: false }),
    text(pool, "reason", rows.map((_, row) => (known(row) ? null : "The value is not in the debug buffer: it was overwritten in place.")), { group: "status", visible: false }),
  ];
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
    verdict: "Final outputs differ from the reference (0 of 1 match, max |error| 3.1e-02).",
    facts: [
      { label: "Compared", value: `${compared} of ${total} instructions`, level: "ok", row: null, hint: "Every instruction that has a value was paired with its own reference value." },
      { label: "Delegated", value: "83 % of operators, 26 delegates", level: "ok", row: null, hint: "XnnpackBackend" },
      { label: "Worst introduced", value: "executorch_call_delegate, severity 412", level: "bad", row: 41, hint: "The instruction that adds most error of its own" },
      { label: "Non-finite", value: "1 row", level: "warn", row: 60, hint: "NaN in the runtime only" },
      { label: "Latency", value: "118 ms", level: "unknown", row: null, hint: "" },
    ],
    notes: [],
  };
}

export function samplePayload(options: SampleOptions = {}): Answer<WirePayload> {
  const { layers = 50, inside = 12, label, uncompared = 5, empty = false } = options;
  const program = sampleProgram(layers, inside);
  const pool = new Pool();
  const count = program.rows.length;
  const missing = empty ? count : uncompared;
  const first = program.program.children[0].children[0];
  if (label) first.label = label;
  const trees: [TreeName, SampleNode][] = [["program", program.program], ["modules", program.modules]];
  const wired = trees.map(([name, root]) => [name, wireTree(pool, root, count)]);
  const result: WirePayload = {
    version: 1,
    title: "vit_b_16 (forward)",
    summary: summary(empty, count - missing, count),
    rows: count,
    compared: count - missing,
    columns: columns(pool, program, missing, label),
    trees: Object.fromEntries(wired) as Record<TreeName, WireTree>,
  };
  return { result, buffers: pool.buffers };
}

function counts(bins: number, total: number, shape: (share: number) => number): number[] {
  const weights = Array.from({ length: bins }, (_, bin) => shape((bin + 0.5) / bins));
  const sum = weights.reduce((all, one) => all + one, 0);
  return weights.map((weight) => Math.round((total * weight) / sum));
}

function edges(pool: Pool, low: number, high: number, bins: number): Values {
  return pool.floats(Array.from({ length: bins + 1 }, (_, k) => low + ((high - low) * k) / bins));
}

function bell(center: number, width: number): (share: number) => number {
  return (share) => Math.exp(-(((share - center) / width) ** 2));
}

export function sampleTensor(row: number, bins = 64): Answer<WireTensor> {
  const pool = new Pool();
  const elements = 151296;
  const shift = row % 31 === 17 ? 0.03 : 0.002;
  const nonfinite = row === 60;
  const result: WireTensor = {
    row,
    elements,
    reference_missing: null,
    edges: edges(pool, -3.2, 4.1, bins),
    reference: pool.floats(counts(bins, elements, bell(0.45, 0.12))),
    runtime: pool.floats(counts(bins, elements, bell(0.45 + shift, 0.12 + shift))),
    error_edges: edges(pool, -4e-6, 4e-6, bins),
    error: pool.floats(counts(bins, elements, (share) => Math.exp(-Math.abs(share - 0.5) * 22))),
    nonfinite: nonfinite
      ? { classes: ["finite", "+inf", "-inf", "nan"], counts: [[151280, 0, 0, 12], [0, 4, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]] }
      : null,
    statistics: [
      { name: "min", reference: -3.1842, runtime: -3.18421, error: -3.9e-6 },
      { name: "max", reference: 4.0719, runtime: 4.07188, error: 4.1e-6 },
      { name: "mean", reference: 0.01423, runtime: 0.014231, error: 1.2e-8 },
      { name: "std", reference: 0.8412, runtime: 0.84121, error: 3.3e-7 },
      { name: "rms", reference: 0.84132, runtime: 0.84133, error: 3.3e-7 },
      { name: "zeros", reference: 0, runtime: nonfinite ? "nan" : 0, error: null },
    ],
    worst: [0, 1, 2, 3].map((k) => ({
      index: [0, 3 + 7 * k, 511 - 41 * k],
      reference: 1.23456 + k,
      runtime: 1.23457 + k * 1.000001,
    })),
  };
  return { result, buffers: pool.buffers };
}
