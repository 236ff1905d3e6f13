// Made-up columns of the gap table in the form of the contract.
import type { WireColumn } from "../state/contract";
import type { Pool } from "./pool";
import { type SampleProgram, type SampleRow, random } from "./program";
import { sampleShares } from "./sampleExplained";
import { STACK } from "./sampleTree";

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
    });
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
export const MISMATCH_ROW = 60;

export function sampleColumns(
  pool: Pool,
  { rows }: SampleProgram,
  known: number,
  label: string | undefined,
  attributed: boolean,
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
  for (const [name, read, more] of OPERATOR) {
    columns.text(
      name,
      rows.map((row, k) => (name === "op" && k === 1 && label ? label : read(row))),
      more,
    );
  }
  for (const [name, read, more] of METRICS) columns.number(name, severity.map(read), more);
  columns.number("introduced_severity", introduced, { ...RATED, group: "introduced" });
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
