// The messages between the kernel and the view, as they come over the wire (version 1).
// Numbers in columns travel as binary buffers; a `Values` names the buffer that holds them.

export type Dtype = "float64" | "float32" | "int32" | "uint32" | "uint16" | "uint8";

export interface Values {
  buffer: number;
  dtype: Dtype;
  length: number;
}

/** JSON holds neither NaN nor infinities: they come as strings. */
export type WireNumber = number | "nan" | "inf" | "-inf" | null;

export type Level = "ok" | "warn" | "bad" | "unknown";
export type Format = "metric" | "int" | "db" | "ms" | "percent" | "text" | "code";
export type Better = "low" | "high" | null;

export interface Fact {
  label: string;
  value: string;
  level: Level;
  row: number | null;
  hint: string;
}

export interface Summary {
  level: Level;
  verdict: string;
  facts: Fact[];
  notes: string[];
}

export interface ColumnInfo {
  name: string;
  label: string;
  kind: "number" | "text";
  format: Format;
  better: Better;
  group: string;
  description: string;
  thresholds: [number, number] | null;
  visible: boolean;
}

export interface WireColumn extends ColumnInfo {
  values: Values;
  dictionary?: string[];
}

export interface WireTree {
  nodes: number;
  depth: Values;
  size: Values;
  kind: Values;
  kinds: string[];
  label: Values;
  labels: string[];
  backend: Values;
  backends: string[];
  op: Values;
  ops: string[];
  shape: Values;
  shapes: string[];
  module: Values;
  modules: string[];
  source: Values;
  sources: string[];
  stack: Values;
  stacks: string[];
  instruction: Values;
  latency: Values;
  operators: Values;
  row_node: Values;
}

export type TreeName = "program" | "modules";

export interface WirePayload {
  version: number;
  title: string;
  summary: Summary;
  rows: number;
  compared: number;
  columns: WireColumn[];
  trees: Record<TreeName, WireTree>;
}

export interface WireStatistic {
  name: string;
  reference: WireNumber;
  runtime: WireNumber;
  error: WireNumber;
}

export interface WireWorst {
  index: number[];
  reference: WireNumber;
  runtime: WireNumber;
}

export interface Nonfinite {
  classes: string[];
  counts: number[][];
}

export interface WireTensor {
  row: number;
  elements: number;
  reference_missing: string | null;
  edges: Values;
  reference: Values | null;
  runtime: Values;
  error_edges: Values | null;
  error: Values | null;
  nonfinite: Nonfinite | null;
  statistics: WireStatistic[];
  /** null: not in this report. */
  worst: WireWorst[] | null;
}

export interface WireError {
  type: string;
  message: string;
}

export interface Progress {
  label: string;
  done: number;
  total: number;
}

/** One answer or event of the kernel. */
export interface WireMessage {
  id?: number;
  result?: unknown;
  error?: WireError;
  event?: "changed" | "progress";
  label?: string;
  done?: number;
  total?: number;
}
