// A made-up payload in the form of the contract, for the harness and the tests.
import type { Summary, TreeName, WirePayload, WireTree } from "../state/contract";
import { Pool } from "./pool";
import { type SampleNode, addInnerRows, sampleProgram } from "./program";
import { explanations } from "./sampleExplained";
import { MISMATCH_ROW, sampleColumns } from "./sampleColumns";
import { sampleEdges, wireTree } from "./sampleTree";

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
  /** The output whose error was attributed. */
  attributed?: number;
}

export interface Answer<T> {
  result: T;
  buffers: DataView[];
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
  };
}

export function samplePayload(options: SampleOptions = {}): Answer<WirePayload> {
  const { layers = 50, inside = 12, label, uncompared = 5, empty = false } = options;
  const program = sampleProgram(layers, inside);
  const calls = program.rows.length;
  const zoomed = (options.zoomed ?? []).filter((row) => row < calls);
  addInnerRows(program, zoomed);
  const pool = new Pool();
  const count = program.rows.length;
  const missing = empty ? count : zoomed.length > 0 ? 0 : uncompared;
  const first = program.program.children[0].children[0];
  if (label) first.label = label;
  const trees: [TreeName, SampleNode][] = [
    ["program", program.program],
    ["modules", program.modules],
  ];
  const wired = trees.map(([name, root]) => [name, wireTree(pool, root, count)]);
  const result: WirePayload = {
    version: 1,
    title: "vit_b_16 (forward)",
    summary: summary(empty, count - missing, count),
    rows: count,
    compared: count - missing,
    columns: sampleColumns(pool, program, count - missing, label, options.attributed !== undefined),
    trees: Object.fromEntries(wired) as Record<TreeName, WireTree>,
    edges: pool.ints(sampleEdges(program.program)),
    ...explanations(pool, program.rows, empty ? null : options, zoomed),
  };
  return { result, buffers: pool.buffers };
}
